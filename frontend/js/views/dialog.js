// The frame that every dialog stands in.

import { useLayoutEffect, useRef } from "preact/hooks";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { IconButton } from "./icons.js";

/** What makes an element of a `<dialog>` one: open, above everything, closed by a press beside it. */
export function useModal(close) {
  const element = useRef(null);
  // Only a layout effect ends while the element is still there to give the focus back.
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return { ref: element, onClose: close, onClick: (event) => event.target === element.current && close() };
}

export function Dialog({ title, name, close, wide = false, children }) {
  const { t } = useApp();
  return html`<dialog ...${useModal(close)} class=${wide ? "wide" : ""} aria-labelledby="dialog-title" data-dialog=${name}>
    <div class="dialog-body"><header><h2 id="dialog-title">${title}</h2><${IconButton} name="close" label=${t("dialog.close")} onClick=${close} /></header>${children}</div>
  </dialog>`;
}
