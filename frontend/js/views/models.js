// Which model answers in this chat, and what to do when none does.

import { modelOf } from "../selectors.js";
import { Command } from "./controls.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { Icon, IconButton } from "./icons.js";

const SUGGESTED_MODEL = "qwen3:4b";

export function ModelPicker({ chatId }) {
  const { t, store, actions } = useApp();
  const workspace = store.workspace.value;
  const chat = workspace.chats[chatId];
  const model = modelOf(workspace, chat);
  if (!model) return html`<span class="model none" data-backend="none">${t("model.none")}</span>`;
  return html`<label class="model" data-backend=${workspace.modelBackend}>
    <span class="visually-hidden">${t("model.label")}</span>
    <${Icon} name="chip" />
    <select value=${model.name} disabled=${!chat} onChange=${(event) => actions.chooseModel(chatId, event.target.value)}>
      <optgroup label=${t(`backend.${workspace.modelBackend}`)}>
        ${model.missing && html`<option value=${model.name}>${t("model.missing", { name: model.name })}</option>`}
        ${workspace.models.map((one) => html`<option key=${one.name} value=${one.name}>${describe(one)}</option>`)}
      </optgroup>
    </select>
  </label>`;
}

function describe({ name, parameter_size: size, context_length: context }) {
  const shown = [name, size && !name.toLowerCase().includes(size.toLowerCase()) ? size : null, context ? `${Math.round(context / 1024)}k` : null];
  return shown.filter(Boolean).join(" · ");
}

/** What the person should know about who answers; at most one notice at a time. */
export function ModelNotice({ chatId }) {
  const { t, store, preferences } = useApp();
  const workspace = store.workspace.value;
  if (!workspace.modelBackend) return null;
  const model = modelOf(workspace, workspace.chats[chatId]);
  if (!model) return html`<${NoModel} workspace=${workspace} />`;
  if (model.missing) return html`<${MissingModel} name=${model.name} />`;
  if (workspace.modelBackend === "embedded" && !preferences.seenEmbedded.value) {
    return html`<${Embedded} close=${() => (preferences.seenEmbedded.value = true)} />`;
  }
  const canCall = !model.capabilities || model.capabilities.includes("tools");
  return canCall ? null : html`<p class="model-line" data-notice="no-tools"><${Icon} name="wrench" />${t("notice.noTools", { name: model.name })}</p>`;
}

function NoModel({ workspace }) {
  const { t } = useApp();
  const { modelBackend, modelServer } = workspace;
  const title = modelBackend === "none" ? t(modelServer ? "notice.noServerAt" : "notice.noServer", { address: modelServer }) : t("notice.noModels");
  return html`<section class="notice-box" data-notice="no-model"><h2>${title}</h2><p>${t("notice.getModel")}</p>
    <${Command} text=${`ollama pull ${SUGGESTED_MODEL}`} /><${CheckAgain} /></section>`;
}

function MissingModel({ name }) {
  const { t } = useApp();
  return html`<section class="notice-box" data-notice="missing-model"><h2>${t("model.missing", { name })}</h2><p>${t("notice.missing")}</p>
    <${Command} text=${`ollama pull ${name}`} /><${CheckAgain} /></section>`;
}

function CheckAgain() {
  const { t, actions } = useApp();
  return html`<button type="button" class="button small" data-action="refresh-models" onClick=${() => actions.refreshModels()}><${Icon} name="retry" />${t("notice.checkAgain")}</button>`;
}

function Embedded({ close }) {
  const { t } = useApp();
  return html`<section class="notice-box quiet" data-notice="embedded"><h2>${t("notice.embeddedTitle")}</h2><p>${t("notice.embeddedBody")}</p>
    <${Command} text=${`ollama pull ${SUGGESTED_MODEL}`} /><${CheckAgain} /><${IconButton} name="close" class="corner" label=${t("notice.understood")} onClick=${close} /></section>`;
}
