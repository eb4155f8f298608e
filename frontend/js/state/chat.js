// One chat as its snapshot and events make it: pure functions, no clock, no socket, no DOM.
// The text of a streaming reply grows in `live`, so that a delta leaves `messages` untouched.

import { codePointLength, dropCodePoints } from "../text.js";

export const emptyChat = (id) => ({
  id,
  loaded: false,
  stale: false,
  epoch: null,
  seq: 0,
  messages: [],
  live: {},
  hasMore: false,
  context: null,
  turn: null,
  problem: null,
  cleared: [],
});

/** The state after a reply to `chat.open`. A resumed one changes nothing: the missed events follow. */
export function applyOpened(state, reply) {
  if (reply.resumed) return { ...state, stale: false };
  return {
    ...emptyChat(state.id),
    loaded: true,
    epoch: reply.epoch,
    seq: reply.seq,
    messages: reply.messages,
    live: liveOf(reply.messages),
    hasMore: reply.has_more,
    context: reply.context,
    turn: reply.chat.turn_running ? { id: null, waiting: null } : null,
    cleared: state.cleared,
  };
}

/** The state with an older page of messages before what it holds. */
export function applyOlder(state, reply) {
  const first = state.messages[0]?.id ?? Infinity;
  const older = reply.messages.filter((message) => message.id < first);
  return { ...state, messages: [...older, ...state.messages], hasMore: reply.has_more };
}

/** The state with a message that the server acknowledged before its event came. */
export const applySent = (state, message) => (state.loaded && !holds(state, message.id) ? put(state, message) : state);

/** The state after an event. One seen before changes nothing; a gap makes the state `stale`: open the chat again. */
export function reduce(state, event) {
  if (!state.loaded || state.stale || event.seq <= state.seq) return state;
  if ((event.first_seq ?? event.seq) > state.seq + 1) return { ...state, stale: true };
  const apply = handlers[event.type];
  const next = apply ? apply(state, event) : state;
  return next.stale ? next : { ...next, seq: event.seq };
}

/** Whether the last turn came to its end, so that what waits behind it may follow. */
export function endedWell({ problem, messages }) {
  const asked = messages.findLastIndex((message) => message.role === "user");
  const answered = ({ role, is_ephemeral, status }) => role === "assistant" && is_ephemeral === 0 && status === "complete";
  return !problem && (asked < 0 || messages.slice(asked + 1).some(answered));
}

/** Every message with the text that it has now. */
export const currentMessages = (state) => state.messages.map((message) => state.live[message.id]?.message ?? message);

const handlers = {
  "turn.started": (state, { turn_id }) => ({ ...state, turn: { id: turn_id, waiting: null }, problem: null }),
  "turn.waiting": (state, { turn_id, reason }) => ({ ...state, turn: { id: turn_id, waiting: reason } }),
  "turn.finished": (state, { turn_id, error }) => ({ ...state, turn: null, problem: error ? { turnId: turn_id, ...error } : null }),
  "message.created": (state, { message }) => put(withoutWaiting(state), message),
  "message.completed": (state, { message }) => put(state, message),
  "message.updated": (state, { message }) => (holds(state, message.id) ? put(state, message) : state),
  "message.delta": appendDelta,
  "message.deleted": (state, { message_ids }) => remove(state, message_ids),
  "context.state": (state, { context }) => ({ ...state, context }),
  "context.cleared": addCleared,
  "context.restored": (state, { messages }) => ({
    ...messages.reduce(put, state),
    cleared: state.cleared.filter((line) => line.undoUntil === null || line !== state.cleared.at(-1)),
  }),
  transaction_completed: (state, { transaction_id, tool, summary }) => setPending(state, { transaction_id, tool, summary }),
  "transaction.closed": (state, { transaction_id }) =>
    state.context?.pending_transaction?.transaction_id === transaction_id ? setPending(state, null) : state,
};

const holds = (state, id) => state.messages.some((message) => message.id === id);
const withoutWaiting = (state) => (state.turn?.waiting ? { ...state, turn: { ...state.turn, waiting: null } } : state);
const setPending = (state, pending) => ({ ...state, context: { ...state.context, pending_transaction: pending } });

function put(state, message) {
  const { messages } = state;
  const index = messages.findLastIndex((held) => held.id <= message.id);
  const replaced = messages[index]?.id === message.id ? 1 : 0;
  return {
    ...state,
    messages: messages.toSpliced(replaced ? index : index + 1, replaced, message),
    live: { ...withoutKeys(state.live, [message.id]), ...liveOf([message]) },
  };
}

function remove(state, ids) {
  const gone = new Set(ids);
  return { ...state, messages: state.messages.filter((message) => !gone.has(message.id)), live: withoutKeys(state.live, ids) };
}

function addCleared(state, event) {
  const line = {
    seq: event.seq,
    afterId: state.messages.at(-1)?.id ?? 0,
    reason: event.reason,
    family: event.family,
    messages: event.messages,
    tokens: event.tokens,
    undoUntil: event.undo_until,
  };
  // Only the last clearing can be undone, so earlier lines lose their way back.
  const earlier = state.cleared.map((held) => ({ ...held, undoUntil: null }));
  return { ...remove(state, event.message_ids), cleared: [...earlier, line] };
}

function liveOf(messages) {
  const streaming = messages.filter((message) => message.status === "streaming");
  return Object.fromEntries(streaming.map((message) => [message.id, { message, lengths: lengthsOf(message) }]));
}

const lengthsOf = (message) => ({
  content: codePointLength(message.content ?? ""),
  thinking: codePointLength(message.thinking ?? ""),
});

function appendDelta(state, { message_id, channel, offset, text }) {
  const held = state.live[message_id];
  if (!held) return state;
  const known = held.lengths[channel] - offset;
  if (known < 0) return { ...state, stale: true };
  const fresh = dropCodePoints(text, known);
  const entry = {
    message: { ...held.message, [channel]: (held.message[channel] ?? "") + fresh },
    lengths: { ...held.lengths, [channel]: held.lengths[channel] + codePointLength(fresh) },
  };
  return { ...withoutWaiting(state), live: { ...state.live, [message_id]: entry } };
}

function withoutKeys(object, keys) {
  return Object.fromEntries(Object.entries(object).filter(([key]) => !keys.includes(Number(key))));
}
