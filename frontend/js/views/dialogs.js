// Which dialog is open. The views themselves come when the first one opens: the first load can do without them.

import { useApp } from "./context.js";
import { html } from "./html.js";
import { later } from "./later.js";

const VIEWS = "./dialog-views.js";
const useViews = later(() => import(VIEWS));

export function Dialogs() {
  const { ui } = useApp();
  const open = ui.dialog.value;
  const views = useViews(open !== null, ui.closeDialog);
  const view = open && views?.DIALOGS[open.kind];
  return view && html`<${view} key=${open.kind} ...${open} close=${ui.closeDialog} />`;
}
