// The whole page: bar, chat list, conversation, inspector, and the states that stand for them when there is nothing yet.

import { useComputed } from "@preact/signals";
import { Banner, TtlChip } from "./banner.js";
import { ChatList } from "./chat-list.js";
import { Composer } from "./composer.js";
import { useApp } from "./context.js";
import { Conversation } from "./conversation.js";
import { Dialogs } from "./dialogs.js";
import { html } from "./html.js";
import { Icon, IconButton } from "./icons.js";
import { later } from "./later.js";
import { ErrorText } from "./messages.js";
import { ModelNotice } from "./model-notice.js";
import { ModelPicker } from "./models.js";
import { NotifyOffer, PreferenceButtons } from "./preference-buttons.js";
import { Tabs, tabId } from "./tabs.js";
import { TemporaryLine } from "./temporary.js";

const INSPECTOR = "./inspector.js";
const useInspector = later(() => import(INSPECTOR));

export function Workspace() {
  const { t, store, preferences, ui } = useApp();
  const active = useComputed(() => store.tabs.value.active).value;
  const connection = useComputed(() => store.workspace.value.connection).value;
  const drawer = ui.drawer.value;
  return html`<div class="app" data-connection=${connection} data-drawer=${drawer} data-inspector-open=${preferences.inspector.value}>
    <a class="skip" href="#panel">${t("skip.toTalk")}</a>
    <${Bar} chatId=${active} />
    <${ChatList} />
    <main class="talk" id="panel" tabindex="-1">
      <${ConnectionLine} />
      ${active ? html`<${Talk} key=${active} chatId=${active} />` : html`<${NoChat} />`}
    </main>
    ${(preferences.inspector.value || drawer === "inspector") && html`<${Inspector} chatId=${active} />`}
    ${drawer && html`<button type="button" class="scrim" tabindex="-1" aria-hidden="true" onClick=${ui.closeDrawer}></button>`}
    <${Dialogs} />
    <div class="visually-hidden" role="status" aria-live="polite">${ui.announcement}</div>
  </div>`;
}

/** Its place is kept until it has come. */
function Inspector({ chatId }) {
  const inspector = useInspector();
  return inspector ? html`<${inspector.Inspector} key=${chatId} chatId=${chatId} />` : html`<aside class="inspector" aria-hidden="true"></aside>`;
}

function Bar({ chatId }) {
  const { t, store, actions, ui } = useApp();
  const title = store.workspace.value.chats[chatId]?.title;
  return html`<header class="bar">
    <${IconButton} name="menu" class="list-toggle" label=${t("list.label")} aria-expanded=${ui.drawer.value === "list"} onClick=${() => ui.toggleDrawer("list")} />
    <div class="brand"><img src="/icon.svg" alt="" width="18" height="18" /><h1>Cleanroom</h1></div>
    <div class="bar-title" dir="auto">${title ?? "Cleanroom"}</div>
    <${Tabs} />
    <${IconButton} name="plus" class="new-tab" label=${t("chat.new")} onClick=${() => actions.createChat()} />
    <span class="grow"></span>
    <${IconButton} name="search" label=${t("search.title")} aria-keyshortcuts="Control+K" data-action="search" onClick=${ui.openSearch} />
    <${ModelPicker} chatId=${chatId} />
    <${InspectorButton} />
    <div class="bar-preferences"><${PreferenceButtons} /></div>
  </header>`;
}

// Beside the conversation where there is room, over it where there is not.
function InspectorButton() {
  const { t, preferences, ui } = useApp();
  const open = ui.isWide() ? preferences.inspector.value : ui.drawer.value === "inspector";
  const toggle = () => {
    if (ui.isWide()) preferences.inspector.value = !preferences.inspector.value;
    else ui.toggleDrawer("inspector");
  };
  return html`<${IconButton} name="eye" class="inspector-toggle" label=${t("inspector.title")} aria-expanded=${open} onClick=${toggle} />`;
}

function Talk({ chatId }) {
  return html`<div class="panel" role="tabpanel" aria-labelledby=${tabId(chatId)}>
    <${Conversation} chatId=${chatId} />
    <div class="foot">
      <${Problem} />
      <${NotifyOffer} />
      <${ModelNotice} chatId=${chatId} />
      <${Banner} chatId=${chatId} />
      <${TtlChip} chatId=${chatId} />
      <${TemporaryLine} chatId=${chatId} />
      <${Composer} chatId=${chatId} />
    </div>
  </div>`;
}

function NoChat() {
  const { t, store, actions } = useApp();
  const { chats, everConnected } = store.workspace.value;
  if (!everConnected) return html`<div class="hero"><p class="loading">${t("connection.connecting")}</p></div>`;
  const first = Object.keys(chats).length === 0;
  return html`<div class="hero">
    <img src="/icon.svg" alt="" width="44" height="44" />
    <h2>${t(first ? "empty.firstTitle" : "empty.noTabTitle")}</h2>
    <p>${t(first ? "empty.firstBody" : "empty.noTabBody")}</p>
    <button type="button" class="button primary" data-action="new-chat" onClick=${() => actions.createChat()}><${Icon} name="plus" />${t("chat.new")}</button>
    <div class="foot"><${Problem} /><${ModelNotice} chatId=${null} /></div>
  </div>`;
}

function ConnectionLine() {
  const { t, store, actions } = useApp();
  const { connection, everConnected } = store.workspace.value;
  const lost = connection !== "open" && everConnected;
  return html`<div class="connection" role="status" data-connection-line=${lost ? "lost" : "open"}>
    ${lost && html`<${Icon} name="cloudOff" /><span>${t("connection.lost")}</span>
      <button type="button" class="link" onClick=${actions.reconnectNow}>${t("connection.retry")}</button>`}
  </div>`;
}

function Problem() {
  const { t, actions } = useApp();
  const error = actions.problem.value;
  return html`<div role="status" class="problem-slot">${error && html`<div class="problem" data-problem=${error.code}>
    <${Icon} name="alert" /><${ErrorText} error=${error} /><${IconButton} name="close" label=${t("dialog.close")} onClick=${actions.dismissProblem} />
  </div>`}</div>`;
}
