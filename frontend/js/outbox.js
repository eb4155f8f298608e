// Messages on their way: queued behind a turn, held back, being sent, or refused. They lie in the browser's storage, so that
// neither a reload nor a closed page loses one, and every page of this browser sees them. Two pages may send the same one:
// the server knows it by its client_id.

import { signal } from "@preact/signals";

const KEY = "outbox.";

export function createOutbox(storage) {
  const entries = signal(inOrder(storage.keys(KEY).map((key) => storage.read(key, null))));
  const find = (clientId) => entries.value.find((entry) => entry.clientId === clientId);

  function put(entry) {
    storage.write(KEY + entry.clientId, entry);
    hold(entry.clientId, entry);
    return entry;
  }

  function hold(clientId, entry) {
    entries.value = inOrder([...entries.value.filter((held) => held.clientId !== clientId), entry]);
  }

  function remove(clientId) {
    storage.write(KEY + clientId, null);
    hold(clientId, null);
  }

  const removeAll = (isGone) => entries.value.filter(isGone).forEach((entry) => remove(entry.clientId));

  return {
    entries,
    find,
    of: (chatId) => entries.value.filter((entry) => entry.chatId === chatId),
    /** `entry` is `{chatId, clientId, text, state}` with the state `queued`, `paused`, `sending` or `failed`. */
    add: (entry) => put({ ...entry, place: (entries.value.at(-1)?.place ?? 0) + 1 }),
    /** The entry with these fields, or nothing when another page took it away. */
    update(clientId, fields) {
      const entry = find(clientId);
      return entry && put({ ...entry, ...fields });
    },
    remove,
    forget: (chatId) => removeAll((entry) => entry.chatId === chatId),
    /** A chat that was deleted while no page looked takes its messages along. */
    prune: (exists) => removeAll((entry) => !exists(entry.chatId)),
    /** Another page changed this key of the storage. */
    changedElsewhere(key) {
      if (key?.startsWith(KEY)) hold(key.slice(KEY.length), storage.read(key, null));
    },
  };
}

const inOrder = (entries) => entries.filter((entry) => typeof entry?.text === "string").sort((a, b) => a.place - b.place || (a.clientId < b.clientId ? -1 : 1));
