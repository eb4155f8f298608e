// The tools by hand: a menu of families and tools, and a small form made from a tool's JSON schema.

import { useEffect, useId, useRef, useState } from "preact/hooks";
import { isComposing } from "../keys.js";
import { fieldForWords, fieldsOf, readFields } from "../tools.js";
import { keepsComposing } from "./controls.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { IconButton } from "./icons.js";
import { ErrorText } from "./messages.js";

export const optionId = (menuId, tool) => `${menuId}-${tool.name}`;

export function SlashMenu({ id, groups, current, choose }) {
  const { t, known } = useApp();
  const list = useRef(null);
  useEffect(() => {
    list.current.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [current]);
  return html`<div class="slash-menu" id=${id} role="listbox" tabindex="0" aria-label=${t("slash.label")} ref=${list}>
    ${groups.map(({ family, tools }) => html`<div key=${family} role="group" aria-labelledby=${`${id}-family-${family}`}>
      <div class="slash-family" id=${`${id}-family-${family}`} role="presentation">${known(`family.${family}`, family)}</div>
      ${tools.map((tool) => html`<div key=${tool.name} id=${optionId(id, tool)} role="option" class="slash-option"
          aria-selected=${current === tool} onPointerDown=${(event) => event.preventDefault()} onClick=${() => choose(tool)}>
        <span>${known(`tool.${tool.name}`, tool.name)}</span><code>/${tool.name}</code>
      </div>`)}
    </div>`)}
  </div>`;
}

/**
 * A form whose controls are a tool's arguments. Returns its `form` ref, `submit`, what is `wrong` with each field,
 * and the `error` that no field shows. `fixed` are arguments that the person doesn't change.
 */
export function useToolForm(chatId, tool, fields, { fixed = {}, done }) {
  const { actions } = useApp();
  const form = useRef(null);
  const [failure, setFailure] = useState(null);
  useEffect(() => form.current.querySelector('[aria-invalid="true"]')?.focus(), [failure]);
  const submit = async (event) => {
    event.preventDefault();
    setFailure(null);
    try {
      await actions.submit(chatId, tool, { ...fixed, ...readFields(form.current.elements, fields) });
      done();
    } catch (error) {
      if (!error.code) throw error;
      setFailure(error);
    }
  };
  const wrong = failure?.fields ?? {};
  const isShown = fields.some(({ name }) => name in wrong);
  return { form, submit, wrong, error: isShown ? null : failure };
}

/** `words` were written behind the tool's name; `close` is told whether the tool was used. */
export function ToolForm({ chatId, tool, words = "", close, running }) {
  const { t, known, ui } = useApp();
  const id = useId();
  const fields = fieldsOf(tool.parameters);
  const wordsField = fieldForWords(fields);
  const done = () => {
    ui.followEnd();
    close({ isUsed: true });
  };
  const cancel = () => close({ isUsed: false });
  const { form, submit, wrong, error } = useToolForm(chatId, tool.name, fields, { done });
  useEffect(() => {
    form.current.querySelector("input, textarea, select, .button.primary").focus();
  }, []);

  const onKeyDown = (event) => {
    if (isComposing(event)) return;
    if (event.key === "Escape") {
      event.preventDefault();
      cancel();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.current.requestSubmit();
    }
  };
  return html`<form class="tool-form" ref=${form} data-tool-form=${tool.name} onSubmit=${submit} onKeyDown=${onKeyDown} aria-labelledby=${`${id}-heading`}>
    <header><h2 id=${`${id}-heading`}>${known(`tool.${tool.name}`, tool.name)}</h2><code>/${tool.name}</code><span class="grow"></span>
      <${IconButton} name="close" label=${t("editor.cancel")} onClick=${cancel} /></header>
    ${fields.map((field) => html`<${Field} key=${field.name} id=${`${id}-argument-${field.name}`} field=${field} value=${field.name === wordsField ? words : ""} wrong=${wrong[field.name]} />`)}
    ${error && html`<div class="failure" role="alert"><${ErrorText} error=${error} /></div>`}
    <div class="actions"><button class="button primary" disabled=${running}>${t("slash.run")}</button>
      <button type="button" class="button quiet" onClick=${cancel}>${t("editor.cancel")}</button></div>
  </form>`;
}

/** One argument; `value` is what it holds at first, `wrong` what the server said of it. */
export function Field({ id, field, value = "", wrong }) {
  const { t, known } = useApp();
  const { name, kind, required, options, min, max, step } = field;
  const shared = { id, name, required, "aria-invalid": wrong ? "true" : undefined, "aria-describedby": wrong ? `${id}-wrong` : undefined };
  const control = {
    textarea: () => html`<textarea rows="6" defaultValue=${value} class=${name === "sql" ? "mono" : ""} ...${shared}></textarea>`,
    select: () => html`<select ...${shared}>${!required && html`<option value="">—</option>`}${options.map((option) => html`<option key=${option} value=${option}>${known(`choice.${option}`, String(option))}</option>`)}</select>`,
    checkbox: () => html`<input type="checkbox" ...${{ ...shared, required: false }} />`,
    number: () => html`<input type="number" min=${min} max=${max} step=${step} defaultValue=${value} onKeyDown=${keepsComposing} ...${shared} />`,
    text: () => html`<input type="text" defaultValue=${value} autocomplete="off" onKeyDown=${keepsComposing} ...${shared} />`,
  }[kind];
  return html`<div class="field"><label for=${id}>${known(`argument.${name}`, name)}${!required && html`<span class="muted"> · ${t("slash.optional")}</span>`}</label>${control()}
    ${wrong && html`<p class="danger-text small" id=${`${id}-wrong`}>${wrong}</p>`}</div>`;
}
