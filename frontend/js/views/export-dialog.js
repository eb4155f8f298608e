// All chats as one file, put together in the browser out of single exports.

import { useEffect, useRef, useState } from "preact/hooks";
import { workspaceArchive } from "../archives.js";
import { saveFile } from "../files.js";
import { useApp } from "./context.js";
import { Dialog } from "./dialog.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";

export function ExportAllDialog({ close }) {
  const { t } = useApp();
  const { total, done, failed, finished } = useExport();
  return html`<${Dialog} name="exportAll" title=${t("exportAll.title")} close=${close}>
    <progress value=${total ? done / total : 1} aria-label=${t("exportAll.title")}></progress>
    <div role="status">
      ${finished && html`<p data-exported=${done - failed.length}><${Icon} name="check" /> ${t("exportAll.done", { count: done - failed.length })}</p>`}
      ${failed.length > 0 && html`<p class="danger-text">${t("exportAll.failed", { count: failed.length })} <bdi>${failed.join(", ")}</bdi></p>`}
    </div>
    <div class="actions"><button type="button" class=${finished ? "button primary" : "button"} onClick=${close}>${t(finished ? "dialog.close" : "editor.cancel")}</button></div>
  <//>`;
}

/** Runs from the moment the dialog opens until it closes; temporary chats stay out. */
function useExport() {
  const { t, store, actions } = useApp();
  const chats = useRef(Object.values(store.workspace.peek().chats).filter((chat) => !chat.temporary)).current;
  const [state, setState] = useState({ done: 0, failed: [], finished: false });
  useEffect(() => {
    let open = true;
    run().catch(actions.report);
    return () => (open = false);

    async function run() {
      const contents = [];
      const failed = [];
      for (const chat of chats) {
        try {
          contents.push((await actions.exportChat(chat.id, "json")).content);
        } catch (error) {
          if (!error.code) throw error;
          failed.push(chat.title || t("chat.untitled"));
        }
        if (!open) return;
        setState({ done: contents.length + failed.length, failed, finished: false });
      }
      if (contents.length) saveFile({ filename: `cleanroom-${new Date().toISOString().slice(0, 10)}.json`, content: workspaceArchive(contents) });
      setState({ done: chats.length, failed, finished: true });
    }
  }, []);
  return { ...state, total: chats.length };
}
