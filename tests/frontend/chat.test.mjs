// The reducer of one chat: snapshot and events must give what a new snapshot would.

import assert from "node:assert/strict";
import { test } from "node:test";
import { countAfter, standingOf, windowNumbers } from "../../frontend/js/selectors.js";
import { applyOlder, applyOpened, applySent, currentMessages, emptyChat, endedWell, reduce } from "../../frontend/js/state/chat.js";

const CONTEXT = { active_tool: null, unrelated_count: 0, ttl_messages: 4, pending_transaction: null };

const message = (id, fields = {}) => ({ id, chat_id: "c", role: "user", content: `text ${id}`, is_ephemeral: 0, status: "complete", turn_id: "t", ...fields });

const snapshot = (fields = {}) => ({
  epoch: "e", seq: 10, resumed: false, chat: { id: "c", turn_running: false }, messages: [message(1), message(2)], has_more: false, context: CONTEXT, ...fields,
});

const opened = (fields) => applyOpened(emptyChat("c"), snapshot(fields));

/** Apply events, numbered onwards from the state's own seq. */
function after(state, ...events) {
  return events.reduce((held, event) => reduce(held, { chat_id: "c", seq: held.seq + 1, ...event }), state);
}

const delta = (id, offset, text, fields = {}) => ({ type: "message.delta", message_id: id, channel: "content", offset, text, ...fields });
const streaming = (id, fields) => message(id, { role: "assistant", content: "", status: "streaming", ...fields });

test("a snapshot holds the messages, the context and a reply under way", () => {
  const state = opened({ messages: [message(1), streaming(2, { content: "Hel" })], chat: { id: "c", turn_running: true } });
  assert.equal(state.loaded, true);
  assert.deepEqual(state.turn, { id: null, waiting: null });
  assert.equal(after(state, delta(2, 3, "lo")).live[2].message.content, "Hello");
});

test("a resumed reply keeps what is held", () => {
  const state = after(opened(), { type: "message.created", message: message(3) });
  assert.deepEqual(applyOpened(state, { epoch: "e", seq: 11, resumed: true }), state);
});

test("a whole turn, event by event, equals a new snapshot", () => {
  const reply = message(4, { role: "assistant", content: "Hello", metrics: { first_token_ms: 3 } });
  const context = { ...CONTEXT, unrelated_count: 1 };
  const state = after(
    opened(),
    { type: "message.created", message: message(3) },
    { type: "turn.started", turn_id: "t" },
    { type: "turn.waiting", turn_id: "t", reason: "model_busy" },
    { type: "message.created", message: streaming(4) },
    delta(4, 0, "Hel"),
    delta(4, 3, "lo"),
    { type: "message.completed", message: reply },
    { type: "context.state", context },
    { type: "turn.finished", turn_id: "t", status: "complete" },
  );
  assert.deepEqual(state, opened({ seq: state.seq, messages: [message(1), message(2), message(3), reply], context }));
});

test("waiting ends with the first word", () => {
  const waiting = after(opened(), { type: "turn.waiting", turn_id: "t", reason: "model_loading" });
  assert.equal(waiting.turn.waiting, "model_loading");
  assert.equal(after(waiting, { type: "message.created", message: streaming(3) }).turn.waiting, null);
});

test("a delta leaves the list of messages as it is", () => {
  const before = after(opened(), { type: "message.created", message: streaming(3) });
  const state = after(before, delta(3, 0, "x"));
  assert.equal(state.messages, before.messages);
  assert.equal(currentMessages(state).at(-1).content, "x");
});

test("offsets count code points, not UTF-16 units", () => {
  const state = after(opened(), { type: "message.created", message: streaming(3) }, delta(3, 0, "👨‍👩‍👧"), delta(3, 5, "🇫🇷"), delta(3, 7, "é"));
  assert.equal(state.stale, false);
  assert.equal(state.live[3].message.content, "👨‍👩‍👧🇫🇷é");
});

test("content and thinking have offsets of their own", () => {
  const state = after(opened(), { type: "message.created", message: streaming(3) }, delta(3, 0, "hm", { channel: "thinking" }), delta(3, 0, "yes"));
  assert.deepEqual([state.live[3].message.thinking, state.live[3].message.content], ["hm", "yes"]);
});

test("a delta that overlaps adds only what is new", () => {
  const state = after(opened(), { type: "message.created", message: streaming(3) }, delta(3, 0, "a🙂b"), delta(3, 1, "🙂bc"));
  assert.equal(state.live[3].message.content, "a🙂bc");
});

