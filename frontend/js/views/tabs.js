// The open chats as tabs. Inside a tab only the mouse can close it; from the keyboard it is the Delete key.

import { useEffect, useRef } from "preact/hooks";
import { useApp, useRunning } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";

export const tabId = (chatId) => `tab-${chatId}`;

export function Tabs() {
  const { t, store, actions, ui } = useApp();
  const { open, active } = store.tabs.value;
  const list = useRef(null);
  useEffect(() => {
    const show = () => list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest", inline: "nearest" });
    const observer = new ResizeObserver(show);
    observer.observe(list.current);
    return () => observer.disconnect();
  }, [active, open.length]);

  const onKeyDown = (event) => {
    const index = open.indexOf(event.target.dataset.chatId);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const keys = {
      Home: () => focusTab(list, open[0]),
      End: () => focusTab(list, open.at(-1)),
      Delete: () => actions.closeTab(open[index]),
      F2: () => ui.openDialog("rename", { chatId: open[index] }),
    };
    const act = step ? () => focusTab(list, open.at((index + step) % open.length)) : keys[event.key];
    if (index < 0 || !act) return;
    event.preventDefault();
    act();
  };
  if (open.length === 0) return html`<div class="tabs" ref=${list}></div>`;
  return html`<div class="tabs" role="tablist" aria-label=${t("tabs.label")} ref=${list} onKeyDown=${onKeyDown}>
    ${open.map((id) => html`<${Tab} key=${id} chatId=${id} active=${id === active} />`)}
  </div>`;
}

function focusTab(list, chatId) {
  list.current.querySelector(`[data-chat-id="${CSS.escape(chatId)}"]`).focus();
}

function Tab({ chatId, active }) {
  const { t, store, actions, ui } = useApp();
  const chat = store.workspace.value.chats[chatId];
  const unread = store.unread.value[chatId] ?? 0;
  const running = useRunning(chatId);
  const title = chat?.title || t("chat.untitled");
  const close = (event) => {
    event.stopPropagation();
    actions.closeTab(chatId);
  };
  return html`<button type="button" role="tab" class="tab" id=${tabId(chatId)} data-chat-id=${chatId} data-running=${running} title=${title}
      aria-selected=${active} aria-controls=${active ? "panel" : undefined} tabindex=${active ? 0 : -1} aria-keyshortcuts="Delete F2"
      onClick=${() => actions.openChat(chatId)} onDblClick=${() => ui.openDialog("rename", { chatId })} onAuxClick=${(event) => event.button === 1 && close(event)}>
    ${running && html`<span class="dot"><span class="visually-hidden">${t("tabs.running")} </span></span>`}
    <span class="tab-title" dir="auto">${title}</span>
    ${unread > 0 && html`<span class="badge">${unread}<span class="visually-hidden"> ${t("tabs.unread")}</span></span>`}
    <span class="tab-close" aria-hidden="true" title=${t("tabs.close")} data-action="close-tab" onClick=${close}><${Icon} name="close" /></span>
  </button>`;
}
