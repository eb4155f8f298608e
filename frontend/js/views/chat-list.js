// Every chat: pinned, today's, earlier ones; a filter over titles and a menu for each.

import { useEffect, useRef, useState } from "preact/hooks";
import { groupChats } from "../selectors.js";
import { MenuButton } from "./controls.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { Icon, IconButton } from "./icons.js";
import { PreferenceButtons } from "./preference-buttons.js";

export function ChatList() {
  const { t, store, actions, ui } = useApp();
  const [filter, setFilter] = useState("");
  const field = useRef(null);
  const asked = ui.filterFocus.value;
  useEffect(() => {
    if (asked) field.current.focus();
  }, [asked]);
  const groups = groupChats(store.workspace.value.chats, new Date().setHours(0, 0, 0, 0), filter);
  const none = Object.values(groups).every((group) => group.length === 0);

  return html`<nav class="chat-list" id="chat-list" aria-label=${t("list.label")}>
    <div class="chat-list-head">
      <label class="filter"><${Icon} name="search" /><input type="search" ref=${field} value=${filter} placeholder=${t("list.filter")} aria-label=${t("list.filter")}
        onInput=${(event) => setFilter(event.target.value)} /></label>
      <${IconButton} name="plus" label=${t("chat.new")} onClick=${() => actions.createChat()} />
    </div>
    <div class="chat-list-body">
      ${Object.entries(groups).map(([name, chats]) => chats.length > 0 && html`<section key=${name} aria-labelledby=${`group-${name}`}>
        <h2 id=${`group-${name}`}>${t(`list.${name}`)}</h2>
        <ul>${chats.map((chat) => html`<${ChatRow} key=${chat.id} chat=${chat} />`)}</ul>
      </section>`)}
      ${none && filter && html`<p class="muted small list-none">${t("list.noMatch")}</p>`}
    </div>
    <div class="chat-list-foot"><${PreferenceButtons} /></div>
  </nav>`;
}

function ChatRow({ chat }) {
  const { t, store, actions, ui } = useApp();
  const active = store.tabs.value.active === chat.id;
  const title = chat.title || t("chat.untitled");
  const asks = chat.approval === "before";
  const open = () => {
    actions.openChat(chat.id);
    ui.closeDrawer();
  };
  const items = [
    { label: t(chat.pinned ? "chat.unpin" : "chat.pin"), icon: "pin", act: () => actions.pinChat(chat.id, !chat.pinned) },
    { label: t("chat.rename"), icon: "edit", act: () => ui.openDialog("rename", { chatId: chat.id }) },
    { label: t("chat.askBefore"), toggle: true, checked: asks, act: () => actions.chooseApproval(chat.id, asks ? "after" : "before") },
    { label: t("chat.delete"), icon: "trash", danger: true, act: () => ui.openDialog("delete", { chatId: chat.id }) },
  ];
  return html`<li class="chat-row" data-chat-row=${chat.id}>
    <button type="button" class="chat-name" aria-current=${active ? "true" : undefined} dir="auto" title=${title} onClick=${open}>${title}</button>
    <${MenuButton} icon="more" class="row-menu" label=${t("chat.menu", { title })} items=${items} />
  </li>`;
}
