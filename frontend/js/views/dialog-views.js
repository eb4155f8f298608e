// The dialogs by name; of them the list of keys, and the one question before a chat goes.

import { useApp } from "./context.js";
import { Dialog } from "./dialog.js";
import { ExportAllDialog } from "./export-dialog.js";
import { NoteDialog, VersionsDialog } from "./fact-dialogs.js";
import { html } from "./html.js";
import { ImportDialog } from "./import-dialog.js";
import { ParametersDialog } from "./parameters.js";
import { PullDialog } from "./pull-dialog.js";
import { SearchPalette } from "./search-palette.js";

const KEYS = [
  ["Enter", "keys.send"],
  ["Shift + Enter", "keys.newline"],
  ["↑", "keys.editLast"],
  ["/", "keys.tools"],
  ["Esc", "keys.stop"],
  ["Alt + N", "keys.newChat"],
  ["Alt + Shift + N", "keys.newTemporary"],
  ["Alt + 1…9", "keys.tab"],
  ["Ctrl + K", "keys.search"],
  ["F2", "keys.rename"],
  ["Ctrl + Shift + PgUp / PgDn", "keys.moveTab"],
  ["Delete", "keys.closeTab"],
  ["?", "keys.help"],
];

function HelpDialog({ close }) {
  const { t } = useApp();
  return html`<${Dialog} name="help" title=${t("help.title")} close=${close}>
    <dl class="keys">${KEYS.map(([keys, meaning]) => html`<div key=${keys}><dt><kbd>${keys}</kbd></dt><dd>${t(meaning)}</dd></div>`)}</dl>
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

/** Before tabs are closed with which temporary chats go. */
function DiscardDialog({ chatIds, count, close }) {
  const { t, actions } = useApp();
  const discard = () => {
    chatIds.forEach((id) => actions.closeTab(id));
    close();
  };
  return html`<${Dialog} name="discard" title=${t("discard.title", { count })} close=${close}>
    <p>${t("discard.what", { count })}</p>
    <div class="actions"><button type="button" class="button danger" data-action="confirm-discard" onClick=${discard}>${t("discard.confirm")}</button>
      ${chatIds.length === 1 && html`<${KeepButton} chatId=${chatIds[0]} close=${close} />`}
      <button type="button" class="button quiet" onClick=${close}>${t("editor.cancel")}</button></div>
  <//>`;
}

function KeepButton({ chatId, close }) {
  const { t, actions } = useApp();
  const keep = () => {
    actions.keepChat(chatId);
    close();
  };
  return html`<button type="button" class="button" onClick=${keep}>${t("temporary.keep")}</button>`;
}

export const DIALOGS = {
  delete: DeleteDialog,
  discard: DiscardDialog,
  exportAll: ExportAllDialog,
  help: HelpDialog,
  import: ImportDialog,
  note: NoteDialog,
  parameters: ParametersDialog,
  pull: PullDialog,
  search: SearchPalette,
  versions: VersionsDialog,
};
