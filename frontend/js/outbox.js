// Messages that were sent and not yet acknowledged. Kept for this browser tab, so that a reload loses nothing typed.

import { signal } from "@preact/signals";

export function createOutbox(storage) {
  const entries = signal(storage.read("outbox", []));

  function change(next) {
    entries.value = next;
    storage.write("outbox", next.length ? next : null);
  }

  return {
    entries,
    add: (entry) => change([...entries.value, entry]),
    remove: (clientId) => change(entries.value.filter((entry) => entry.clientId !== clientId)),
    update: (clientId, fields) =>
      change(entries.value.map((entry) => (entry.clientId === clientId ? { ...entry, ...fields } : entry))),
    find: (clientId) => entries.value.find((entry) => entry.clientId === clientId),
  };
}
