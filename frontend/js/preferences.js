// What is remembered for this browser: theme, language, open panels, the tool used last, notices that were seen.

import { effect, signal } from "@preact/signals";

export const THEMES = ["auto", "light", "dark"];
export const LANGUAGES = ["auto", "ru", "en"];

/** Signals that are stored when they change; `wide` says whether there is room for the inspector at first. */
export function createPreferences(storage, { wide }) {
  const kept = (key, fallback, allowed) => {
    const stored = storage.read(key, fallback);
    const value = signal(!allowed || allowed.includes(stored) ? stored : fallback);
    effect(() => storage.write(key, value.value));
    return value;
  };
  return {
    theme: kept("theme", "auto", THEMES),
    language: kept("language", "auto", LANGUAGES),
    inspector: kept("inspector", wide, [true, false]),
    lastTool: kept("lastTool", ""),
    seenEmbedded: kept("seenEmbedded", false, [true, false]),
  };
}
