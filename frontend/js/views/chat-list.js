// Every chat by the time of its last use, the pinned ones first; a filter over titles and a menu for each.

import { useComputed } from "@preact/signals";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { saveFile } from "../files.js";
import { groupChats } from "../selectors.js";
import { MenuButton } from "./controls.js";
import { useApp, useRunning } from "./context.js";
import { html, memo } from "./html.js";
import { Icon, IconButton } from "./icons.js";
import { PreferenceButtons } from "./preference-buttons.js";
import { TemporaryMark, useCloseTabs } from "./tabs.js";
import { TitleField } from "./title-field.js";

export function ChatList() {
  const { t, store, actions } = useApp();
  const [filter, setFilter] = useState("");
  const chats = useComputed(() => store.workspace.value.chats).value;
  const groups = groupChats(chats, dayStarts(), filter);
  const none = Object.values(groups).every((group) => group.length === 0);

  return html`<nav class="chat-list" id="chat-list" aria-label=${t("list.label")}>
    <div class="chat-list-head">
      <label class="filter"><${Icon} name="filter" /><input type="search" value=${filter} placeholder=${t("list.filterHint")} aria-label=${t("list.filter")}
        onInput=${(event) => setFilter(event.target.value)} /></label>
      <${IconButton} name="plus" label=${t("chat.new")} onClick=${() => actions.createChat()} />
      <${WorkspaceMenu} />
    </div>
    <div class="chat-list-body">
      <${OpenChats} />
      ${Object.entries(groups).map(([name, group]) => group.length > 0 && html`<section key=${name} aria-labelledby=${`group-${name}`}>
        <h2 id=${`group-${name}`}>${t(`list.${name}`)}</h2>
        <ul>${group.map((chat) => html`<${ChatRow} key=${chat.id} chat=${chat} />`)}</ul>
      </section>`)}
      ${none && filter && html`<p class="muted small list-none">${t("list.noMatch")}</p>`}
    </div>
    <div class="chat-list-foot"><${PreferenceButtons} /></div>
  </nav>`;
}

function dayStarts() {
  const ago = (days) => new Date(new Date().setDate(new Date().getDate() - days)).setHours(0, 0, 0, 0);
  return { today: ago(0), yesterday: ago(1), week: ago(7) };
}

function WorkspaceMenu() {
  const { t, actions, ui } = useApp();
  const items = [
    { label: t("temporary.new"), icon: "hourglass", act: () => actions.createChat({ temporary: true }) },
    { label: t("import.open"), icon: "upload", act: () => ui.openDialog("import") },
    { label: t("exportAll.open"), icon: "download", act: () => ui.openDialog("exportAll") },
  ];
  return html`<${MenuButton} icon="chevron" class="list-menu" label=${t("list.more")} items=${items} />`;
}

/** On a phone, where there are no tabs: what is open, with what the tabs would say. */
function OpenChats() {
  const { t, store } = useApp();
  const { open } = store.tabs.value;
  return open.length > 0 && html`<section class="open-chats" aria-labelledby="group-open">
    <h2 id="group-open">${t("tabs.label")}</h2>
    <ul>${open.map((id) => html`<${OpenRow} key=${id} chatId=${id} />`)}</ul>
  </section>`;
}

function OpenRow({ chatId }) {
  const { t, store, actions, ui } = useApp();
  const closeTabs = useCloseTabs();
  const chat = useComputed(() => store.workspace.value.chats[chatId]).value;
  const running = useRunning(chatId);
  const unread = store.unread.value[chatId] ?? 0;
  const title = chat?.title || t("chat.untitled");
  const open = () => {
    actions.openChat(chatId);
    ui.closeDrawer();
  };
  return html`<li class="chat-row">
    <button type="button" class="chat-name" aria-current=${store.tabs.value.active === chatId ? "true" : undefined} onClick=${open}>
      ${running && html`<span class="dot"><span class="visually-hidden">${t("tabs.running")} </span></span>`}
      ${chat?.temporary && html`<${TemporaryMark} />`}<span class="chat-title" dir="auto">${title}</span>
      ${unread > 0 && html`<span class="badge">${unread}<span class="visually-hidden"> ${t("tabs.unread")}</span></span>`}
    </button>
    <${IconButton} name="close" class="row-menu" label=${`${t("tabs.close")}: ${title}`} onClick=${() => closeTabs([chatId])} />
  </li>`;
}

const ChatRow = memo(({ chat }) => {
  const { t, store, actions, ui } = useApp();
  const row = useRef(null);
  const active = useComputed(() => store.tabs.value.active === chat.id).value;
  const renaming = useComputed(() => ui.renaming.value?.place === "list" && ui.renaming.value.chatId === chat.id).value;
  useFocusNeighbour(row);
  const title = chat.title || t("chat.untitled");
  const open = () => {
    actions.openChat(chat.id);
    ui.closeDrawer();
  };
  const rename = () => ui.startRenaming(chat.id, "list");
  const onKeyDown = (event) => {
    if (event.key !== "F2") return;
    event.preventDefault();
    rename();
  };
  return html`<li class=${chat.temporary ? "chat-row fleeting" : "chat-row"} data-chat-row=${chat.id} ref=${row} onKeyDown=${onKeyDown}>
    <button type="button" class="chat-name" aria-current=${active ? "true" : undefined} title=${title} aria-keyshortcuts="F2" onClick=${open} onDblClick=${rename}>
      ${chat.temporary && html`<${TemporaryMark} />`}<span class="chat-title" dir="auto">${title}</span></button>
    <${MenuButton} icon="more" class="row-menu" label=${t("chat.menu", { title })} items=${rowItems(chat, rename, { t, actions, ui })} />
    ${renaming && html`<${TitleField} chatId=${chat.id} home=${() => row.current?.querySelector(".chat-name")} />`}
  </li>`;
});

function rowItems(chat, rename, { t, actions, ui }) {
  const asks = chat.approval === "before";
  const save = (format) => actions.exportChat(chat.id, format).then(saveFile).catch(actions.report);
  return [
    { label: t(chat.pinned ? "chat.unpin" : "chat.pin"), icon: "pin", act: () => actions.pinChat(chat.id, !chat.pinned) },
    { label: t("chat.rename"), icon: "edit", act: rename },
    chat.temporary && { label: t("temporary.keep"), icon: "check", act: () => actions.keepChat(chat.id) },
    { label: t("chat.exportJson"), icon: "download", act: () => save("json") },
    { label: t("chat.exportMarkdown"), icon: "download", act: () => save("markdown") },
    { label: t("chat.askBefore"), toggle: true, checked: asks, act: () => actions.chooseApproval(chat.id, asks ? "after" : "before") },
    { label: t("chat.delete"), icon: "trash", danger: true, act: () => ui.openDialog("delete", { chatId: chat.id }) },
  ].filter(Boolean);
}

/** When a row leaves with the focus in it, the focus goes to the row beside it, or to where a chat is begun. */
function useFocusNeighbour(row) {
  useLayoutEffect(() => {
    const element = row.current;
    return () => {
      if (!element.contains(document.activeElement)) return;
      const body = element.closest(".chat-list");
      const rows = [...body.querySelectorAll("[data-chat-row]")];
      const place = rows.indexOf(element);
      const neighbour = rows[place + 1] ?? rows[place - 1];
      (neighbour?.querySelector(".chat-name") ?? body.querySelector(".chat-list-head > button"))?.focus();
    };
  }, []);
}
