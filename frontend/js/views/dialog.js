// The frame that every dialog stands in.

import { useEffect, useRef } from "preact/hooks";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { IconButton } from "./icons.js";

export function Dialog({ title, name, close, wide = false, children }) {
  const { t } = useApp();
  const element = useRef(null);
  useEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  const onClick = (event) => event.target === element.current && close();
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-labelledby="dialog-title" data-dialog=${name} onClose=${close} onClick=${onClick}>
    <div class="dialog-body"><header><h2 id="dialog-title">${title}</h2><${IconButton} name="close" label=${t("dialog.close")} onClick=${close} /></header>${children}</div>
  </dialog>`;
}
