// A chat has something for the person: it is read out, counted or told outside of the page, by where they look.

const isAway = () => document.hidden || !document.hasFocus();

export function createAttention({ store, ui, t }) {
  let notifications = null;

  return {
    /** Where notifications come from, once they are loaded. */
    useNotifications: (loaded) => (notifications = loaded),

    /** `key` names the sentence that says what it is. */
    tell(chatId, key) {
      const inFront = chatId === store.tabs.value.active;
      if (inFront) ui.announce(t(key));
      if (!inFront || isAway()) store.countUnread(chatId);
      if (isAway()) notifications?.tell(chatId, store.workspace.value.chats[chatId]?.title || t("chat.untitled"), t(key));
    },
    /** The page got or lost the focus. */
    look() {
      if (isAway()) return;
      notifications?.clear();
      store.readActive();
    },
  };
}

/** Such as "(2) Title · Cleanroom": how many chats have something new, and the one in front. */
export function titleOf({ workspace, tabs, unread }) {
  const waiting = tabs.value.open.filter((id) => unread.value[id]).length;
  const title = workspace.value.chats[tabs.value.active]?.title;
  return `${waiting ? `(${waiting}) ` : ""}${title ? `${title} · ` : ""}Cleanroom`;
}