test("a delta beyond the text that is held makes the state stale", () => {
  const state = after(opened(), { type: "message.created", message: streaming(3) }, delta(3, 4, "late"));
  assert.equal(state.stale, true);
  assert.equal(state.seq, 11);
});

test("an event that was applied already changes nothing", () => {
  const state = after(opened(), { type: "message.created", message: message(3) });
  assert.equal(reduce(state, { type: "message.created", seq: state.seq, message: message(9) }), state);
});

test("a gap makes the state stale, and stale states wait for a snapshot", () => {
  const state = reduce(opened(), { type: "message.created", seq: 12, message: message(3) });
  assert.equal(state.stale, true);
  assert.equal(reduce(state, { type: "message.created", seq: 11, message: message(3) }), state);
  assert.equal(applyOpened(state, snapshot({ seq: 12 })).stale, false);
});

test("a merged delta leaves no gap for whoever holds the one before its first", () => {
  const state = after(opened(), { type: "message.created", message: streaming(3) });
  const merged = reduce(state, { ...delta(3, 0, "abc"), first_seq: 12, seq: 15 });
  assert.deepEqual([merged.seq, merged.stale, merged.live[3].message.content], [15, false, "abc"]);
  assert.equal(reduce(state, { ...delta(3, 0, "abc"), first_seq: 13, seq: 15 }).stale, true);
});

test("events before the snapshot are ignored", () => {
  const state = emptyChat("c");
  assert.equal(reduce(state, { type: "message.created", seq: 1, message: message(1) }), state);
});

test("an unknown event only moves the position", () => {
  const state = opened();
  assert.deepEqual(after(state, { type: "from.the.future" }), { ...state, seq: 11 });
});

test("a message with an event's shape in its text stays text", () => {
  const content = JSON.stringify({ type: "context.cleared", message_ids: [1, 2] });
  const state = after(opened(), { type: "message.created", message: message(3, { content }) });
  assert.equal(state.messages.length, 3);
});

test("messages are kept in the order of their ids", () => {
  const state = after(opened({ messages: [message(1), message(5)] }), { type: "message.created", message: message(3) });
  assert.deepEqual(state.messages.map(({ id }) => id), [1, 3, 5]);
});

test("an update of a message that is not loaded adds nothing", () => {
  const state = opened({ messages: [message(5)] });
  assert.deepEqual(after(state, { type: "message.updated", message: message(2) }).messages, state.messages);
});

test("deleted messages go, a streaming one too", () => {
  const state = after(opened(), { type: "message.created", message: streaming(3) }, { type: "message.deleted", message_ids: [3, 1] });
  assert.deepEqual(state.messages.map(({ id }) => id), [2]);
  assert.deepEqual(state.live, {});
});

const cleared = (ids, fields = {}) => ({
  type: "context.cleared", reason: "expired", family: "tasks", message_ids: ids, messages: ids.length, tokens: 7, undo_until: "2030-01-01T00:00:00Z", ...fields,
});

test("clearing removes the rows and leaves a line, restoring undoes both", () => {
  const card = message(3, { role: "tool", is_ephemeral: 1 });
  const state = after(opened({ messages: [message(1), message(2), card] }), cleared([3]));
  assert.deepEqual(state.messages.map(({ id }) => id), [1, 2]);
  assert.deepEqual([state.cleared[0].reason, state.cleared[0].afterId], ["expired", 3]);
  const restored = after(state, { type: "context.restored", messages: [card] });
  assert.deepEqual(restored.messages.map(({ id }) => id), [1, 2, 3]);
  assert.deepEqual(restored.cleared, []);
});

test("only the last clearing offers a way back", () => {
  const state = after(opened(), cleared([1]), cleared([2], { reason: "confirmed", undo_until: null }));
  assert.deepEqual(state.cleared.map(({ undoUntil }) => undoUntil), [null, null]);
});

test("a line outlives a new snapshot", () => {
  const state = after(opened(), cleared([1]));
  assert.equal(applyOpened(state, snapshot()).cleared.length, 1);
});

test("a completed transaction waits for an answer until it is closed", () => {
  const pending = { transaction_id: "x", tool: "system_prompt_apply", summary: "version 2" };
  const asked = after(opened(), { type: "transaction_completed", transaction_completed: true, ...pending });
  assert.deepEqual(asked.context.pending_transaction, pending);
  assert.deepEqual(after(asked, { type: "transaction.closed", transaction_id: "other", answer: "expired" }).context.pending_transaction, pending);
  assert.equal(after(asked, { type: "transaction.closed", transaction_id: "x", answer: "yes" }).context.pending_transaction, null);
});

