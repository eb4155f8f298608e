// The browser's storage under one prefix, and under one more for each named user: people may share a browser. Full or forbidden storage loses a convenience, never the page.

const PREFIX = "cleanroom.";

/** `area()` returns localStorage or sessionStorage; where storage is forbidden, naming it already throws. */
export function createStorage(area, user = "") {
  // No name, written so, has a slash: one user's prefix is never the beginning of another's.
  const prefix = user ? `${PREFIX}@${encodeURIComponent(user)}/` : PREFIX;
  const keyOf = ({ key }) => (key?.startsWith(prefix) ? key.slice(prefix.length) : null);
  return {
    /** The key of this user's that an event of the browser's storage is about, or null. */
    keyOf,
    read(key, fallback) {
      try {
        const text = area().getItem(prefix + key);
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
        if (value === null || value === "") area().removeItem(prefix + key);
        else area().setItem(prefix + key, JSON.stringify(value));
        return true;
      } catch (error) {
        if (!(error instanceof DOMException)) throw error;
        return false;
      }
    },
  };
}
