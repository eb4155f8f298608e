// What the model would be sent now, by part, and what is withheld from it and why.

import { useComputed } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { IconButton } from "./icons.js";

const emptyChat = { context: null, turn: null };

const PARTS = ["prompt", "tools", "history", "state", "new"];

export function Inspector({ chatId }) {
  const { t, preferences, ui } = useApp();
  const inspection = useInspection(chatId);
  const close = () => {
    preferences.inspector.value = false;
    ui.closeDrawer();
  };
  return html`<aside class="inspector" id="inspector" aria-labelledby="inspector-title" data-inspector>
    <header><h2 id="inspector-title">${t("inspector.title")}</h2><span class="grow"></span>
      <${IconButton} name="close" label=${t("inspector.close")} onClick=${close} /></header>
    ${inspection ? html`<${Parts} inspection=${inspection} />` : html`<p class="muted small">${t(chatId ? "inspector.loading" : "inspector.none")}</p>`}
  </aside>`;
}

/** Asked for again whenever the context may have changed. */
function useInspection(chatId) {
  const { store, actions } = useApp();
  const [inspection, setInspection] = useState(null);
  const chat = useComputed(() => (chatId ? store.chat(chatId).value : emptyChat));
  const context = useComputed(() => chat.value.context).value;
  const idle = useComputed(() => chat.value.turn === null).value;
  const ready = context !== null && store.workspace.value.connection === "open";
  useEffect(() => {
    if (!ready) return undefined;
    let current = true;
    actions.inspect(chatId).then((reply) => current && setInspection(reply)).catch((error) => {
      if (!error.code) throw error;
    });
    return () => (current = false);
  }, [ready, context, idle]);
  return inspection;
}

function Parts({ inspection }) {
  const { t, number } = useApp();
  const parts = partsOf(inspection);
  const estimated = inspection.context?.token_count !== "exact";
  const { total_tokens: total, num_ctx: limit } = inspection;
  return html`
    <p class="total">${estimated && html`<span title=${t("inspector.estimated")}>≈ </span>`}${number(total)}${limit ? ` / ${number(limit)}` : ""} <span class="muted">${t("inspector.tokens", { count: total })}</span></p>
    <${Meter} parts=${parts} limit=${limit ?? total} />
    <ul class="parts">${parts.map((part) => html`<${Part} key=${part.name} part=${part} />`)}</ul>
    <${Withheld} withheld=${inspection.withheld} />`;
}

function partsOf({ messages, tools, tools_tokens }) {
  const parts = PARTS.map((name) => {
    const held = messages.filter((message) => message.part === name);
    return name === "tools"
      ? { name, tokens: tools_tokens, count: tools.length, texts: tools.map((tool) => ({ label: tool.name, text: tool.description })) }
      : { name, tokens: sum(held), count: held.length, texts: held.map((message) => ({ label: message.tool_name ?? message.role, text: textOf(message) })) };
  });
  return parts.filter((part) => part.count > 0);
}

const sum = (items) => items.reduce((total, item) => total + (item.tokens ?? 0), 0);

function textOf({ content, tool_calls: calls }) {
  const called = (calls ?? []).map((call) => `→ ${call.function?.name ?? call.name} ${JSON.stringify(call.function?.arguments ?? call.arguments ?? {})}`);
  return [content, ...called].filter(Boolean).join("\n");
}

function Meter({ parts, limit }) {
  return html`<div class="meter" aria-hidden="true">${parts.map(({ name, tokens }) => html`<i key=${name} class=${`part-${name}`} style=${{ width: `${Math.min(100, (tokens / limit) * 100)}%` }}></i>`)}</div>`;
}

function Part({ part }) {
  const { t, number } = useApp();
  return html`<li data-part=${part.name}><details><summary>
      <span class=${`swatch part-${part.name}`}></span><span>${t(`part.${part.name}`, { count: part.count })}</span><b>${number(part.tokens)}</b>
    </summary>
    ${part.texts.map(({ label, text }, i) => html`<div class="sent-text" key=${i}><span class="muted">${label}</span><pre tabindex="0">${text || "—"}</pre></div>`)}
  </details></li>`;
}

function Withheld({ withheld }) {
  const { t, number } = useApp();
  if (!withheld?.length) return html`<p class="muted small">${t("withheld.none")}</p>`;
  const reasons = [...new Set(withheld.map((item) => item.reason))];
  return html`<section class="withheld" data-withheld><h3>${t("withheld.title")}</h3><ul>${reasons.map((reason) => {
    const items = withheld.filter((item) => item.reason === reason);
    return html`<li key=${reason} data-reason=${reason}><span>${t(`withheld.${reason}`, { count: items.length })}</span><b>${number(sum(items))}</b></li>`;
  })}</ul></section>`;
}
