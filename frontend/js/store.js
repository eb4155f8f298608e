// The signals that views read, fed by the pure reducers. Deltas reach the views once a frame.

import { signal } from "@preact/signals";
import { emptyChat } from "./state/chat.js";
import { emptyWorkspace, reduceWorkspace } from "./state/workspace.js";
import { closeTab, moveTab, openTab, readTabs } from "./state/tabs.js";

export function createStore({ storage, frame }) {
  const workspace = signal(emptyWorkspace);
  const tabs = signal(readTabs(storage.read("tabs")));
  const unread = signal({});
  const chats = new Map();
  const dirty = new Set();

  function slot(id) {
    if (!chats.has(id)) chats.set(id, { current: emptyChat(id), shown: signal(emptyChat(id)) });
    return chats.get(id);
  }

  function show(held) {
    dirty.delete(held);
    held.shown.value = held.current;
  }

  function showLater(held) {
    if (dirty.size === 0) frame(() => dirty.forEach(show));
    dirty.add(held);
  }

  function changeTabs(next) {
    tabs.value = next;
    storage.write("tabs", next);
    if (next.active) markRead(next.active);
  }

  function markRead(id) {
    if (unread.value[id]) unread.value = { ...unread.value, [id]: 0 };
  }

  return {
    workspace,
    tabs,
    unread,

    /** The signal of one chat's state. */
    chat: (id) => slot(id).shown,
    chatNow: (id) => slot(id).current,

    /** Replace a chat's state by `change(state)`; `later` waits for the next frame. */
    updateChat(id, change, { later = false } = {}) {
      const held = slot(id);
      held.current = change(held.current);
      if (later) showLater(held);
      else show(held);
      return held.current;
    },
    updateWorkspace(event) {
      workspace.value = reduceWorkspace(workspace.value, event);
    },
    openTab: (id) => changeTabs(openTab(tabs.value, id)),
    closeTab(id) {
      chats.delete(id);
      changeTabs(closeTab(tabs.value, id));
    },
    moveTab: (id, step) => changeTabs(moveTab(tabs.value, id, step)),
    readActive: () => markRead(tabs.value.active),
    countUnread(id) {
      unread.value = { ...unread.value, [id]: (unread.value[id] ?? 0) + 1 };
    },
  };
}
