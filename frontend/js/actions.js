// What a person can do, as commands to the server. Views call these and read the store; nothing comes back here.

import { signal } from "@preact/signals";
import { createSending } from "./sending.js";
import { applyOlder, applyOpened, reduce } from "./state/chat.js";

const PAGE_MESSAGES = 60;

// On the way to a message of long ago.
const LONGEST_PAGE_MESSAGES = 500;

const isBefore = (messageId, { messages }) => messages.length > 0 && messageId < messages[0].id;

export function createActions({ client, store, outbox, drafts, ui, newId }) {
  const problem = signal(null);
  const opening = new Map();
  const loadingOlder = new Map();

  const report = (error) => {
    if (!error.code) throw error;
    problem.value = error;
  };

  /** Send a command whose failure the person is told; resolves with the reply or null. */
  const tell = (command, options) => client.request(command, options).catch((error) => (report(error), null));

  /** Run `work()` unless it runs already for this chat; both callers get the one result. */
  function once(running, chatId, work) {
    if (!running.has(chatId)) running.set(chatId, work().finally(() => running.delete(chatId)));
    return running.get(chatId);
  }

  const subscribe = (chatId) => once(opening, chatId, () => open(chatId));

  async function open(chatId) {
    const { loaded, stale, epoch, seq } = store.chatNow(chatId);
    const position = loaded && !stale ? { epoch, after_seq: seq } : {};
    try {
      const reply = await client.request({ type: "chat.open", chat_id: chatId, limit: PAGE_MESSAGES, ...position });
      store.updateChat(chatId, (state) => applyOpened(state, reply));
      sending.goOn(chatId);
    } catch (error) {
      if (error.code === "not_found") store.closeTab(chatId);
      else if (error.code !== "disconnected") report(error);
    }
  }

  /** Whether there may be more still: false at the beginning of the chat, or when nothing came. */
  const loadOlder = (chatId, limit) => once(loadingOlder, chatId, () => fetchOlder(chatId, limit));

  async function fetchOlder(chatId, limit) {
    const { hasMore, messages } = store.chatNow(chatId);
    if (!hasMore || !messages.length) return false;
    const reply = await tell({ type: "chat.history", chat_id: chatId, before_id: messages[0].id, limit });
    if (reply) store.updateChat(chatId, (state) => applyOlder(state, reply));
    return reply?.has_more ?? false;
  }

  async function lastPermanentBefore(chatId, messageId) {
    const find = () => store.chatNow(chatId).messages.findLast(({ id, is_ephemeral }) => id < messageId && is_ephemeral === 0)?.id;
    while (!find() && (await loadOlder(chatId, LONGEST_PAGE_MESSAGES)));
    return find();
  }

  const sending = createSending({ client, store, outbox, newId, tell, catchUp: subscribe });

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
    report,
    dismissProblem: () => (problem.value = null),
    reconnectNow: client.retryNow,

    /** After each welcome: catch up with every open tab, the one in front first. */
    catchUp() {
      const { open, active } = store.tabs.value;
      for (const id of [active, ...open.filter((id) => id !== active)]) if (id) subscribe(id);
      loadTools();
      if (problem.value?.code === "disconnected") problem.value = null;
    },
    resumeOutbox: sending.resume,
    apply(event) {
      const state = store.updateChat(event.chat_id, (held) => reduce(held, event), { later: event.type === "message.delta" });
      if (state.stale) subscribe(event.chat_id);
      else if (event.type === "turn.finished") sending.goOn(event.chat_id);
    },

    /** Have a chat made and bring it to the front; resolves with it or null. */
    async openNew(command) {
      const reply = await tell({ ...command, client_id: newId() }, { durable: true });
      if (!reply) return null;
      store.updateWorkspace({ type: "chat.created", chat: reply.chat });
      this.openChat(reply.chat.id);
      return reply.chat;
    },
    createChat({ temporary = false, model } = {}) {
      return this.openNew({ type: "chat.create", temporary, model });
    },
    openChat(chatId) {
      const known = store.tabs.value.open.includes(chatId);
      store.openTab(chatId);
      if (!known) subscribe(chatId);
    },
    /** A temporary chat goes with its tab. */
    closeTab(chatId) {
      const gone = store.workspace.value.chats[chatId]?.temporary;
      store.closeTab(chatId);
      if (gone) this.deleteChat(chatId);
      else client.request({ type: "chat.close", chat_id: chatId }).catch(() => {});
    },
    keepChat: (chatId) => tell({ type: "chat.update", chat_id: chatId, temporary: false }),
    setParameters: (chatId, parameters) => tell({ type: "chat.update", chat_id: chatId, parameters }),
    fork(chatId, messageId) {
      return this.openNew({ type: "chat.fork", chat_id: chatId, message_id: messageId });
    },
    /** Send a text in place of that message, in a new chat with what stood before it; resolves with whether there is one. */
    async sendInFork(chatId, messageId, text) {
      const before = await lastPermanentBefore(chatId, messageId);
      const chat = await (before ? this.fork(chatId, before) : this.createChat({ model: store.workspace.value.chats[chatId]?.model }));
      if (chat) sending.send(chat.id, text);
      return chat !== null;
    },
    /** Rejects with CommandError, as the search box tells by itself what is wrong. */
    searchChats: (query, limit) => client.request({ type: "chat.search", query, limit }),
    exportChat: (chatId, format) => client.request({ type: "chat.export", chat_id: chatId, format }),
    importChat: (content) => client.request({ type: "chat.import", content }),
    renameChat: (chatId, title) => tell({ type: "chat.rename", chat_id: chatId, title }),
    pinChat: (chatId, pinned) => tell({ type: "chat.update", chat_id: chatId, pinned }),
    chooseModel: (chatId, model) => tell({ type: "chat.update", chat_id: chatId, model }),
    chooseApproval: (chatId, approval) => tell({ type: "chat.update", chat_id: chatId, approval }),
    chooseFamilies: (chatId, familiesOff) => tell({ type: "chat.update", chat_id: chatId, families_off: familiesOff }),
    deleteChat: (chatId) => tell({ type: "chat.delete", chat_id: chatId }),
    /** After a welcome: tabs and drafts of chats that were deleted meanwhile. */
    forgetGone() {
      const { chats } = store.workspace.value;
      store.tabs.value.open.filter((id) => !(id in chats)).forEach((id) => this.forgetChat(id));
      outbox.prune((id) => id in chats);
      drafts.prune((id) => id in chats);
    },
    forgetChat(chatId) {
      if (ui.renaming.value?.chatId === chatId) {
        ui.stopRenaming();
        problem.value = { code: "renamed_gone" };
      }
      store.closeTab(chatId);
      drafts.forgetChat(chatId);
      outbox.forget(chatId);
    },

    loadOlder: (chatId) => loadOlder(chatId, PAGE_MESSAGES),
    /** Bring a chat to the front with a message of any age in view. */
    async showMessage(chatId, messageId) {
      this.openChat(chatId);
      await subscribe(chatId);
      while (isBefore(messageId, store.chatNow(chatId)) && (await loadOlder(chatId, LONGEST_PAGE_MESSAGES)));
      ui.showTarget({ chatId, messageId });
    },

    /** Whether what is sent now has to wait for a turn. */
    isBusy: sending.isBusy,
    send: sending.send,
    release: sending.release,
    sendNow: (clientId) => sending.sendNow(clientId),
    takeBack: sending.takeBack,
    startEditQueued: sending.startEdit,
    endEditQueued: (clientId, fields) => sending.endEdit(clientId, fields),
    editMessage: (messageId, text) => client.request({ type: "message.edit", message_id: messageId, text }),
    hideMessage: (messageId, hidden) => tell({ type: "message.hide", message_id: messageId, hidden }),
    showVariant: (messageId, index) => tell({ type: "message.variant", message_id: messageId, index }),
    stop: sending.stop,
    regenerate: (chatId) => tell({ type: "turn.regenerate", chat_id: chatId }),
    continueReply: (chatId) => tell({ type: "turn.continue", chat_id: chatId }),

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
    sent: (chatId) => client.request({ type: "context.sent", chat_id: chatId }),
    facts: (chatId) => client.request({ type: "facts.get", chat_id: chatId }),

    async refreshModels() {
      const reply = await tell({ type: "models.refresh" });
      if (reply) store.updateWorkspace({ ...reply, type: "models" });
    },
    updateModel: (name, numCtx) => tell({ type: "model.update", name, num_ctx: numCtx }),
    /** Rejects with CommandError, as the dialog tells by itself what is wrong. */
    async pullModel(name) {
      const { pull } = await client.request({ type: "model.pull", name });
      store.updateWorkspace({ type: "model.pull", pull });
    },
    dismissPull: (name) => store.updateWorkspace({ type: "pull.dismissed", name }),
    dismissModelNews: () => store.updateWorkspace({ type: "news.dismissed" }),
    cancelPull: (name) => tell({ type: "model.pull_cancel", name }),
  };
}
