// The workspace's state, the tabs, and the questions that views ask of them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { sizeProblem } from "../../frontend/js/limits.js";
import { windowsOf } from "../../frontend/js/model-window.js";
import { chatsByTitle, groupChats, modelOf, waitingFor } from "../../frontend/js/selectors.js";
import { closeTab, moveTab, noTabs, openTab, readTabs } from "../../frontend/js/state/tabs.js";
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

test("Ollama's coming and going is news until it is acknowledged, the first look is none", () => {
  const models = (state, backend) => reduceWorkspace(state, { type: "models.updated", models: [], default_model: null, model_backend: backend });
  const first = models(emptyWorkspace, "embedded");
  assert.equal(first.modelNews, null);
  const came = models(first, "ollama");
  assert.equal(came.modelNews, "came");
  assert.equal(models(came, "ollama").modelNews, "came");
  assert.equal(reduceWorkspace(came, { type: "news.dismissed" }).modelNews, null);
  assert.equal(models(came, "none").modelNews, "gone");
  assert.equal(models(first, "none").modelNews, null);
});

test("a pull is known from the welcome, moves on, and can be taken off", () => {
  const pull = (status) => ({ name: "m", status, step: "", completed: 1, total: 2, error: null });
  let state = reduceWorkspace(emptyWorkspace, { ...welcome, pulls: [pull("running")] });
  assert.equal(state.pulls.m.status, "running");
  state = reduceWorkspace(state, { type: "model.pull", pull: pull("complete") });
  assert.equal(state.pulls.m.status, "complete");
  assert.deepEqual(reduceWorkspace(state, { type: "pull.dismissed", name: "m" }).pulls, {});
});

test("a window is one of the round sizes, the longest, or the one in use", () => {
  assert.deepEqual(windowsOf({ num_ctx: 8192, context_length: 20_000 }), [2048, 4096, 8192, 16_384, 20_000]);
  assert.deepEqual(windowsOf({ num_ctx: 3000, context_length: 4096 }), [2048, 3000, 4096]);
  assert.deepEqual(windowsOf({ num_ctx: 4096, context_length: null }), [2048, 4096]);
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
  assert.equal(modelOf({ ...state, models: [{ name: "x:latest" }] }, chat("a", { model: "x" })).name, "x:latest");
  assert.equal(modelOf(emptyWorkspace, null), null);
});

test("chats are grouped, newest first, and filtered by title", () => {
  const chats = {
    a: chat("a", { pinned: true, updated_at: "2026-01-01T00:00:00Z" }),
    b: chat("b"),
    c: chat("c", { updated_at: "2026-05-02T11:00:00Z" }),
    d: chat("d", { title: "Отчёт за год", updated_at: "2026-05-01T23:00:00Z" }),
    e: chat("e", { updated_at: "2026-04-27T23:00:00Z" }),
    f: chat("f", { updated_at: "2025-04-27T23:00:00Z" }),
  };
  const days = { today: Date.parse("2026-05-02T00:00:00Z"), yesterday: Date.parse("2026-05-01T00:00:00Z"), week: Date.parse("2026-04-25T00:00:00Z") };
  const groups = groupChats(chats, days);
  assert.deepEqual(Object.values(groups).map((group) => group.map(({ id }) => id)), [["a"], ["c", "b"], ["d"], ["e"], ["f"]]);
  assert.deepEqual(Object.values(groupChats(chats, days, " отч")).flat().map(({ id }) => id), ["d"]);
  assert.deepEqual(chatsByTitle(chats, "ГОД отч").map(({ id }) => id), ["d"]);
  assert.deepEqual(chatsByTitle(chats, "").map(({ id }) => id), ["c", "b", "d", "e", "a", "f"]);
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

test("a tab moves by places and not beyond an end", () => {
  const tabs = { open: ["a", "b", "c"], active: "b" };
  assert.deepEqual(moveTab(tabs, "a", 1).open, ["b", "a", "c"]);
  assert.deepEqual(moveTab(tabs, "c", 1), tabs);
  assert.deepEqual(moveTab(tabs, "a", -1), tabs);
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
