// Fetching models: by name or from a few that fit most machines, and how far each has come.

import { useEffect, useRef, useState } from "preact/hooks";
import { isCalled } from "../selectors.js";
import { keepsComposing } from "./controls.js";
import { useApp } from "./context.js";
import { Dialog } from "./dialog.js";
import { html } from "./html.js";
import { Icon, IconButton } from "./icons.js";
import { ErrorText } from "./messages.js";
import { PullBar, UseModel } from "./pull-progress.js";

// Small models that call tools, with what their files took when this was written.
const SUGGESTIONS = [
  { name: "qwen3:1.7b", bytes: 1.4e9 },
  { name: "qwen3:4b", bytes: 2.5e9 },
  { name: "llama3.2:3b", bytes: 2.0e9 },
  { name: "qwen3:8b", bytes: 5.2e9 },
];

// A shorter stretch would make the time left jump.
const MEASURED_MS = 3_000;

export function PullDialog({ name, chatId, close }) {
  const { t, store, actions } = useApp();
  const { pulls, models, modelBackend } = store.workspace.value;
  const field = useRef(null);
  const [error, setError] = useState(null);
  const start = (wanted) => {
    setError(null);
    actions.pullModel(wanted).catch((failure) => (failure.code ? setError(failure) : actions.report(failure)));
  };
  useEffect(() => {
    if (name) start(name);
    else field.current?.focus();
  }, []);
  const submit = (event) => {
    event.preventDefault();
    const wanted = field.current.value.trim();
    if (!wanted) return;
    start(wanted);
    field.current.value = "";
  };
  const offered = SUGGESTIONS.filter((one) => !models.some((model) => isCalled(model, one.name)) && pulls[one.name]?.status !== "running");
  return html`<${Dialog} name="pull" title=${t("pull.title")} close=${close}>
    ${modelBackend !== "ollama" && html`<p class="muted">${t("pull.needsOllama")}</p>`}
    <form onSubmit=${submit} class="pull-form">
      <div class="field"><label for="pull-name">${t("pull.name")}</label><input id="pull-name" ref=${field} autocomplete="off" autocapitalize="off" spellcheck="false" placeholder="qwen3:4b"
        aria-describedby="pull-hint" maxlength="300" onKeyDown=${keepsComposing} /></div>
      <button class="button primary" data-action="start-pull">${t("pull.start")}</button>
    </form>
    <p id="pull-hint" class="muted small">${t("pull.hint")}</p>
    <div role="alert">${error && html`<div class="problem"><${Icon} name="alert" /><${ErrorText} error=${error} /></div>`}</div>
    ${offered.length > 0 && html`<${Suggestions} offered=${offered} start=${start} />`}
    <ul class="pulls" aria-label=${t("pull.list")}>${Object.values(pulls).map((pull) => html`<${Pull} key=${pull.name} pull=${pull} chatId=${chatId} again=${() => start(pull.name)} />`)}</ul>
  <//>`;
}

function Suggestions({ offered, start }) {
  const { t, bytes } = useApp();
  return html`<ul class="suggestions" aria-label=${t("pull.suggested")}>${offered.map(({ name, bytes: size }) =>
    html`<li key=${name}><button type="button" class="button small" data-suggestion=${name} onClick=${() => start(name)}><${Icon} name="download" />${name}<small class="muted">${t("pull.about", { size: bytes(size) })}</small></button></li>`)}</ul>`;
}

function Pull({ pull, chatId, again }) {
  const { t, actions } = useApp();
  const left = useTimeLeft(pull);
  const { name, status, error } = pull;
  return html`<li class="pull" data-pull-row=${name} data-status=${status}>
    <strong dir="auto">${name}</strong>
    ${status === "running"
      ? html`<button type="button" class="button small" data-action="cancel-pull" onClick=${() => actions.cancelPull(name)}>${t("editor.cancel")}</button><${PullBar} pull=${pull} left=${left} />`
      : html`<${Ended} pull=${pull} chatId=${chatId} again=${again} />`}
    ${error && html`<div class="danger-text"><${ErrorText} error=${error} /></div>`}
  </li>`;
}

function Ended({ pull, chatId, again }) {
  const { t, actions } = useApp();
  const { name, status } = pull;
  return html`<span class="chip">${t(`pull.${status}`)}</span>
    ${status === "complete"
      ? html`<${UseModel} chatId=${chatId} name=${name} />`
      : html`<button type="button" class="button small" data-action="pull-again" onClick=${again}>${t("message.retry")}</button>`}
    <${IconButton} name="close" label=${`${t("pull.dismiss")}: ${name}`} onClick=${() => actions.dismissPull(name)} />`;
}

/** What is left of the known files at the speed of the last while, in words; null before it can be told. */
function useTimeLeft({ completed, total, status }) {
  const { t } = useApp();
  const samples = useRef([]);
  if (status !== "running" || !total) return null;
  const last = samples.current.at(-1);
  if (last && (completed < last.completed || total !== last.total)) samples.current = [];
  if (completed !== last?.completed) samples.current.push({ at: performance.now(), completed, total });
  while (samples.current.length > 2 && samples.current[1].at < performance.now() - MEASURED_MS) samples.current.shift();
  const [first] = samples.current;
  const now = samples.current.at(-1);
  if (now.at - first.at < MEASURED_MS / 3) return null;
  const seconds = ((total - completed) * (now.at - first.at)) / (1000 * (now.completed - first.completed));
  return seconds < 60 ? t("pull.leftSeconds") : t("pull.left", { count: Math.round(seconds / 60) });
}
