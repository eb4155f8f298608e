// Questions that views ask of the workspace's and a chat's state. Pure functions.

const byUse = (a, b) => (a.updated_at < b.updated_at ? 1 : -1);

/** The model that answers in a chat: its own choice, else the default. */
export function modelOf(state, chat) {
  const name = chat?.model ?? state.defaultModel;
  return state.models.find((model) => isCalled(model, name)) ?? (name ? { name, missing: true } : null);
}

/** A name without a tag means the one that is called latest. */
export const isCalled = (model, name) => model.name === name || model.name === `${name}:latest`;

/** Chats for the list, latest use first, by the names of their groups; `days` are the starts `{today, yesterday, week}` in ms. */
export function groupChats(chats, days, filter = "") {
  const groups = { pinned: [], today: [], yesterday: [], week: [], earlier: [] };
  for (const chat of chatsByTitle(chats, filter)) groups[chat.pinned ? "pinned" : ageOf(Date.parse(chat.updated_at), days)].push(chat);
  return groups;
}

const ageOf = (time, days) => ["today", "yesterday", "week"].find((name) => time >= days[name]) ?? "earlier";

/** Chats whose titles hold every word of `query`, latest use first. */
export function chatsByTitle(chats, query) {
  const words = query.toLocaleLowerCase().split(/\s+/);
  const titled = (chat) => {
    const title = (chat.title ?? "").toLocaleLowerCase();
    return words.every((word) => title.includes(word));
  };
  return Object.values(chats).filter(titled).sort(byUse);
}

/** What the turn waits for. That it is the person, their card says: it stands in a new snapshot too, and knows the answer first. */
export function waitingFor({ turn, live }) {
  const asks = Object.values(live).some(({ message }) => message.card?.approval?.state === "waiting");
  if (asks) return "approval";
  return turn?.waiting === "approval" ? null : turn?.waiting ?? null;
}

/** The model server that writes the reply under way, where a balancer names it. */
export const hostOf = ({ live }) => Object.values(live).map(({ message }) => message.metrics?.host).find(Boolean);

/** How a reply stands to the last turn: `last` is its own, `held` when a tool was used by hand since; null for others. */
export function standingOf({ messages }, id) {
  const asked = messages.findLastIndex((message) => message.role === "user");
  if (asked < 0 || id < messages[asked].id) return null;
  const later = messages.slice(asked + 1);
  if (later.findLast((message) => message.role === "assistant" && message.is_ephemeral === 0)?.id !== id) return null;
  return later.some((message) => message.turn_id !== messages[asked].turn_id) ? "held" : "last";
}

/** How many messages follow one; receipts belong to their replies. */
export const countAfter = ({ messages }, id) => messages.filter((message) => message.id > id && (message.card || message.role !== "tool")).length;

/** The two numbers that an error about the model's window names, as `{needed, window}`; null when it names none. */
export function windowNumbers({ message }) {
  const [needed, window] = (message?.match(/\d+/g) ?? []).map(Number);
  return window ? { needed, window } : null;
}

/**
 * Whether the model sees a piece of working material now: "turn" until its turn ends, "hand" when it is given the thing as it
 * is now. Else why not: "superseded", "soon" (it goes with the next unrelated message) or "temporary".
 */
export function sightOf({ turn, messages, context }, { id, turn_id: turnId, status, card }) {
  if (card?.superseded) return "superseded";
  const asked = messages.findLast((message) => message.role === "user");
  const runs = turn !== null && asked?.turn_id === turnId && (turn.id ?? turnId) === turnId;
  if (runs && status !== "streaming") return "turn";
  if (card?.subject && context?.in_hand.includes(card.subject) && newestOf(messages, card.subject)?.id === id) return "hand";
  return context?.active_tool && context.ttl_messages - context.unrelated_count <= 1 ? "soon" : "temporary";
}

const newestOf = (messages, subject) => messages.findLast((message) => message.card?.subject === subject);
