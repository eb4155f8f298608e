// What the model would be sent now, by part, and what is withheld from it and why.

import { useComputed } from "@preact/signals";
import { useApp, useReply } from "./context.js";
import { Facts } from "./facts.js";
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
    ${inspection ? html`<${Parts} chatId=${chatId} inspection=${inspection} />` : html`<p class="muted small">${t(chatId ? "inspector.loading" : "inspector.none")}</p>`}
    ${chatId && html`<${Facts} chatId=${chatId} />`}
  </aside>`;
}

/** Asked for again whenever the context may have changed. */
function useInspection(chatId) {
  const { store, actions } = useApp();
  const chat = useComputed(() => (chatId ? store.chat(chatId).value : emptyChat));
  const context = useComputed(() => chat.value.context).value;
  const idle = useComputed(() => chat.value.turn === null).value;
  const choices = useComputed(() => choicesOf(store.workspace.value.chats[chatId])).value;
  const ready = context !== null && store.workspace.value.connection === "open";
  return useReply(() => actions.inspect(chatId), ready, [context, idle, choices]);
}

const choicesOf = (chat) => JSON.stringify([chat?.model, chat?.families_off]);

function Parts({ chatId, inspection }) {
  const { t, number } = useApp();
  const parts = partsOf(inspection);
  const estimated = inspection.context?.token_count !== "exact";
  const { total_tokens: total, num_ctx: limit } = inspection;
  return html`
    <p class="total">${estimated && html`<span title=${t("inspector.estimated")}>≈ </span>`}${number(total)}${limit ? ` / ${number(limit)}` : ""} <span class="muted">${t("inspector.tokens", { count: total })}</span></p>
    <${Meter} parts=${parts} limit=${limit ?? total} />
    <ul class="parts">${parts.map((part) => html`<${Part} key=${part.name} part=${part}>${part.name === "tools" && html`<${Families} chatId=${chatId} inspection=${inspection} />`}<//>`)}</ul>
    <${Withheld} withheld=${inspection.withheld} />`;
}

function partsOf({ messages, tools, tools_tokens, families = [] }) {
  const parts = PARTS.map((name) => {
    const held = messages.filter((message) => message.part === name);
    return name === "tools"
      ? { name, tokens: tools_tokens, count: tools.length, texts: [] }
      : { name, tokens: sum(held), count: held.length, texts: held.map((message) => ({ label: message.tool_name ?? message.role, text: textOf(message) })) };
  });
  return parts.filter((part) => part.count > 0 || (part.name === "tools" && families.length > 0));
}

const sum = (items) => items.reduce((total, item) => total + (item.tokens ?? 0), 0);

function textOf({ content, tool_calls: calls }) {
  const called = (calls ?? []).map((call) => `→ ${call.function?.name ?? call.name} ${JSON.stringify(call.function?.arguments ?? call.arguments ?? {})}`);
  return [content, ...called].filter(Boolean).join("\n");
}

function Meter({ parts, limit }) {
  return html`<div class="meter" aria-hidden="true">${parts.map(({ name, tokens }) => html`<i key=${name} class=${`part-${name}`} style=${{ width: `${Math.min(100, (tokens / limit) * 100)}%` }}></i>`)}</div>`;
}

function Part({ part, children }) {
  const { t, number } = useApp();
  return html`<li data-part=${part.name}><details><summary>
      <span class=${`swatch part-${part.name}`}></span><span>${t(`part.${part.name}`, { count: part.count })}</span><b>${number(part.tokens)}</b>
    </summary>
    ${children}
    ${part.texts.map(({ label, text }, i) => html`<div class="sent-text" key=${i}><span class="muted">${label}</span><pre tabindex="0">${text || "—"}</pre></div>`)}
  </details></li>`;
}

/** What the model can call now, what it costs, and a switch for each family of it. */
function Families({ chatId, inspection }) {
  const { store, actions } = useApp();
  const tools = useComputed(() => store.workspace.value.tools).value;
  const off = useComputed(() => store.workspace.value.chats[chatId]?.families_off).value ?? [];
  const familyOf = Object.fromEntries(tools.map((tool) => [tool.name, tool.family]));
  const change = (name, on) => actions.chooseFamilies(chatId, on ? off.filter((other) => other !== name) : [...off, name]);
  const loose = inspection.tools.filter((tool) => !familyOf[tool.name]);
  return html`${inspection.families.map((family) => html`<${FamilyRow} key=${family.name} family=${family} on=${!off.includes(family.name)} change=${change}
      tools=${inspection.tools.filter((tool) => familyOf[tool.name] === family.name)} />`)}
    ${loose.map((tool) => html`<${ToolText} key=${tool.name} tool=${tool} />`)}`;
}

function FamilyRow({ family, on, tools, change }) {
  const { t, known, number } = useApp();
  const { name, tokens } = family;
  return html`<div class="family" data-family=${name} data-on=${on}>
    <label><input type="checkbox" role="switch" checked=${on} onChange=${({ target }) => change(name, target.checked)} />${known(`family.${name}`, name)}</label>
    <b>${on ? number(tokens) : t("inspector.off")}</b>
    ${tools.map((tool) => html`<${ToolText} key=${tool.name} tool=${tool} />`)}
  </div>`;
}

function ToolText({ tool }) {
  const { number } = useApp();
  return html`<details class="sent-text"><summary><code>${tool.name}</code><span>${number(tool.tokens)}</span></summary><pre tabindex="0">${tool.description}</pre></details>`;
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
