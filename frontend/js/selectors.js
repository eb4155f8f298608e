// Questions that views ask of the workspace's and a chat's state. Pure functions.

/** The model that answers in a chat: its own choice, else the default. */
export function modelOf(state, chat) {
  const name = chat?.model ?? state.defaultModel;
  return state.models.find((model) => model.name === name) ?? (name ? { name, missing: true } : null);
}

/** Chats for the list, newest first, as `{pinned, today, earlier}`; `dayStart` is a time in ms. */
export function groupChats(chats, dayStart, filter = "") {
  const wanted = filter.trim().toLocaleLowerCase();
  const groups = { pinned: [], today: [], earlier: [] };
  const shown = Object.values(chats).filter((chat) => (chat.title ?? "").toLocaleLowerCase().includes(wanted));
  shown.sort((a, b) => (a.updated_at < b.updated_at ? 1 : -1));
  for (const chat of shown) {
    const group = chat.pinned ? "pinned" : Date.parse(chat.updated_at) >= dayStart ? "today" : "earlier";
    groups[group].push(chat);
  }
  return groups;
}

/** What the turn waits for. That it is the person, their card says: it stands in a new snapshot too, and knows the answer first. */
export function waitingFor({ turn, live }) {
  const asks = Object.values(live).some(({ message }) => message.card?.approval?.state === "waiting");
  if (asks) return "approval";
  return turn?.waiting === "approval" ? null : turn?.waiting ?? null;
}
