// The choice of a chat's model: what each takes and can do, and the ways to get and set one.

import { useEffect, useId, useRef, useState } from "preact/hooks";
import { isComposing } from "../keys.js";
import { inThousands } from "../model-window.js";
import { modelOf } from "../selectors.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";

// More than this can't be taken in at a glance.
const WITHOUT_FILTER = 8;

const ABILITIES = { tools: "wrench", thinking: "thought", vision: "picture" };

export function ModelList({ chatId, close, ready }) {
  const { t, store, actions, ui } = useApp();
  const { models, defaultModel, modelBackend: backend, chats } = store.workspace.value;
  const chat = chats[chatId];
  const chosen = modelOf(store.workspace.value, chat)?.name;
  const filtered = models.length > WITHOUT_FILTER;
  const [filter, setFilter] = useState("");
  const shown = models.filter(({ name }) => name.toLowerCase().includes(filter.trim().toLowerCase()));
  const [index, setIndex] = useState(() => Math.max(0, models.findIndex(({ name }) => name === chosen)));
  const current = Math.min(index, shown.length - 1);
  const list = useRef(null);
  const focused = useRef(null);
  const id = useId();
  useEffect(() => {
    ready();
    focused.current.focus();
  }, []);
  useEffect(() => {
    list.current.children[current]?.scrollIntoView({ block: "nearest" });
  }, [current]);

  const choose = (model) => {
    if (!chat || !model) return;
    actions.chooseModel(chatId, model.name);
    close();
  };
  const onKeyDown = (event) => {
    if (isComposing(event)) return;
    const place = { ArrowDown: current + 1, ArrowUp: current - 1, ...(filtered ? {} : { Home: 0, End: shown.length - 1 }) }[event.key];
    const chooses = event.key === "Enter" || (event.key === " " && !filtered);
    if (place === undefined && !chooses) return;
    event.preventDefault();
    if (chooses) choose(shown[current]);
    else setIndex((place + shown.length) % shown.length);
  };
  const go = (kind) => {
    close();
    ui.openDialog(kind, { chatId });
  };
  const active = shown.length ? `${id}-${current}` : undefined;
  return html`
    ${filtered && html`<label class="filter"><${Icon} name="search" /><input type="text" role="combobox" autocomplete="off" ref=${focused} value=${filter} placeholder=${t("model.filter")} aria-label=${t("model.filter")}
      aria-autocomplete="list" aria-expanded="true" aria-controls=${`${id}-list`} aria-activedescendant=${active}
      onInput=${(event) => (setFilter(event.target.value), setIndex(0))} onKeyDown=${onKeyDown} /></label>`}
    <p class="popover-head small">${t(`backend.${backend ?? "none"}`)}</p>
    <div class="model-options" role="listbox" id=${`${id}-list`} aria-label=${t("model.label")} ref=${(element) => { list.current = element; if (!filtered) focused.current = element; }}
      tabindex=${filtered ? -1 : 0} aria-activedescendant=${filtered ? undefined : active} onKeyDown=${filtered ? undefined : onKeyDown}>
      ${shown.map((model, i) => html`<${Option} key=${model.name} id=${`${id}-${i}`} model=${model} chosen=${model.name === chosen} current=${i === current}
        isDefault=${model.name === defaultModel} disabled=${!chat} choose=${() => choose(model)} />`)}
    </div>
    ${shown.length === 0 && html`<p class="muted small list-none" role="status">${t(models.length ? "model.noMatch" : "model.none")}</p>`}
    <div class="popover-foot">
      <button type="button" class="button small quiet" data-action="pull" onClick=${() => go("pull")}><${Icon} name="download" />${t("model.get")}</button>
      ${chat && chosen && html`<button type="button" class="button small quiet" data-action="parameters" onClick=${() => go("parameters")}><${Icon} name="sliders" />${t("parameters.open")}</button>`}
    </div>`;
}

function Option({ id, model, chosen, current, isDefault, disabled, choose }) {
  const { t } = useApp();
  return html`<div role="option" id=${id} class="model-option" data-model=${model.name} data-current=${current} aria-selected=${chosen} aria-disabled=${disabled || undefined} onClick=${choose}>
    <span class="menu-icon">${chosen && html`<${Icon} name="check" />`}</span>
    <span class="model-title" dir="auto">${model.name}</span>
    ${isDefault && html`<span class="chip">${t("model.default")}</span>`}
    <span class="abilities">${Object.entries(ABILITIES).filter(([name]) => model.capabilities.includes(name)).map(([name, icon]) =>
      html`<span key=${name} title=${t(`ability.${name}`)} data-ability=${name}><${Icon} name=${icon} /><span class="visually-hidden">${t(`ability.${name}`)}</span></span>`)}</span>
    <${Facts} model=${model} />
  </div>`;
}

function Facts({ model }) {
  const { t, bytes } = useApp();
  const { size_bytes: size, parameter_size: parameters, quantization, context_length: longest, num_ctx: used } = model;
  const facts = [
    size && bytes(size),
    parameters && t("model.parameters", { size: parameters }),
    quantization,
    longest && t("model.window", { used: inThousands(used), longest: inThousands(longest) }),
  ];
  return html`<small class="model-facts">${facts.filter(Boolean).join(" · ")}</small>`;
}
