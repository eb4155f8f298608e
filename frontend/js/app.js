// The one place where the page's parts are put together.

import { effect } from "@preact/signals";
import { h, render } from "preact";
import { createActions } from "./actions.js";
import { createAttention, titleOf } from "./attention.js";
import { createClient } from "./client.js";
import { createConnection } from "./connection.js";
import { createDrafts } from "./drafts.js";
import { createEdits } from "./edits.js";
import { listenToFiles } from "./files.js";
import { createI18n } from "./i18n.js";
import { createOutbox } from "./outbox.js";
import { createPreferences } from "./preferences.js";
import { logInAgain } from "./session.js";
import { createStorage } from "./storage.js";
import { createStore } from "./store.js";
import { listenToKeys } from "./keys.js";
import { createUi } from "./ui.js";
import { AppContext } from "./views/context.js";
import { Workspace } from "./views/workspace.js";

// The first paint does without them.
const FOCUS = "./focus.js";
const MARKDOWN = "./views/markdown-view.js";
const NOTIFICATIONS = "./notifications.js";
const OFFLINE = "./offline.js";

// A page in the background draws no frames; a timer keeps its state moving.
const nextFrame = (callback) => (document.hidden ? setTimeout(callback, 250) : requestAnimationFrame(callback));

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

const socketUrl = () => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;

async function start() {
  const { automatic, user, ...page } = document.documentElement.dataset;
  // How a page looks is the browser's; what somebody wrote and has open is theirs.
  const storage = createStorage(() => localStorage);
  const personal = createStorage(() => localStorage, user);
  const ui = createUi({ isWide: () => matchMedia("(width > 1000px)").matches });
  const languages = page.languages.split(" ");
  const preferences = createPreferences(storage, { wide: ui.isWide(), languages });
  const i18n = await createI18n({
    choice: preferences.language,
    automatic,
    preferred: navigator.languages,
    onTrouble: () => (actions.problem.value = { code: "disconnected" }),
  });
  const store = createStore({ storage: personal, frame: nextFrame });
  const outbox = createOutbox(personal);
  const drafts = createDrafts(personal);
  const edits = createEdits(drafts);

  const client = createClient({
    transport: (handlers) => createConnection({ url: socketUrl(), ...handlers }),
    onWelcome(frame) {
      // Somebody else is logged in at the proxy now: nothing of this page may go out in their name.
      if ((frame.settings.user ?? "") !== user) {
        location.reload();
        return false;
      }
      if (store.workspace.value.everConnected) ui.announce(i18n.t("connection.found"));
      store.updateWorkspace(frame);
      actions.forgetGone();
      actions.catchUp();
      return true;
    },
    onEvent(event) {
      if (WORKSPACE_EVENTS.has(event.type)) store.updateWorkspace(event);
      else actions.apply(event);
      if (event.type === "chat.deleted") actions.forgetChat(event.chat_id);
      if (event.type === "turn.finished") attention.tell(event.chat_id, event.error ? "announce.turnFailed" : "announce.turnFinished");
      if (event.type === "turn.waiting" && event.reason === "approval") attention.tell(event.chat_id, "turn.approval");
    },
    onState(value) {
      store.updateWorkspace({ type: "connection", value });
      if (value === "lost" && store.workspace.value.settings.login) logInAgain({ fetch, go: (path) => location.assign(path) });
    },
  });
  const attention = createAttention({ store, ui, t: i18n.t });
  const actions = createActions({ client, store, outbox, drafts, ui, newId });

  // Browsers allow notifications on https and on this machine only.
  const canNotify = isSecureContext && "Notification" in window;
  const app = { store, actions, outbox, drafts, edits, preferences, languages, canNotify, ui, ...i18n };

  effect(() => {
    document.documentElement.lang = i18n.language.value;
    document.documentElement.dataset.theme = preferences.theme.value;
    document.title = titleOf(store);
  });
  listenToKeys(window, app);
  listenToFiles(window, app);
  addEventListener("online", client.retryNow);
  addEventListener("pagehide", drafts.flush);
  addEventListener("beforeunload", (event) => {
    drafts.flush();
    if (drafts.unsaved.value.length) event.preventDefault();
  });
  addEventListener("focus", attention.look);
  document.addEventListener("visibilitychange", attention.look);
  addEventListener("storage", (event) => {
    outbox.changedElsewhere(personal.keyOf(event));
    preferences.changedElsewhere(storage.keyOf(event));
  });
  render(h(AppContext.Provider, { value: app }, h(Workspace)), document.getElementById("app"));
  client.start();
  actions.resumeOutbox();
  loadTheRest(app, attention);
}

function loadTheRest({ preferences, language, actions, canNotify }, attention) {
  const withoutIt = () => {};
  // The first message will want it.
  import(MARKDOWN).catch(withoutIt);
  import(FOCUS).then(({ keepFocus }) => keepFocus(document), withoutIt);
  // A browser that keeps nothing for sites refuses; then it shows its own page when the server is gone.
  import(OFFLINE).then(({ keepOfflinePage }) => keepOfflinePage(navigator.serviceWorker, language)).catch(withoutIt);
  if (!canNotify) return;
  const onRefused = () => (actions.problem.value = { code: "notifications_denied" });
  const openChat = (chatId) => actions.openChat(chatId);
  import(NOTIFICATIONS).then(({ createNotifications }) => attention.useNotifications(createNotifications({ preferences, onRefused, openChat })), withoutIt);
}

const WORKSPACE_EVENTS = new Set(["chat.created", "chat.updated", "chat.deleted", "models.updated", "model.pull", "facts.changed"]);

start();
