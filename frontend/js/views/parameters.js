// How a chat's model is asked, and the window that the model has in all chats.

import { useRef, useState } from "preact/hooks";
import { inThousands, windowsOf } from "../model-window.js";
import { modelOf } from "../selectors.js";
import { useApp } from "./context.js";
import { Dialog } from "./dialog.js";
import { html } from "./html.js";

const THINK = ["off", "on", "low", "medium", "high"];
const KEEP_ALIVE = ["0", "5m", "30m", "2h", "-1"];

// Where the slider stands when a temperature is first set: what most models have by themselves.
const COMMON_TEMPERATURE = 0.8;

export function ParametersDialog({ chatId, close }) {
  const { t, store, actions } = useApp();
  const workspace = store.workspace.value;
  const chat = workspace.chats[chatId];
  const model = modelOf(workspace, chat);
  const [parameters, setParameters] = useState(chat?.parameters ?? {});
  const [window, setWindow] = useState(undefined);
  if (!chat || !model) return html`<${Dialog} name="parameters" title=${t("parameters.title")} close=${close}><p>${t("error.not_found")}</p><//>`;
  const put = (name, value) => setParameters(({ [name]: _, ...others }) => (value === undefined ? others : { ...others, [name]: value }));
  const save = (event) => {
    event.preventDefault();
    if (JSON.stringify(parameters) !== JSON.stringify(chat.parameters)) actions.setParameters(chatId, parameters);
    if (window !== undefined) actions.updateModel(model.name, window);
    close();
  };
  const reset = () => {
    setParameters({});
    setWindow(null);
  };
  const thinks = model.capabilities?.includes("thinking");
  return html`<${Dialog} name="parameters" title=${t("parameters.title")} close=${close}>
    <form onSubmit=${save} class="parameters">
      <fieldset><legend>${t("parameters.ofChat")}</legend>
        <${Temperature} value=${parameters.temperature} put=${put} />
        ${thinks && html`<${Choice} name="think" values=${THINK} value=${parameters.think} put=${put} />`}
        <${Choice} name="keep_alive" values=${KEEP_ALIVE} value=${parameters.keep_alive} put=${put} />
      </fieldset>
      ${!model.missing && workspace.modelBackend === "ollama" && html`<${Window} model=${model} value=${window} choose=${setWindow} />`}
      <div class="actions"><button class="button primary" data-action="save-parameters">${t("editor.save")}</button>
        <button type="button" class="button quiet" onClick=${close}>${t("editor.cancel")}</button>
        <button type="button" class="button quiet" data-action="reset-parameters" onClick=${reset}>${t("parameters.reset")}</button></div>
    </form>
  <//>`;
}

function Temperature({ value, put }) {
  const { t } = useApp();
  const own = value !== undefined;
  const change = ({ target }) => target.validity.valid && target.value !== "" && put("temperature", target.valueAsNumber);
  return html`<div class="field" data-parameter="temperature"><span class="field-name" id="temperature-name">${t("parameters.temperature")}</span>
    <label class="check"><input type="checkbox" checked=${!own} onChange=${({ target }) => put("temperature", target.checked ? undefined : COMMON_TEMPERATURE)} />${t("parameters.default")}</label>
    ${own && html`<div class="slider"><input type="range" min="0" max="2" step="0.1" value=${value} aria-labelledby="temperature-name" aria-describedby="temperature-hint" onInput=${change} />
      <input type="number" min="0" max="2" step="0.05" value=${value} aria-labelledby="temperature-name" onInput=${change} /></div>
      <p class="muted small" id="temperature-hint">${t("parameters.temperatureHint")}</p>`}
  </div>`;
}

function Choice({ name, values, value, put }) {
  const { t } = useApp();
  return html`<div class="field" data-parameter=${name}><label for=${`parameter-${name}`}>${t(`parameters.${name}`)}</label>
    <select id=${`parameter-${name}`} value=${value ?? ""} onChange=${({ target }) => put(name, target.value || undefined)}>
      <option value="">${t("parameters.default")}</option>
      ${values.map((one) => html`<option key=${one} value=${one}>${t(`parameters.${name}.${one}`)}</option>`)}
    </select></div>`;
}

function Window({ model, value, choose }) {
  const { t, bytes, number } = useApp();
  const shown = useRef(windowsOf(model)).current;
  const { num_ctx: used, kv_bytes_per_token: perToken, size_bytes: size } = model;
  const tokens = value ?? used;
  return html`<fieldset><legend>${t("parameters.ofModel", { name: model.name })}</legend>
    <div class="field" data-parameter="num_ctx"><label for="parameter-num_ctx">${t("parameters.window")}</label>
      <select id="parameter-num_ctx" value=${value === null ? "" : String(tokens)} aria-describedby="window-hint window-cost" onChange=${({ target }) => choose(target.value ? Number(target.value) : null)}>
        <option value="">${t("parameters.windowDefault")}</option>
        ${shown.map((one) => html`<option key=${one} value=${String(one)}>${inThousands(one)} (${number(one)})</option>`)}
      </select>
      <p class="muted small" id="window-hint">${t("parameters.windowHint")}</p>
      <p class="small" id="window-cost" data-window-cost>${perToken && value !== null && t("parameters.windowCost", { size: bytes(tokens * perToken), model: size ? bytes(size) : "?" })}</p>
    </div></fieldset>`;
}
