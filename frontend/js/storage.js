// The browser's storage under one prefix. Full or forbidden storage loses a convenience, never the page.

const PREFIX = "cleanroom.";

/** The key of ours that an event of the browser's storage is about, or null. */
export const keyOf = ({ key }) => (key?.startsWith(PREFIX) ? key.slice(PREFIX.length) : null);

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
    /** The keys that begin so. */
    keys(beginning) {
      try {
        const all = Array.from({ length: area().length }, (_, index) => keyOf({ key: area().key(index) }));
        return all.filter((key) => key?.startsWith(beginning));
      } catch {
        return [];
      }
    },
    /** Whether it is kept now. */
    write(key, value) {
      try {
        if (value === null || value === "") area().removeItem(PREFIX + key);
        else area().setItem(PREFIX + key, JSON.stringify(value));
        return true;
      } catch (error) {
        if (!(error instanceof DOMException)) throw error;
        return false;
      }
    },
  };
}
