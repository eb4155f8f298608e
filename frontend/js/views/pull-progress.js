// How far the fetching of a model has come.

import { useApp } from "./context.js";
import { html } from "./html.js";

/** Of the file under way, in whole per cent; null while its size is not known. */
export const percentOf = ({ completed, total }) => (total ? Math.floor((100 * (completed ?? 0)) / total) : null);

export function PullBar({ pull, left = null }) {
  const { t, bytes } = useApp();
  const { name, step, completed, total } = pull;
  const percent = percentOf(pull);
  const figures = percent === null ? step : `${percent} % · ${t("pull.bytes", { done: bytes(completed ?? 0), total: bytes(total) })}`;
  return html`<div class="pull-bar" data-pull=${name} data-status="running">
    <progress value=${percent === null ? undefined : completed / total} aria-label=${t("pull.running", { name })}></progress>
    <p class="muted small"><span>${figures}</span>${left !== null && html` · <span>${left}</span>`}</p>
  </div>`;
}
