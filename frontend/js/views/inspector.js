// What the model sees: the next request by part and what is withheld from it and why, and the request that went out last.

import { useComputed } from "@preact/signals";
import { useId, useState } from "preact/hooks";
import { useAnswer, useApp } from "./context.js";
import { Facts } from "./facts.js";
import { html } from "./html.js";
import { Icon, IconButton } from "./icons.js";
import { ErrorText } from "./messages.js";
import { Meter, Parts, partsOf, ToolText } from "./request-parts.js";
import { Sent } from "./sent.js";
import { Withheld } from "./withheld.js";

export function Inspector({ chatId }) {
  const { t, preferences, ui } = useApp();
  const close = () => {
    preferences.inspector.value = false;
    ui.closeDrawer();
  };
  return html`<aside class="inspector" id="inspector" aria-labelledby="inspector-title" data-inspector>
    <header><h2 id="inspector-title">${t("inspector.title")}</h2><span class="grow"></span>
      <${IconButton} name="close" label=${t("inspector.close")} onClick=${close} /></header>
    ${chatId ? html`<${Requests} chatId=${chatId} /><${Facts} chatId=${chatId} />` : html`<p class="muted small">${t("inspector.none")}</p>`}
  </aside>`;
}

function Requests({ chatId }) {
  const { t, store } = useApp();
  const [view, setView] = useState("next");
  const chat = store.chat(chatId);
  const metrics = useComputed(() => lastReplyOf(chat.value)?.metrics ?? null).value;
  const tab = (name) => html`<button type="button" aria-pressed=${view === name} data-view=${name} onClick=${() => setView(name)}>${t(`inspector.${name}`)}</button>`;
  return html`
    <div class="views" role="group" aria-label=${t("inspector.views")}>${tab("next")}${tab("sent")}</div>
    ${metrics?.prompt_cut && html`<${CutAlarm} chatId=${chatId} metrics=${metrics} />`}
    ${view === "next" ? html`<${Next} chatId=${chatId} chat=${chat} metrics=${metrics} />` : html`<${LastSent} chatId=${chatId} chat=${chat} />`}`;
}

const lastReplyOf = ({ messages }) => messages.findLast(({ role, is_ephemeral, status }) => role === "assistant" && is_ephemeral === 0 && status !== "streaming");

function CutAlarm({ chatId, metrics }) {
  const { t, ui } = useApp();
  const { prompt_tokens: counted, estimated_prompt_tokens: estimated } = metrics;
  return html`<div class="cut-alarm" role="group" aria-label=${t("cut.title")} data-alarm="prompt-cut">
    <h3><${Icon} name="alert" />${t("cut.title")}</h3>
    <p>${t("cut.numbers", { counted, estimated })}</p>
    <p>${t("cut.advice")}</p>
    <button type="button" class="button small" data-action="parameters" onClick=${() => ui.openDialog("parameters", { chatId })}><${Icon} name="sliders" />${t("parameters.title")}</button>
  </div>`;
}

function Next({ chatId, chat, metrics }) {
  const { t, actions, store } = useApp();
  const causes = useCauses(chat);
  const choices = useComputed(() => choicesOf(store.workspace.value.chats[chatId])).value;
  const models = useComputed(() => store.workspace.value.models).value;
  const { reply: inspection, error, again } = useAnswer(() => actions.inspect(chatId), useReady(chat), [...causes, choices, models]);
  if (error) return html`<${Failure} error=${error} again=${again} />`;
  if (!inspection) return html`<p class="muted small">${t("inspector.loading")}</p>`;
  return html`<${NextRequest} chatId=${chatId} inspection=${inspection} counted=${metrics?.prompt_tokens} />`;
}

const choicesOf = (chat) => JSON.stringify([chat?.model, chat?.families_off]);

function LastSent({ chatId, chat }) {
  const { t, actions } = useApp();
  const { reply, error, again } = useAnswer(() => actions.sent(chatId), useReady(chat), useCauses(chat));
  if (error) return html`<${Failure} error=${error} again=${again} />`;
  if (!reply) return html`<p class="muted small">${t("inspector.loading")}</p>`;
  return html`<${Sent} sent=${reply.sent} />`;
}

const useReady = (chat) => {
  const { store } = useApp();
  return useComputed(() => chat.value.context !== null && store.workspace.value.connection === "open").value;
};

/** What may change either request: the context, and a turn's beginning and end. */
const useCauses = (chat) => [useComputed(() => chat.value.context).value, useComputed(() => chat.value.turn === null).value];

function Failure({ error, again }) {
  const { t } = useApp();
  return html`<div class="failure" data-inspector-error=${error.code}><${Icon} name="alert" /><${ErrorText} error=${error} />
    <button type="button" class="button small" data-action="again" onClick=${again}><${Icon} name="retry" />${t("message.retry")}</button></div>`;
}

function NextRequest({ chatId, inspection, counted }) {
  const { t, number } = useApp();
  const parts = partsOf(inspection, inspection.families);
  const { total_tokens: total, num_ctx: limit } = inspection;
  return html`
    <p class="total"><span title=${t("inspector.estimated")}>≈ </span>${number(total)}${limit ? ` / ${number(limit)}` : ""} <span class="muted">${t("inspector.tokens", { count: limit || total })}</span></p>
    <${Meter} parts=${parts} limit=${limit ?? total} counted=${counted} />
    ${counted && html`<p class="muted small counted" data-counted=${counted}>${t("inspector.counted", { count: counted })}</p>`}
    <${Parts} parts=${parts}>${(part) => part.name === "tools" && html`<${Families} chatId=${chatId} inspection=${inspection} />`}<//>
    <${Withheld} chatId=${chatId} withheld=${inspection.withheld} />
    <${Saved} tokens=${inspection.context.saved_tokens} />`;
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

/** What the chat's model was spared; the definition shows on hover and on focus, until Escape. */
function Saved({ tokens }) {
  const { t, number } = useApp();
  const [shown, setShown] = useState(false);
  const id = useId();
  const show = () => setShown(true);
  const hide = () => setShown(false);
  const onKeyDown = (event) => {
    if (event.key !== "Escape" || !shown) return;
    event.stopPropagation();
    hide();
  };
  return html`<div class="saved" data-saved=${tokens} onMouseEnter=${show} onMouseLeave=${({ currentTarget }) => currentTarget.contains(document.activeElement) || hide()}>
    <span>${t("saved.label")}</span>
    <button type="button" class="link" aria-describedby=${id} onFocus=${show} onBlur=${hide} onClick=${show} onKeyDown=${onKeyDown}>${number(tokens)} ${t("inspector.tokens", { count: tokens })}</button>
    <p role="tooltip" id=${id} hidden=${!shown}>${t("saved.what")}</p>
  </div>`;
}
