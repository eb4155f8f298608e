// The browser's storage under one prefix. Full or forbidden storage loses a convenience, never the page.

const PREFIX = "cleanroom.";

/** `area()` returns localStorage or sessionStorage; where storage is forbidden, naming it already throws. */
export function createStorage(area) {
  return {
    read(key, fallback) {
      try {
        const text = area().getItem(PREFIX + key);
        return text === null ? fallback : JSON.parse(text);
      } catch {
        return fallback;
      }
    },
    write(key, value) {
      try {
        if (value === null || value === "") area().removeItem(PREFIX + key);
        else area().setItem(PREFIX + key, JSON.stringify(value));
      } catch (error) {
        if (!(error instanceof DOMException)) throw error;
      }
    },
  };
}
