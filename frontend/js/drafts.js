// What was typed and not sent, one text for each chat, kept across reloads.

import { signal } from "@preact/signals";

// Long enough not to write storage at every key, short enough to lose no sentence.
const WRITE_AFTER_MS = 300;

export function createDrafts(storage) {
  const replaced = signal(null);
  const timers = new Map();
  const texts = new Map();
  const keyOf = (chatId) => `draft.${chatId}`;

  function keep(chatId, text) {
    texts.set(chatId, text);
    clearTimeout(timers.get(chatId));
    timers.set(chatId, setTimeout(() => storage.write(keyOf(chatId), text), WRITE_AFTER_MS));
  }

  function read(chatId) {
    if (!texts.has(chatId)) texts.set(chatId, storage.read(keyOf(chatId), ""));
    return texts.get(chatId);
  }

  /** Write at once what would be written in a moment. */
  function flush() {
    for (const [chatId, timer] of timers) {
      clearTimeout(timer);
      storage.write(keyOf(chatId), texts.get(chatId));
    }
    timers.clear();
  }

  function forget(chatId) {
    clearTimeout(timers.get(chatId));
    timers.delete(chatId);
    texts.delete(chatId);
    storage.write(keyOf(chatId), null);
  }

  return {
    read,
    keep,
    flush,
    forget,
    /** The last text that something other than typing put in front, as `{chatId, text}`. */
    replaced,
    putBack(chatId, text) {
      const whole = [text, read(chatId)].filter(Boolean).join("\n");
      keep(chatId, whole);
      replaced.value = { chatId, text: whole };
    },
  };
}