test("a failed turn's error is held until the next one starts", () => {
  const failed = after(opened(), { type: "turn.finished", turn_id: "t", status: "failed", error: { code: "model_unavailable", message: "gone" } });
  assert.deepEqual(failed.problem, { turnId: "t", code: "model_unavailable", message: "gone" });
  assert.equal(after(failed, { type: "turn.started", turn_id: "u" }).problem, null);
});

test("older pages come before and never twice", () => {
  const state = applyOlder(opened({ messages: [message(5), message(6)] }), { messages: [message(3), message(4), message(5)], has_more: true });
  assert.deepEqual(state.messages.map(({ id }) => id), [3, 4, 5, 6]);
  assert.equal(state.hasMore, true);
});

test("an acknowledged message is there before its event, and its event does not double it", () => {
  const sent = applySent(opened(), message(3));
  assert.deepEqual(after(sent, { type: "message.created", message: message(3) }).messages.length, 3);
  const newer = after(opened(), { type: "message.created", message: message(3, { status: "failed" }) });
  assert.equal(applySent(newer, message(3)), newer);
});

test("a reply that goes on keeps its text, and its offsets go on too", () => {
  const stopped = message(3, { role: "assistant", content: "Hé🙂", thinking: "hm", status: "stopped" });
  const state = after(opened({ messages: [message(1), stopped] }), { type: "message.updated", message: { ...stopped, status: "streaming" } }, delta(3, 3, " and on"), delta(3, 2, "m", { channel: "thinking" }));
  assert.equal(state.stale, false);
  assert.deepEqual([state.live[3].message.content, state.live[3].message.thinking], ["Hé🙂 and on", "hmm"]);
});

test("another variant takes the place of the reply that was shown", () => {
  const shown = message(3, { role: "assistant", variant: { index: 2, count: 2 } });
  const state = after(opened({ messages: [message(1), shown] }), { type: "message.updated", message: { ...shown, content: "the other", variant: { index: 1, count: 2 } } });
  assert.deepEqual(state.messages.map(({ id, content }) => [id, content]), [[1, "text 1"], [3, "the other"]]);
});

const ended = (messages, fields) => endedWell({ ...opened({ messages }), ...fields });
const reply = (id, fields) => message(id, { role: "assistant", ...fields });

test("a turn ended well when its question has a whole reply", () => {
  assert.equal(ended([]), true);
  assert.equal(ended([message(1), reply(2)]), true);
  assert.equal(ended([message(1), reply(2), message(3, { role: "tool", is_ephemeral: 1, turn_id: "u" })]), true);
  for (const status of ["stopped", "interrupted", "streaming"]) assert.equal(ended([message(1), reply(2, { status })]), false, status);
  assert.equal(ended([message(1), reply(2), message(3, { status: "failed" })]), false);
  assert.equal(ended([message(1), reply(2, { is_ephemeral: 1 })]), false, "a thought is no reply");
  assert.equal(ended([message(1), reply(2)], { problem: { code: "tool_failed" } }), false);
});

test("only the last turn's reply can be made anew, and not after a tool by hand", () => {
  const turns = [message(1), reply(2), message(3), reply(4, { is_ephemeral: 1 }), message(5, { role: "tool" }), reply(6)];
  const standing = (messages) => messages.map(({ id }) => standingOf({ messages }, id));
  assert.deepEqual(standing(turns), [null, null, null, null, null, "last"]);
  assert.equal(standing([...turns, message(7, { role: "tool", turn_id: "u" })])[5], "held");
  assert.equal(standingOf({ messages: [] }, 1), null);
});

test("what an edit takes along is counted without receipts", () => {
  const messages = [message(1), message(2, { role: "tool" }), message(3, { role: "tool", card: {} }), reply(4)];
  assert.deepEqual([countAfter({ messages }, 1), countAfter({ messages }, 4)], [2, 0]);
});

test("both numbers are read from what the server says of a window that is too small", () => {
  const ours = "The message needs about 7900 tokens with the prompt and the tools, and the model's window has room for 3072. Shorten it.";
  assert.deepEqual(windowNumbers({ message: ours }), { needed: 7900, window: 3072 });
  assert.equal(windowNumbers({ message: "The messages don't fit the model's window: too long" }), null);
  assert.equal(windowNumbers({}), null);
});
