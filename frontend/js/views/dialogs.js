// Which dialog is open. The views themselves come when the first one opens: the first load can do without them.

import { useEffect, useState } from "preact/hooks";
import { useApp } from "./context.js";
import { html } from "./html.js";

const VIEWS = "./dialog-views.js";

export function Dialogs() {
  const { ui, actions } = useApp();
  const open = ui.dialog.value;
  const [views, setViews] = useState(null);
  useEffect(() => {
    if (!open || views) return;
    import(VIEWS).then(({ DIALOGS }) => setViews(DIALOGS)).catch(() => {
      actions.problem.value = { code: "disconnected" };
      ui.closeDialog();
    });
  }, [open]);
  const view = open && views?.[open.kind];
  return view && html`<${view} key=${open.kind} ...${open} close=${ui.closeDialog} />`;
}
