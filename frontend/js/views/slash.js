// The tools by hand: a menu of families and tools, and a small form made from a tool's JSON schema.

import { useEffect, useId, useRef, useState } from "preact/hooks";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { IconButton } from "./icons.js";

/** Tools whose name or label holds the query, families together and in the server's order. */
export function matchingTools(tools, query, label) {
  const wanted = query.toLocaleLowerCase();
  const matching = tools.filter((tool) => tool.family && `${tool.name} ${label(tool)}`.toLocaleLowerCase().includes(wanted));
  const families = [...new Set(matching.map((tool) => tool.family))];
  return families.flatMap((family) => matching.filter((tool) => tool.family === family));
}

export const optionId = (menuId, tool) => `${menuId}-${tool.name}`;

export function SlashMenu({ id, tools, current, choose }) {
  const { t, has } = useApp();
  const list = useRef(null);
  useEffect(() => {
    list.current.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [current]);
  const families = [...new Set(tools.map((tool) => tool.family))];
  return html`<div class="slash-menu" id=${id} role="listbox" tabindex="0" aria-label=${t("slash.label")} ref=${list}>
    ${families.map((family) => html`<div key=${family} role="group" aria-labelledby=${`${id}-family-${family}`}>
      <div class="slash-family" id=${`${id}-family-${family}`} role="presentation">${has(`family.${family}`) ? t(`family.${family}`) : family}</div>
      ${tools.filter((tool) => tool.family === family).map((tool) => html`<div key=${tool.name} id=${optionId(id, tool)} role="option" class="slash-option"
          aria-selected=${tools[current] === tool} onPointerDown=${(event) => event.preventDefault()} onClick=${() => choose(tool)}>
        <span>${has(`tool.${tool.name}`) ? t(`tool.${tool.name}`) : tool.name}</span><code>/${tool.name}</code>
      </div>`)}
    </div>`)}
  </div>`;
}

export function ToolForm({ chatId, tool, close, running }) {
  const { t, has, actions, ui } = useApp();
  const id = useId();
  const form = useRef(null);
  const [error, setError] = useState(null);
  const fields = fieldsOf(tool.parameters);
  useEffect(() => {
    form.current.querySelector("input, textarea, select, .button.primary").focus();
  }, []);

  const submit = async (event) => {
    event.preventDefault();
    setError(null);
    ui.followEnd();
    const reply = await actions.invoke(chatId, tool.name, readFields(form.current, fields));
    if (reply) close();
    else setError(actions.problem.value);
  };
  const onKeyDown = (event) => {
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Escape") {
      event.preventDefault();
      close();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.current.requestSubmit();
    }
  };
  return html`<form class="tool-form" ref=${form} data-tool-form=${tool.name} onSubmit=${submit} onKeyDown=${onKeyDown} aria-labelledby=${`${id}-title`}>
    <header><h2 id=${`${id}-title`}>${has(`tool.${tool.name}`) ? t(`tool.${tool.name}`) : tool.name}</h2><code>/${tool.name}</code><span class="grow"></span>
      <${IconButton} name="close" label=${t("editor.cancel")} onClick=${close} /></header>
    ${fields.map((field) => html`<${Field} key=${field.name} id=${`${id}-${field.name}`} field=${field} wrong=${error?.fields?.[field.name]} />`)}
    <div class="actions"><button class="button primary" disabled=${running}>${t("slash.run")}</button>
      <button type="button" class="button quiet" onClick=${close}>${t("editor.cancel")}</button></div>
  </form>`;
}

function Field({ id, field, wrong }) {
  const { t, has } = useApp();
  const { name, kind, required, options, value } = field;
  const label = has(`argument.${name}`) ? t(`argument.${name}`) : name;
  const shared = { id, name, required, "aria-invalid": wrong ? true : undefined };
  const control = {
    textarea: () => html`<textarea rows="6" defaultValue=${value} ...${shared}></textarea>`,
    select: () => html`<select ...${shared}>${!required && html`<option value="">—</option>`}${options?.map((option) => html`<option key=${option} value=${option}>${String(option)}</option>`)}</select>`,
    checkbox: () => html`<input type="checkbox" ...${{ ...shared, required: false }} />`,
    number: () => html`<input type="number" step="any" defaultValue=${value} ...${shared} />`,
    text: () => html`<input type="text" defaultValue=${value} autocomplete="off" ...${shared} />`,
  }[kind];
  return html`<div class="field"><label for=${id}>${label}${!required && html`<span class="muted"> · ${t("slash.optional")}</span>`}</label>${control()}
    ${wrong && html`<p class="danger-text">${wrong}</p>`}</div>`;
}

/** The schema's properties as form fields. An optional argument is `anyOf` its type and null. */
export function fieldsOf(parameters) {
  const required = parameters?.required ?? [];
  return Object.entries(parameters?.properties ?? {}).map(([name, schema]) => {
    const shape = schema.anyOf?.find((option) => option.type !== "null") ?? schema;
    return { name, kind: kindOf(name, shape), type: shape.type, options: shape.enum, required: required.includes(name), value: schema.default ?? "" };
  });
}

function kindOf(name, { type, enum: options }) {
  if (options) return "select";
  if (type === "boolean") return "checkbox";
  if (type === "integer" || type === "number") return "number";
  return name === "content" ? "textarea" : "text";
}

function readFields(form, fields) {
  const values = fields.map(({ name, kind }) => {
    const { value, checked, valueAsNumber } = form.elements[name];
    if (kind === "checkbox") return [name, checked];
    return [name, value === "" ? undefined : kind === "number" ? valueAsNumber : value];
  });
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}
