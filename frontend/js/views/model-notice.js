// What the person should know about who answers, and the next step; at most one notice at a time.

import { modelOf } from "../selectors.js";
import { Command } from "./controls.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { Icon, IconButton } from "./icons.js";
import { PullBar, UseModel } from "./pull-progress.js";

const SUGGESTED_MODEL = "qwen3:4b";

export function ModelNotice({ chatId }) {
  const { store, preferences } = useApp();
  const workspace = store.workspace.value;
  const { modelBackend: backend, modelNews: news, models } = workspace;
  const model = modelOf(workspace, workspace.chats[chatId]);
  const ended = Object.values(workspace.pulls).find((pull) => pull.status === "complete" || pull.status === "failed");
  if (!backend) return null;
  if (backend === "none") return html`<${NoServer} address=${workspace.modelServer} />`;
  if (models.length === 0) return html`<${NoModels} pulls=${workspace.pulls} />`;
  if (ended) return html`<${PullEnded} chatId=${chatId} pull=${ended} />`;
  if (model?.missing && backend === "embedded") return html`<${NeedsOllama} chatId=${chatId} name=${model.name} embedded=${models[0].name} />`;
  if (model?.missing) return html`<${MissingModel} name=${model.name} pulls=${workspace.pulls} />`;
  if (news === "came" && backend === "ollama") return html`<${OllamaCame} name=${model.name} />`;
  if (news === "gone" && backend === "embedded") return html`<${OllamaGone} name=${model.name} />`;
  if (backend === "embedded" && !preferences.seenEmbedded.value) return html`<${Embedded} name=${model.name} />`;
  return html`<${NoTools} model=${model} />`;
}

function Notice({ name, title, quiet = false, close, children }) {
  const { t } = useApp();
  return html`<section class=${quiet ? "notice-box quiet" : "notice-box"} data-notice=${name} role="status"><h2>${title}</h2>${children}
    ${close && html`<${IconButton} name="close" class="corner" label=${t("notice.understood")} onClick=${close} />`}</section>`;
}

function NoServer({ address }) {
  const { t } = useApp();
  return html`<${Notice} name="no-model" title=${t(address ? "notice.noServerAt" : "notice.noServer", { address })}><p>${t("notice.startOllama")}</p>
    <${Command} text="ollama serve" /><${CheckAgain} /><${Install} /><//>`;
}

function NoModels({ pulls }) {
  const { t } = useApp();
  return html`<${Notice} name="no-model" title=${t("notice.noModels")}><p>${t("notice.firstModel")}</p><${GetModel} name=${SUGGESTED_MODEL} pulls=${pulls} /><//>`;
}

function MissingModel({ name, pulls }) {
  const { t } = useApp();
  return html`<${Notice} name="missing-model" title=${t("model.missing", { name })}><p>${t("notice.missing")}</p><${GetModel} name=${name} pulls=${pulls} /><//>`;
}

/** Fetch it from here or by a command; while it is on its way, how far it has come. */
function GetModel({ name, pulls }) {
  const { t, ui } = useApp();
  const pull = Object.values(pulls).find(({ status }) => status === "running");
  if (pull) return html`<${PullBar} pull=${pull} />`;
  return html`<button type="button" class="button small primary" data-action="get-model" onClick=${() => ui.openDialog("pull", { name })}><${Icon} name="download" />${t("notice.get", { name })}</button>
    <${Command} text=${`ollama pull ${name}`} /><${CheckAgain} />`;
}

function NeedsOllama({ chatId, name, embedded }) {
  const { t, actions } = useApp();
  return html`<${Notice} name="needs-ollama" title=${t("notice.needsOllama", { name })}><p>${t("notice.startOrEmbedded")}</p>
    <button type="button" class="button small" data-action="use-embedded" onClick=${() => actions.chooseModel(chatId, embedded)}>${t("notice.useEmbedded")}</button><${CheckAgain} /><//>`;
}

function OllamaCame({ name }) {
  const { t, actions } = useApp();
  return html`<${Notice} name="ollama-came" quiet title=${t("notice.cameTitle")} close=${actions.dismissModelNews}><p>${t("notice.cameBody", { name })}</p><//>`;
}

function OllamaGone({ name }) {
  const { t, actions } = useApp();
  return html`<${Notice} name="ollama-gone" title=${t("notice.goneTitle")} close=${actions.dismissModelNews}><p>${t("notice.goneBody", { name })}</p><${CheckAgain} /><//>`;
}

function Embedded({ name }) {
  const { t, preferences } = useApp();
  return html`<${Notice} name="embedded" quiet title=${t("notice.embeddedTitle", { name })} close=${() => (preferences.seenEmbedded.value = true)}><p>${t("notice.embeddedBody")}</p>
    <${Install} /><${Command} text=${`ollama pull ${SUGGESTED_MODEL}`} /><${CheckAgain} /><//>`;
}

/** Where Ollama is had from: text to copy, since the page itself leads nowhere else. */
function Install() {
  const { t } = useApp();
  return html`<p class="muted">${t("notice.install")}</p><${Command} text="https://ollama.com/download" />`;
}

function PullEnded({ chatId, pull }) {
  const { t, actions } = useApp();
  const close = () => actions.dismissPull(pull.name);
  return html`<${Notice} name=${`pull-${pull.status}`} quiet title=${`${pull.name}: ${t(`pull.${pull.status}`)}`} close=${close}>
    ${pull.error && html`<p class="detail" dir="auto">${pull.error.message}</p>`}
    <${UseModel} chatId=${chatId} name=${pull.name} used=${close} /><//>`;
}

function NoTools({ model }) {
  const { t } = useApp();
  const canCall = !model.capabilities || model.capabilities.includes("tools");
  return canCall ? null : html`<p class="model-line" data-notice="no-tools"><${Icon} name="wrench" />${t("notice.noTools", { name: model.name })}</p>`;
}

function CheckAgain() {
  const { t, actions } = useApp();
  return html`<button type="button" class="button small" data-action="refresh-models" onClick=${() => actions.refreshModels()}><${Icon} name="retry" />${t("notice.checkAgain")}</button>`;
}
