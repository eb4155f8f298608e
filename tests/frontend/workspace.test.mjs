// The workspace's state, the tabs, and the questions that views ask of them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { sizeProblem } from "../../frontend/js/limits.js";
import { groupChats, modelOf, waitingFor } from "../../frontend/js/selectors.js";
import { closeTab, noTabs, openTab, pruneTabs, readTabs } from "../../frontend/js/state/tabs.js";
import { emptyWorkspace, reduceWorkspace } from "../../frontend/js/state/workspace.js";

const chat = (id, fields = {}) => ({ id, title: `Chat ${id}`, pinned: false, model: null, updated_at: "2026-05-02T10:00:00Z", ...fields });

const welcome = {
  type: "welcome", server_version: "1", chats: [chat("a")], models: [{ name: "m" }], default_model: "m", model_backend: "ollama", model_server: "http://x", settings: { ttl_messages: 4 },
};

test("a welcome replaces the chats and keeps the tools", () => {
  const state = reduceWorkspace({ ...emptyWorkspace, chats: { gone: chat("gone") }, tools: [1] }, welcome);
  assert.deepEqual(Object.keys(state.chats), ["a"]);
  assert.deepEqual(state.tools, [1]);
  assert.equal(state.everConnected, true);
});

test("chats are created, changed and deleted", () => {
  let state = reduceWorkspace(emptyWorkspace, { type: "chat.created", chat: chat("b") });
  state = reduceWorkspace(state, { type: "chat.updated", chat: chat("b", { title: "New" }) });
  assert.equal(state.chats.b.title, "New");
  assert.deepEqual(reduceWorkspace(state, { type: "chat.deleted", chat_id: "b" }).chats, {});
});

test("refreshed models keep the known server address", () => {
  const state = reduceWorkspace(reduceWorkspace(emptyWorkspace, welcome), { type: "models", models: [], default_model: null, model_backend: "none" });
  assert.deepEqual([state.modelBackend, state.modelServer, state.models], ["none", "http://x", []]);
});

test("changed facts are told by a number that moves", () => {
  const state = reduceWorkspace(emptyWorkspace, { type: "facts.changed", families: ["tasks"] });
  assert.equal(state.factsRevision, emptyWorkspace.factsRevision + 1);
});

test("what a turn waits for: the person when a card asks, else what the turn says", () => {
  const asking = (state) => ({ 7: { message: { card: { approval: { state } } } } });
  assert.equal(waitingFor({ turn: { waiting: null }, live: asking("waiting") }), "approval");
  assert.equal(waitingFor({ turn: { waiting: "approval" }, live: asking("allowed") }), null);
  assert.equal(waitingFor({ turn: { waiting: "model_busy" }, live: {} }), "model_busy");
  assert.equal(waitingFor({ turn: null, live: {} }), null);
});

test("a chat's model is its own choice, else the default, and says when it is missing", () => {
  const state = reduceWorkspace(emptyWorkspace, welcome);
  assert.equal(modelOf(state, chat("a")).name, "m");
  assert.deepEqual(modelOf(state, chat("a", { model: "gone" })), { name: "gone", missing: true });
  assert.equal(modelOf(emptyWorkspace, null), null);
});

test("chats are grouped, newest first, and filtered by title", () => {
  const chats = {
    a: chat("a", { pinned: true, updated_at: "2026-01-01T00:00:00Z" }),
    b: chat("b"),
    c: chat("c", { updated_at: "2026-05-02T11:00:00Z" }),
    d: chat("d", { title: "Отчёт", updated_at: "2026-05-01T23:00:00Z" }),
  };
  const groups = groupChats(chats, Date.parse("2026-05-02T00:00:00Z"));
  assert.deepEqual(Object.values(groups).map((group) => group.map(({ id }) => id)), [["a"], ["c", "b"], ["d"]]);
  assert.deepEqual(Object.values(groupChats(chats, 0, " отч")).flat().map(({ id }) => id), ["d"]);
});

test("closing the tab in front brings its neighbour forward", () => {
  const tabs = ["a", "b", "c"].reduce(openTab, noTabs);
  assert.deepEqual(closeTab(tabs, "c"), { open: ["a", "b"], active: "b" });
  assert.deepEqual(closeTab({ ...tabs, active: "a" }, "a"), { open: ["b", "c"], active: "b" });
  assert.deepEqual(closeTab({ ...tabs, active: "a" }, "b"), { open: ["a", "c"], active: "a" });
  assert.deepEqual(closeTab(openTab(noTabs, "a"), "a"), noTabs);
});

test("opening an open tab only brings it forward", () => {
  assert.deepEqual(openTab({ open: ["a", "b"], active: "b" }, "a"), { open: ["a", "b"], active: "a" });
});

test("tabs of chats that are gone are closed", () => {
  assert.deepEqual(pruneTabs({ open: ["a", "b"], active: "b" }, (id) => id === "a"), { open: ["a"], active: "a" });
});

test("stored tabs of another shape are not trusted", () => {
  assert.deepEqual(readTabs(null), noTabs);
  assert.deepEqual(readTabs({ open: ["a", 3, "a"], active: "z" }), { open: ["a"], active: "a" });
});

test("a text is measured in bytes, and its frame too", () => {
  const limits = { max_message_bytes: 10, max_frame_bytes: 600 };
  assert.equal(sizeProblem("0123456789", limits), null);
  assert.deepEqual(sizeProblem("привет", limits), { bytes: 12, limit: 10 });
  assert.equal(sizeProblem("\u0001".repeat(100), { max_message_bytes: 1000, max_frame_bytes: 600 }).limit, 600);
});
