// The open chats as tabs. Inside a tab only the mouse can close it; from the keyboard it is the Delete key.

import { useComputed } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { MenuButton } from "./controls.js";
import { useApp, useRunning } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { TitleField } from "./title-field.js";

export const tabId = (chatId) => `tab-${chatId}`;

/** Closes tabs. Temporary chats go with theirs, about which the person is asked when there is something to lose. */
export function useCloseTabs() {
  const { store, actions, ui } = useApp();
  return (chatIds) => {
    const losing = chatIds.filter((id) => store.workspace.value.chats[id]?.temporary && store.chatNow(id).messages.length > 0);
    if (losing.length) ui.openDialog("discard", { chatIds, count: losing.length });
    else chatIds.forEach((id) => actions.closeTab(id));
  };
}

export function Tabs() {
  const { t, store, actions, ui } = useApp();
  const { open, active } = store.tabs.value;
  const list = useRef(null);
  const closeTabs = useCloseTabs();
  useEffect(() => {
    const show = () => list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
    const observer = new ResizeObserver(show);
    observer.observe(list.current);
    return () => observer.disconnect();
  }, [active, open.length]);

  const onKeyDown = (event) => {
    const index = open.indexOf(event.target.dataset.chatId);
    if (index < 0) return;
    const act = (event.ctrlKey && event.shiftKey ? moveKeys : keys)[event.key];
    if (!act) return;
    event.preventDefault();
    act(open[index], index);
  };
  const focus = (chatId) => list.current.querySelector(`[data-chat-id="${CSS.escape(chatId)}"]`).focus();
  const keys = {
    ArrowRight: (_, index) => focus(open[(index + 1) % open.length]),
    ArrowLeft: (_, index) => focus(open.at(index - 1)),
    Home: () => focus(open[0]),
    End: () => focus(open.at(-1)),
    Delete: (chatId) => closeTabs([chatId]),
    F2: (chatId) => ui.startRenaming(chatId, "tab"),
  };
  const moveKeys = {
    PageUp: (chatId) => store.moveTab(chatId, -1),
    PageDown: (chatId) => store.moveTab(chatId, 1),
  };
  const renaming = ui.renaming.value;
  if (open.length === 0) return html`<div class="tabs" ref=${list}></div>`;
  return html`<div class="tabs-frame">
      <div class="tabs" role="tablist" aria-label=${t("tabs.label")} ref=${list} onKeyDown=${onKeyDown}>
        ${open.map((id) => html`<${Tab} key=${id} chatId=${id} active=${id === active} close=${() => closeTabs([id])} />`)}
      </div>
      ${renaming?.place === "tab" && html`<${TabTitle} key=${renaming.chatId} chatId=${renaming.chatId} list=${list} />`}
    </div>
    ${open.length > 1 && html`<${TabMenu} open=${open} active=${active} closeTabs=${closeTabs} />`}`;
}

function Tab({ chatId, active, close }) {
  const { t, store, actions, ui } = useApp();
  const chat = useComputed(() => store.workspace.value.chats[chatId]).value;
  const unread = store.unread.value[chatId] ?? 0;
  const running = useRunning(chatId);
  const title = chat?.title || t("chat.untitled");
  const leave = (event) => {
    event.stopPropagation();
    close();
  };
  return html`<button type="button" role="tab" class=${chat?.temporary ? "tab fleeting" : "tab"} id=${tabId(chatId)} data-chat-id=${chatId} data-running=${running} title=${title}
      aria-selected=${active} aria-controls=${active ? "panel" : undefined} tabindex=${active ? 0 : -1} aria-keyshortcuts="Delete F2"
      onClick=${() => actions.openChat(chatId)} onDblClick=${() => ui.startRenaming(chatId, "tab")} onAuxClick=${(event) => event.button === 1 && leave(event)}>
    ${running && html`<span class="dot"><span class="visually-hidden">${t("tabs.running")} </span></span>`}
    ${chat?.temporary && html`<${TemporaryMark} />`}
    <span class="tab-title" dir="auto">${title}</span>
    ${unread > 0 && html`<span class="badge">${unread}<span class="visually-hidden"> ${t("tabs.unread")}</span></span>`}
    <span class="tab-close" aria-hidden="true" title=${t("tabs.close")} data-action="close-tab" onClick=${leave} onDblClick=${(event) => event.stopPropagation()}><${Icon} name="close" /></span>
  </button>`;
}

/** Says of a chat, to everyone, that it is a temporary one. */
export function TemporaryMark() {
  const { t } = useApp();
  return html`<span class="fleeting-mark" title=${t("temporary.chat")}><${Icon} name="hourglass" /><span class="visually-hidden">${t("temporary.chat")}: </span></span>`;
}

/** The field lies over its tab: inside the list of tabs only tabs may stand. */
function TabTitle({ chatId, list }) {
  const frame = useRef(null);
  const tab = () => document.getElementById(tabId(chatId));
  useLayoutEffect(() => {
    tab().scrollIntoView({ block: "nearest", inline: "nearest" });
    const { left, top, width, height } = tab().getBoundingClientRect();
    const from = list.current.parentElement.getBoundingClientRect();
    Object.assign(frame.current.style, { left: `${left - from.left}px`, top: `${top - from.top}px`, width: `${width}px`, height: `${height}px` });
  }, []);
  return html`<div class="tab-rename" ref=${frame}><${TitleField} chatId=${chatId} home=${tab} /></div>`;
}

function TabMenu({ open, active, closeTabs }) {
  const { t, store, actions } = useApp();
  const { chats } = store.workspace.value;
  const unread = store.unread.value;
  const tabs = open.map((id) => {
    const title = chats[id]?.title || t("chat.untitled");
    return { id, label: unread[id] ? `${title} · ${unread[id]}` : title, checked: id === active, act: () => actions.openChat(id) };
  });
  const items = [
    ...tabs,
    { label: t("tabs.closeOthers"), icon: "close", act: () => closeTabs(open.filter((id) => id !== active)) },
    { label: t("tabs.closeAll"), icon: "close", act: () => closeTabs(open) },
  ];
  return html`<${MenuButton} icon="chevron" class="tab-menu" label=${t("tabs.all")} items=${items} />`;
}
