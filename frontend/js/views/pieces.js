// Text as it is. Long text stands in pieces, of which the browser lays out those near the view.

import { headOf, piecesOf } from "../pieces.js";
import { Fold } from "./controls.js";
import { html } from "./html.js";

export function Pieces({ text }) {
  const pieces = piecesOf(text);
  if (pieces.length === 1) return text;
  return pieces.map((piece, i) => html`<span class="piece" key=${i}>${piece}</span>`);
}

/** What a person typed: its beginning, and the rest when it is unfolded, since a megabyte takes seconds to lay out. */
export function Typed({ text }) {
  const shown = (open) => html`<div class="typed" dir="auto" data-text><${Pieces} text=${open ? text : headOf(text)} /></div>`;
  return html`<${Fold} class="typed-fold">${shown}<//>`;
}
