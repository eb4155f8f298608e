// Markdown for who reads it. What draws it is the heaviest part of the page and comes after the first paint;
// a message that is there before it stands as it was written.

import { html } from "./html.js";
import { later } from "./later.js";

const VIEW = "./markdown-view.js";
const useView = later(() => import(VIEW));

export function Markdown(props) {
  const view = useView();
  return view ? html`<${view.Markdown} ...${props} />` : html`<div class="typed" dir="auto">${props.text}</div>`;
}
