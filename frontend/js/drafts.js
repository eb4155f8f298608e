// What was typed and not sent, one text for each chat and for each message under edit, kept across reloads.

import { signal } from "@preact/signals";

// Long enough not to write storage at every key, short enough that a tab which crashes loses no sentence.
const WRITE_AFTER_MS = 300;

export function createDrafts(storage) {
  const replaced = signal(null);
  const timers = new Map();
  const texts = new Map();
  const unsaved = signal([]);
  const keyOf = (chatId) => `draft.${chatId}`;

  function keep(chatId, text) {
    texts.set(chatId, text);
    if (!timers.has(chatId)) timers.set(chatId, setTimeout(() => write(chatId), WRITE_AFTER_MS));
  }

  function write(chatId) {
    clearTimeout(timers.get(chatId));
    timers.delete(chatId);
    const saved = storage.write(keyOf(chatId), texts.get(chatId)) || texts.get(chatId) === "";
    if (saved === unsaved.value.includes(chatId)) unsaved.value = saved ? unsaved.value.filter((id) => id !== chatId) : [...unsaved.value, chatId];
  }

  function read(chatId) {
    if (!texts.has(chatId)) texts.set(chatId, storage.read(keyOf(chatId), ""));
    return texts.get(chatId);
  }

  /** Write at once what would be written in a moment. */
  const flush = () => [...timers.keys()].forEach(write);

  function forget(id) {
    clearTimeout(timers.get(id));
    timers.delete(id);
    texts.delete(id);
    unsaved.value = unsaved.value.filter((held) => held !== id);
    storage.write(keyOf(id), null);
  }

  /** With a chat's draft, those of its messages go too. */
  function forgetAll(isGone) {
    const stored = storage.keys(keyOf("")).map((key) => key.slice(keyOf("").length));
    new Set([...texts.keys(), ...stored].filter((id) => isGone(id.split(".")[0]))).forEach(forget);
  }

  return {
    read,
    keep,
    flush,
    forget,
    forgetChat: (chatId) => forgetAll((id) => id === chatId),
    /** A chat that was deleted while no page looked takes its texts along. */
    prune: (exists) => forgetAll((id) => !exists(id)),
    /** The ids of texts that the browser would not store: forbidden, or too much. */
    unsaved,
    /** The last text that something other than typing put in front, as `{chatId, text}`. */
    replaced,
    putBack(chatId, text) {
      const whole = [text, read(chatId)].filter(Boolean).join("\n");
      keep(chatId, whole);
      replaced.value = { chatId, text: whole };
    },
  };
}
