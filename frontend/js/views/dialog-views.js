// The dialogs by name; of them the list of keys, renaming, and the one question before a chat is deleted.

import { useEffect, useRef } from "preact/hooks";
import { useApp } from "./context.js";
import { keepsComposing } from "./controls.js";
import { Dialog } from "./dialog.js";
import { NoteDialog, VersionsDialog } from "./fact-dialogs.js";
import { html } from "./html.js";

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
        <input id="rename-title" ref=${field} required maxlength="200" autocomplete="off" defaultValue=${store.workspace.value.chats[chatId]?.title ?? ""} onKeyDown=${keepsComposing} /></div>
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

export const DIALOGS = { help: HelpDialog, rename: RenameDialog, delete: DeleteDialog, note: NoteDialog, versions: VersionsDialog };
