// A request to the model by its parts: what each costs, and its exact texts on a click.

import { useState } from "preact/hooks";
import { useApp } from "./context.js";
import { CopyButton } from "./controls.js";
import { html } from "./html.js";

const PARTS = ["prompt", "tools", "history", "state", "new", "turn"];

/** `families`, where they can be switched on again, keep the tools' part when no tool is left. */
export function partsOf({ messages, tools, tools_tokens: toolsTokens }, families = []) {
  const parts = PARTS.map((name) => {
    const held = messages.filter((message) => message.part === name);
    return name === "tools"
      ? { name, tokens: toolsTokens, count: tools.length, texts: [] }
      : { name, tokens: sum(held), count: held.length, texts: held.map((message) => ({ label: message.tool_name ?? message.role, text: textOf(message) })) };
  });
  return parts.filter((part) => part.count > 0 || (part.name === "tools" && families.length > 0));
}

export const sum = (items) => items.reduce((total, item) => total + (item.tokens ?? 0), 0);

function textOf({ content, tool_calls: calls }) {
  const called = (calls ?? []).map((call) => `→ ${call.function.name} ${JSON.stringify(call.function.arguments)}`);
  return [content, ...called].filter(Boolean).join("\n");
}

/** `counted` are the tokens of the last request by the model server's own count. */
export function Meter({ parts, limit, counted }) {
  const share = (tokens) => `${Math.min(100, (tokens / limit) * 100)}%`;
  return html`<div class="meter" aria-hidden="true">${parts.map(({ name, tokens }) => html`<i key=${name} class=${`part-${name}`} style=${{ width: share(tokens) }}></i>`)}
    ${counted && html`<b class="mark" style=${{ left: share(counted) }}></b>`}</div>`;
}

/** `children(part)` is what a part holds besides its texts. */
export function Parts({ parts, children }) {
  return html`<ul class="parts">${parts.map((part) => html`<${Part} key=${part.name} part=${part}>${children(part)}<//>`)}</ul>`;
}

// Texts can be long and are looked at seldom: they are drawn when they are unfolded.
function Part({ part, children }) {
  const { t, number } = useApp();
  const [open, setOpen] = useState(false);
  return html`<li data-part=${part.name}><details onToggle=${({ currentTarget }) => setOpen(currentTarget.open)}><summary>
      <span class=${`swatch part-${part.name}`}></span><span>${t(`part.${part.label ?? part.name}`, { count: part.count })}</span><b>${number(part.tokens)}</b>
    </summary>
    ${children}
    ${open && part.texts.map(({ label, text }, i) => html`<${SentText} key=${i} label=${label} text=${text} />`)}
  </details></li>`;
}

function SentText({ label, text }) {
  const { t } = useApp();
  return html`<div class="sent-text"><div class="sent-label"><span class="muted">${label}</span><${CopyButton} text=${text} label=${t("inspector.copy", { what: label })} /></div>
    <pre tabindex="0" dir="auto">${text || "—"}</pre></div>`;
}

export function ToolText({ tool }) {
  const { t, number } = useApp();
  const text = JSON.stringify(tool.schema, null, 2);
  return html`<details class="sent-text"><summary><code>${tool.name}</code><span>${number(tool.tokens)}</span></summary>
    <div class="sent-label"><span class="muted">${tool.description}</span><${CopyButton} text=${text} label=${t("inspector.copy", { what: tool.name })} /></div>
    <pre tabindex="0">${text}</pre></details>`;
}
