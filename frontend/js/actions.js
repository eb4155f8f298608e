// What a person can do, as commands to the server. Views call these and read the store; nothing comes back here.

import { signal } from "@preact/signals";
import { applyOlder, applyOpened, applySent, reduce } from "./state/chat.js";

const PAGE_MESSAGES = 60;

export function createActions({ client, store, outbox, drafts, newId }) {
  const problem = signal(null);
  const opening = new Set();
  const loadingOlder = new Set();

  const report = (error) => {
    if (!error.code) throw error;
    problem.value = error;
  };

  /** Send a command whose failure the person is told; resolves with the reply or null. */
  const tell = (command, options) => client.request(command, options).catch((error) => (report(error), null));

  async function subscribe(chatId) {
    if (opening.has(chatId)) return;
    opening.add(chatId);
    const { loaded, stale, epoch, seq } = store.chatNow(chatId);
    const position = loaded && !stale ? { epoch, after_seq: seq } : {};
    try {
      const reply = await client.request({ type: "chat.open", chat_id: chatId, limit: PAGE_MESSAGES, ...position });
      store.updateChat(chatId, (state) => applyOpened(state, reply));
    } catch (error) {
      if (error.code === "not_found") store.closeTab(chatId);
      else if (error.code !== "disconnected") report(error);
    } finally {
      opening.delete(chatId);
    }
  }

  async function deliver({ chatId, clientId, text }) {
    const command = { type: "message.send", chat_id: chatId, client_id: clientId, text };
    try {
      const { message } = await client.request(command, { durable: true });
      store.updateChat(chatId, (state) => applySent(state, message));
      outbox.remove(clientId);
    } catch (error) {
      if (!error.code) throw error;
      outbox.update(clientId, { state: "failed", error: { code: error.code, message: error.message } });
    }
  }

  const invocation = (chatId, tool, args) => [
    { type: "tool.invoke", chat_id: chatId, client_id: newId(), tool, arguments: args },
    { durable: true },
  ];

  async function loadTools() {
    const reply = await tell({ type: "tool.list" });
    if (reply) store.updateWorkspace({ ...reply, type: "tools" });
  }

  return {
    problem,
    dismissProblem: () => (problem.value = null),
    reconnectNow: client.retryNow,

    /** After each welcome: catch up with every open tab, the one in front first. */
    catchUp() {
      const { open, active } = store.tabs.value;
      for (const id of [active, ...open.filter((id) => id !== active)]) if (id) subscribe(id);
      loadTools();
      if (problem.value?.code === "disconnected") problem.value = null;
    },
    resumeOutbox() {
      outbox.entries.value.filter((entry) => entry.state === "sending").forEach(deliver);
    },
    apply(event) {
      const state = store.updateChat(event.chat_id, (held) => reduce(held, event), { later: event.type === "message.delta" });
      if (state.stale) subscribe(event.chat_id);
    },

    async createChat() {
      const reply = await tell({ type: "chat.create", client_id: newId() }, { durable: true });
      if (!reply) return;
      store.updateWorkspace({ type: "chat.created", chat: reply.chat });
      this.openChat(reply.chat.id);
    },
    openChat(chatId) {
      const known = store.tabs.value.open.includes(chatId);
      store.openTab(chatId);
      if (!known) subscribe(chatId);
    },
    closeTab(chatId) {
      store.closeTab(chatId);
      client.request({ type: "chat.close", chat_id: chatId }).catch(() => {});
    },
    renameChat: (chatId, title) => tell({ type: "chat.rename", chat_id: chatId, title }),
    pinChat: (chatId, pinned) => tell({ type: "chat.update", chat_id: chatId, pinned }),
    chooseModel: (chatId, model) => tell({ type: "chat.update", chat_id: chatId, model }),
    chooseApproval: (chatId, approval) => tell({ type: "chat.update", chat_id: chatId, approval }),
    chooseFamilies: (chatId, familiesOff) => tell({ type: "chat.update", chat_id: chatId, families_off: familiesOff }),
    deleteChat: (chatId) => tell({ type: "chat.delete", chat_id: chatId }),
    forgetChat(chatId) {
      store.closeTab(chatId);
      drafts.forget(chatId);
      outbox.entries.value.filter((entry) => entry.chatId === chatId).forEach((entry) => outbox.remove(entry.clientId));
    },

    async loadOlder(chatId) {
      const { hasMore, messages } = store.chatNow(chatId);
      if (!hasMore || !messages.length || loadingOlder.has(chatId)) return;
      loadingOlder.add(chatId);
      const reply = await tell({ type: "chat.history", chat_id: chatId, before_id: messages[0].id, limit: PAGE_MESSAGES });
      loadingOlder.delete(chatId);
      if (reply) store.updateChat(chatId, (state) => applyOlder(state, reply));
    },

    send(chatId, text) {
      const entry = { chatId, clientId: newId(), text, state: "sending" };
      outbox.add(entry);
      deliver(entry);
    },
    sendAgain(clientId) {
      outbox.update(clientId, { state: "sending", error: null });
      deliver(outbox.find(clientId));
    },
    takeBack(clientId) {
      const entry = outbox.find(clientId);
      outbox.remove(clientId);
      return entry.text;
    },
    stop: (chatId) => tell({ type: "turn.stop", chat_id: chatId }),
    retry: (chatId) => tell({ type: "turn.regenerate", chat_id: chatId }),

    invoke: (chatId, tool, args) => tell(...invocation(chatId, tool, args)),
    /** As `invoke`, for a form that shows by itself what is wrong: rejects with CommandError. */
    submit: (chatId, tool, args) => client.request(...invocation(chatId, tool, args)),
    answerCall: (chatId, callId, answer) => tell({ type: "tool.answer", chat_id: chatId, call_id: callId, answer }),
    answer: (chatId, transactionId, answer) =>
      tell({ type: "transaction.answer", chat_id: chatId, transaction_id: transactionId, answer }),
    keep: (chatId) => tell({ type: "context.keep", chat_id: chatId }),
    clear: (chatId) => tell({ type: "context.clear", chat_id: chatId }),
    undo: (chatId) => tell({ type: "context.undo", chat_id: chatId }),
    inspect: (chatId) => client.request({ type: "context.inspect", chat_id: chatId }),
    facts: (chatId) => client.request({ type: "facts.get", chat_id: chatId }),

    async refreshModels() {
      const reply = await tell({ type: "models.refresh" });
      if (reply) store.updateWorkspace({ ...reply, type: "models" });
    },
  };
}
