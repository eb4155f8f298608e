// Which of the person's own messages are open for editing. What is typed there is a draft, so that neither an error nor a
// reload loses it.

import { signal } from "@preact/signals";

export function createEdits(drafts) {
  const opened = signal({});
  const set = (id, value) => (opened.value = { ...opened.value, [id]: value });

  return {
    /** The draft's id of a message, stored or on its way. */
    idOf: (message) => `${message.chat_id ?? message.chatId}.${message.id ?? message.clientId}`,
    isOpen: (id) => opened.value[id] ?? drafts.read(id) !== "",
    /** Whether the person opened it just now, and so wants to type there. */
    wasOpened: (id) => opened.peek()[id] === true,
    open(id, text) {
      drafts.keep(id, drafts.read(id) || text);
      set(id, true);
    },
    close(id) {
      drafts.forget(id);
      set(id, false);
    },
  };
}
