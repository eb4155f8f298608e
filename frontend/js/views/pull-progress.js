// How far the fetching of a model has come, and its first use.

import { isCalled } from "../selectors.js";
import { useApp } from "./context.js";
import { html } from "./html.js";

/** Of the files that are known so far, in whole per cent; null while its size is not known. */
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

/** Has the chat answered by the model that is here now; nothing without a chat, or when the model is gone again. */
export function UseModel({ chatId, name, used = () => {} }) {
  const { t, store, actions } = useApp();
  const { chats, models } = store.workspace.value;
  const model = models.find((one) => isCalled(one, name));
  const use = () => {
    actions.chooseModel(chatId, model.name);
    used();
  };
  return model && chats[chatId] && html`<button type="button" class="button small" data-action="use-model" onClick=${use}>${t("pull.use")}</button>`;
}
