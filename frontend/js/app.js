// The one place where the page's parts are put together.

import { effect } from "@preact/signals";
import { h, render } from "preact";
import { createActions } from "./actions.js";
import { createClient } from "./client.js";
import { createConnection } from "./connection.js";
import { createDrafts } from "./drafts.js";
import { createI18n } from "./i18n.js";
import { createOutbox } from "./outbox.js";
import { createPreferences } from "./preferences.js";
import { createStorage } from "./storage.js";
import { createStore } from "./store.js";
import { listenToKeys } from "./keys.js";
import { createUi } from "./ui.js";
import { AppContext } from "./views/context.js";
import { Workspace } from "./views/workspace.js";

// A page in the background draws no frames; a timer keeps its state moving.
const nextFrame = (callback) => (document.hidden ? setTimeout(callback, 250) : requestAnimationFrame(callback));

const newId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

const socketUrl = () => `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws`;

function start() {
  const storage = createStorage(() => localStorage);
  const ui = createUi({ isWide: () => matchMedia("(width > 1000px)").matches });
  const preferences = createPreferences(storage, { wide: ui.isWide() });
  const i18n = createI18n(preferences.language, navigator.languages);
  const store = createStore({ storage, frame: nextFrame });
  const outbox = createOutbox(createStorage(() => sessionStorage));
  const drafts = createDrafts(storage);

  const client = createClient({
    transport: (handlers) => createConnection({ url: socketUrl(), ...handlers }),
    onWelcome(frame) {
      if (store.workspace.value.everConnected) ui.announce(i18n.t("connection.found"));
      store.updateWorkspace(frame);
      store.pruneTabs();
      actions.catchUp();
    },
    onEvent(event) {
      if (WORKSPACE_EVENTS.has(event.type)) store.updateWorkspace(event);
      else actions.apply(event);
      if (event.type === "chat.deleted") actions.forgetChat(event.chat_id);
      if (event.type === "turn.finished") tellFinished(event.chat_id);
      if (event.type === "turn.waiting" && event.reason === "approval") tellAsked(event.chat_id);
    },
    onState: (value) => store.updateWorkspace({ type: "connection", value }),
  });
  const actions = createActions({ client, store, outbox, drafts, newId });

  function tellFinished(chatId) {
    if (chatId === store.tabs.value.active) ui.announce(i18n.t("announce.turnFinished"));
    else store.countUnread(chatId);
  }

  function tellAsked(chatId) {
    if (chatId === store.tabs.value.active) ui.announce(i18n.t("turn.approval"));
    else store.countUnread(chatId);
  }

  const app = { store, actions, outbox, drafts, preferences, ui, ...i18n };

  effect(() => {
    document.documentElement.lang = i18n.language.value;
    document.documentElement.dataset.theme = preferences.theme.value;
    document.title = titleOf(store);
  });
  listenToKeys(window, app);
  addEventListener("online", client.retryNow);
  addEventListener("pagehide", drafts.flush);
  render(h(AppContext.Provider, { value: app }, h(Workspace)), document.getElementById("app"));
  client.start();
  actions.resumeOutbox();
}

const WORKSPACE_EVENTS = new Set(["chat.created", "chat.updated", "chat.deleted", "models.updated", "facts.changed"]);

function titleOf({ workspace, tabs }) {
  const title = workspace.value.chats[tabs.value.active]?.title;
  return title ? `${title} · Cleanroom` : "Cleanroom";
}

start();
