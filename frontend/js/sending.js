// How messages go out: at once, or one after another behind the turns before them. A turn that broke off, or that the
// person stopped, holds back what waits behind it until they say so.

import { applySent, endedWell } from "./state/chat.js";

/** `tell(command)` resolves with the reply or null, `catchUp(chatId)` opens the chat again. */
export function createSending({ client, store, outbox, newId, tell, catchUp }) {
  const stopping = new Map();

  const isRunning = (chatId) => store.chatNow(chatId).turn !== null;
  const isSending = (chatId) => outbox.of(chatId).some((entry) => entry.state === "sending");
  const isBusy = (chatId) => isSending(chatId) || (isRunning(chatId) && !stopping.has(chatId));
  const queued = (chatId) => outbox.of(chatId).filter((entry) => entry.state === "queued");
  const pause = (chatId) => queued(chatId).forEach(({ clientId }) => outbox.update(clientId, { state: "paused" }));

  async function deliver(clientId) {
    const entry = outbox.update(clientId, { state: "sending", error: null });
    if (!entry) return;
    const { chatId, text } = entry;
    if (stopping.has(chatId)) await stopping.get(chatId);
    const command = { type: "message.send", chat_id: chatId, client_id: clientId, text };
    try {
      const { message } = await client.request(command, { durable: true });
      store.updateChat(chatId, (state) => applySent(state, message));
      outbox.remove(clientId);
    } catch (error) {
      if (!error.code) throw error;
      notDelivered(entry, error);
    }
  }

  function notDelivered({ chatId, clientId }, { code, message }) {
    if (code === "turn_running") {
      // Another page was first. Its turn's end is the moment; a page that knows of no turn has missed something.
      outbox.update(clientId, { state: "queued" });
      if (!isRunning(chatId) && store.tabs.value.open.includes(chatId)) catchUp(chatId);
      return;
    }
    outbox.update(clientId, { state: "failed", error: { code, message } });
    pause(chatId);
  }

  return {
    isBusy,

    send(chatId, text) {
      const { clientId } = outbox.add({ chatId, clientId: newId(), text, state: "queued" });
      if (!isBusy(chatId)) deliver(clientId);
    },
    /** Send what waits, was held back or refused: at once, or when the turn that runs is over. */
    release(clientId) {
      const { chatId } = outbox.update(clientId, { state: "queued" });
      if (!isBusy(chatId)) deliver(clientId);
    },
    /** End the turn that runs and send this; what else waits goes on waiting. */
    sendNow(clientId) {
      const { chatId } = outbox.update(clientId, { state: "sending" });
      if (isRunning(chatId)) this.stop(chatId);
      deliver(clientId);
    },
    /** A message that is sent meanwhile waits for the stop. */
    stop(chatId) {
      if (!stopping.has(chatId)) {
        stopping.set(chatId, tell({ type: "turn.stop", chat_id: chatId }).finally(() => stopping.delete(chatId)));
      }
      return stopping.get(chatId);
    },
    /** The text of a message that will not go out after all. */
    takeBack(clientId) {
      const { text } = outbox.find(clientId);
      outbox.remove(clientId);
      return text;
    },
    /** While a message is edited, it and those behind it stay; `fields` are what the editing changed. */
    startEdit: (clientId) => outbox.update(clientId, { editing: true }),
    endEdit(clientId, fields) {
      const entry = outbox.update(clientId, { ...fields, editing: false });
      if (entry) this.goOn(entry.chatId);
    },

    /** After a turn, and after a chat was opened: the first message that waits goes out, if the turn before it ended well. */
    goOn(chatId) {
      const state = store.chatNow(chatId);
      const [first] = queued(chatId);
      if (!first || first.editing || !state.loaded || state.stale || state.turn || isSending(chatId)) return;
      if (stopping.has(chatId) || !endedWell(state)) pause(chatId);
      else deliver(first.clientId);
    },
    /** After a start: what the page before this one was sending. */
    resume: () => outbox.entries.value.filter((entry) => entry.state === "sending").forEach(({ clientId }) => deliver(clientId)),
  };
}
