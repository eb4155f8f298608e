// The page's dialogs: the list of keys, renaming, and the one question before a chat is deleted.

import { useEffect, useRef } from "preact/hooks";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { IconButton } from "./icons.js";

export function Dialogs() {
  const { ui } = useApp();
  const open = ui.dialog.value;
  const view = { help: HelpDialog, rename: RenameDialog, delete: DeleteDialog }[open?.kind];
  return view && html`<${view} key=${open.kind} chatId=${open.chatId} close=${ui.closeDialog} />`;
}

function Dialog({ title, name, close, children }) {
  const { t } = useApp();
  const element = useRef(null);
  useEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  const onClick = (event) => event.target === element.current && close();
  return html`<dialog ref=${element} aria-labelledby="dialog-title" data-dialog=${name} onClose=${close} onClick=${onClick}>
    <div class="dialog-body"><header><h2 id="dialog-title">${title}</h2><${IconButton} name="close" label=${t("dialog.close")} onClick=${close} /></header>${children}</div>
  </dialog>`;
}

const KEYS = [
  ["Enter", "keys.send"],
  ["Shift + Enter", "keys.newline"],
  ["/", "keys.tools"],
  ["Esc", "keys.stop"],
  ["Alt + N", "keys.newChat"],
  ["Alt + 1…9", "keys.tab"],
  ["Ctrl + K", "keys.filter"],
  ["F2", "keys.rename"],
  ["Delete", "keys.closeTab"],
  ["?", "keys.help"],
];

function HelpDialog({ close }) {
  const { t } = useApp();
  return html`<${Dialog} name="help" title=${t("help.title")} close=${close}>
    <dl class="keys">${KEYS.map(([keys, meaning]) => html`<div key=${keys}><dt><kbd>${keys}</kbd></dt><dd>${t(meaning)}</dd></div>`)}</dl>
  <//>`;
}

function RenameDialog({ chatId, close }) {
  const { t, store, actions } = useApp();
  const field = useRef(null);
  useEffect(() => field.current.select(), []);
  const save = (event) => {
    event.preventDefault();
    const title = field.current.value.trim();
    if (title) actions.renameChat(chatId, title);
    close();
  };
  return html`<${Dialog} name="rename" title=${t("chat.rename")} close=${close}>
    <form onSubmit=${save}>
      <div class="field"><label for="rename-title">${t("rename.label")}</label>
        <input id="rename-title" ref=${field} required maxlength="200" autocomplete="off" defaultValue=${store.workspace.value.chats[chatId]?.title ?? ""}
          onKeyDown=${(event) => event.key === "Enter" && (event.isComposing || event.keyCode === 229) && event.preventDefault()} /></div>
      <div class="actions"><button class="button primary">${t("editor.save")}</button><button type="button" class="button quiet" onClick=${close}>${t("editor.cancel")}</button></div>
    </form>
  <//>`;
}

function DeleteDialog({ chatId, close }) {
  const { t, store, actions } = useApp();
  const title = store.workspace.value.chats[chatId]?.title || t("chat.untitled");
  const remove = () => {
    actions.deleteChat(chatId);
    close();
  };
  return html`<${Dialog} name="delete" title=${t("delete.title")} close=${close}>
    <p><bdi>${t("delete.what", { title })}</bdi></p><p class="muted">${t("delete.stays")}</p>
    <div class="actions"><button type="button" class="button danger" data-action="confirm-delete" onClick=${remove}>${t("delete.confirm")}</button>
      <button type="button" class="button quiet" onClick=${close}>${t("editor.cancel")}</button></div>
  <//>`;
}
