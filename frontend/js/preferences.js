// What is remembered for this browser: theme, language, open panels, the tool used last, notices that were seen.

import { effect, signal } from "@preact/signals";

export const THEMES = ["auto", "light", "dark"];

const SHARED = ["theme", "language", "notify", "notifyOffer"];

/** Signals that are stored when they change; `wide` says whether there is room for the inspector at first. */
export function createPreferences(storage, { wide, languages }) {
  const readers = {};
  const kept = (key, fallback, allowed) => {
    const read = () => {
      const stored = storage.read(key, fallback);
      return !allowed || allowed.includes(stored) ? stored : fallback;
    };
    const value = signal(read());
    effect(() => storage.write(key, value.value));
    readers[key] = () => (value.value = read());
    return value;
  };
  return {
    theme: kept("theme", "auto", THEMES),
    language: kept("language", "auto", ["auto", ...languages]),
    inspector: kept("inspector", wide, [true, false]),
    lastTool: kept("lastTool", ""),
    seenEmbedded: kept("seenEmbedded", false, [true, false]),
    notify: kept("notify", false, [true, false]),
    notifyOffer: kept("notifyOffer", "later", ["later", "now", "done"]),
    /** Another page stored this key. What is open there need not be open here. */
    changedElsewhere(key) {
      if (SHARED.includes(key)) readers[key]();
    },
  };
}
