// A tool result's face for the person: preview, diff, table, list or notice, with its buttons.
// Everything in it is set as text; a Markdown preview goes through the sanitiser.

import { computed } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { cardText } from "../card-text.js";
import { sightOf } from "../selectors.js";
import { isComposing } from "../keys.js";
import { revealUnseen } from "../text.js";
import { Approval } from "./approval.js";
import { Fold, Revealed } from "./controls.js";
import { useApp, useRunning } from "./context.js";
import { DiffSize, DiffView, useDiff } from "./diff-view.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { Markdown } from "./prose.js";

export function Card({ message }) {
  const { t } = useApp();
  const { card, chat_id: chatId, status } = message;
  const rows = useDiff(card);
  const [editing, setEditing] = useState(null);
  const titleId = `card-${message.id}`;
  return html`<section class="card" data-message-id=${message.id} data-kind=${card.kind} data-status=${status} data-tool=${message.tool}
      aria-labelledby=${titleId}>
    <header>
      <h2 id=${titleId} dir="auto"><${CardTitle} card=${card} /></h2>
      ${card.approval && card.approval.state !== "waiting" && html`<span class="chip" data-approval=${card.approval.state}>${t(`approval.${card.approval.state}`)}</span>`}
      ${card.superseded && html`<span class="chip">${t("card.superseded")}</span>`}
      <span class="chip temporary">${t("card.temporary")}</span>
      <${Sight} message=${message} />
      <span class="grow"></span>
      ${card.kind === "diff" && html`<${DiffSize} rows=${rows} />`}
    </header>
    <${HiddenCharacters} card=${card} />
    ${editing ? html`<${Editor} chatId=${chatId} action=${editing} close=${() => setEditing(null)} />` : html`<${Body} card=${card} rows=${rows} chatId=${chatId} />`}
    ${!editing && html`<${Footer} message=${message} edit=${setEditing} />`}
  </section>`;
}

/** Whether the model sees working material now, and why or why not. */
export function Sight({ message }) {
  const { t, store } = useApp();
  const sight = useMemo(() => computed(() => sightOf(store.chat(message.chat_id).value, message)), [message]).value;
  const seen = SEEN.has(sight);
  const why = t(`sight.${sight}`);
  return html`<span class="chip sight" data-sight=${sight} title=${why}>${t(seen ? "card.seen" : "card.unseen")}<span class="visually-hidden">: ${why}</span></span>`;
}

const SEEN = new Set(["turn", "hand"]);

function Footer({ message, edit }) {
  const { card, chat_id: chatId } = message;
  const keepable = isKeepable(message);
  if (!keepable && !card.actions?.length) return null;
  return html`<footer class="actions">
    ${card.actions?.map((action) => html`<${ActionButton} key=${action.label + action.tool} chatId=${chatId} action=${action} edit=${edit} />`)}
    ${keepable && html`<${KeepAsNote} message=${message} />`}
  </footer>`;
}

// A note's own card, a failure or a question holds nothing that would be lost.
const isKeepable = ({ card, status, tool }) => status === "complete" && !card.approval && !tool?.startsWith("note_") && cardText(card).trim() !== "";

// A title is a name, not the text: what is longer is the card's.
const TITLE_CHARACTERS = 120;

function KeepAsNote({ message }) {
  const app = useApp();
  const title = titleText(app, message.card).slice(0, TITLE_CHARACTERS);
  const action = { label: "keep_as_note", tool: "note_save" };
  // The text is put together when it is wanted: a table's is long.
  return html`<${ActionButton} chatId=${message.chat_id} action=${action} argumentsOf=${() => ({ title, content: cardText(message.card) })} />`;
}

export const CardTitle = ({ card }) => html`<${Revealed} text=${titleText(useApp(), card)} />`;

function titleText({ t, has, known }, card) {
  const params = plain(card.params);
  if (!card.title_key || !has(card.title_key)) return card.title ?? "";
  return t(card.title_key, params.tool ? { ...params, tool: known(`tool.${params.tool}`, params.tool) } : params);
}

// Ids and versions are names, not amounts: they are not grouped in thousands. Counts choose the plural form.
const plain = (params = {}) =>
  Object.fromEntries(Object.entries(params).map(([name, value]) => [name, name === "count" ? value : String(value)]));

function Body({ card, rows, chatId }) {
  if (card.approval) return html`<${Approval} chatId=${chatId} approval=${card.approval} />`;
  switch (card.kind) {
    case "diff":
      return html`<${DiffView} rows=${rows} />`;
    case "preview":
      return html`<${Preview} card=${card} />`;
    case "table":
      return html`<${Table} card=${card} />`;
    case "list":
      return html`<${List} card=${card} chatId=${chatId} />`;
    default:
      return html`<${Notice} card=${card} />`;
  }
}

function Notice({ card }) {
  const { t, has } = useApp();
  if (card.body_key && has(card.body_key)) return html`<p class="card-text">${t(card.body_key, plain(card.params))}</p>`;
  return card.body ? html`<${Fold} class="card-text" ><div dir="auto" class="typed"><${Revealed} text=${card.body} /></div><//>` : null;
}

const hidesSomething = (text) => revealUnseen(text).some((segment) => segment.code);

function Preview({ card }) {
  const { t, has } = useApp();
  if (card.body_key && has(card.body_key)) return html`<${Notice} card=${card} />`;
  const body = card.body ?? "";
  if (!body) return html`<p class="card-text muted">${t("card.empty")}</p>`;
  const formatted = card.format === "markdown" && !hidesSomething(body);
  return html`<${Fold} class="card-text">
    ${formatted ? html`<${Markdown} text=${body} />` : html`<div class="typed mono" dir="auto"><${Revealed} text=${body} /></div>`}
  <//>`;
}

function HiddenCharacters({ card }) {
  const { t } = useApp();
  const text = { preview: card.body, diff: card.after }[card.kind] ?? "";
  const count = revealUnseen(text).filter((segment) => segment.code).length;
  return count > 0 && html`<p class="card-warning"><${Icon} name="alert" />${t("unseen.count", { count })}</p>`;
}

function Table({ card }) {
  const { t, has } = useApp();
  const { columns, rows, total_rows: total = rows.length } = card;
  return html`${card.sql && html`<div class="card-note mono typed" dir="auto"><${Revealed} text=${card.sql} /></div>`}
    <div class="scroll-x table" tabindex="0" role="group" aria-label=${t("card.table")}>
      <table><thead><tr>${columns.map((column, i) => html`<th key=${i} scope="col">${has(`column.${column}`) ? t(`column.${column}`) : html`<${Revealed} text=${String(column)} />`}</th>`)}</tr></thead>
      <tbody>${rows.map((row, i) => html`<tr key=${i}>${row.map((cell, j) => html`<td key=${j}><${Cell} value=${cell} column=${columns[j]} /></td>`)}</tr>`)}</tbody></table>
    </div>
    ${card.truncated ? html`<p class="card-note">${t("card.firstRows", { count: rows.length })}</p>` : rows.length < total && html`<p class="card-note">${t("card.rows", { count: rows.length, total })}</p>`}
    ${card.unread?.map(({ view, rows: count, total_rows: total }) => html`<p key=${view} class="card-note">${t("card.unread", { view, count, total })}</p>`)}`;
}

function Cell({ value, column }) {
  const { t, has, dateTime } = useApp();
  if (value === null || value === undefined) return html`<span class="muted">—</span>`;
  if (column === "created_at" && !Number.isNaN(Date.parse(value))) return dateTime(value);
  if (column === "status" && has(`status.${value}`)) return t(`status.${value}`);
  if (column === "role" && has(`role.${value}`)) return t(`role.${value}`);
  return html`<${Revealed} text=${typeof value === "object" ? JSON.stringify(value) : String(value)} />`;
}

function List({ card, chatId }) {
  const { t } = useApp();
  if (!card.items.length) return html`<p class="card-text muted">${t("card.empty")}</p>`;
  return html`<${Fold} class="items"><ul>${card.items.map((item) => html`<${Item} key=${item.id} item=${item} chatId=${chatId} />`)}</ul><//>`;
}

function Item({ item, chatId }) {
  const { t } = useApp();
  const [editing, setEditing] = useState(null);
  if (editing) return html`<li><${Editor} chatId=${chatId} action=${editing} close=${() => setEditing(null)} /></li>`;
  return html`<li class=${item.done ? "done" : ""} data-item-id=${item.id}>
    ${"done" in item && html`<span class="item-mark"><${Icon} name=${item.done ? "check" : "cross"} /></span>`}
    <span class="item-text" dir="auto"><${Revealed} text=${item.text} />${item.done && html`<span class="visually-hidden"> (${t("card.done")})</span>`}</span>
    ${item.actions?.map((action) => html`<${ActionButton} key=${action.label + action.tool} chatId=${chatId} action=${action} edit=${setEditing} small about=${item.text} />`)}
  </li>`;
}

function ActionButton({ chatId, action, edit, argumentsOf, small = false, about }) {
  const { known, actions } = useApp();
  const [sent, setSent] = useState(false);
  const running = useRunning(chatId);
  const label = known(`action.${action.label}`, action.label);
  const press = async () => {
    if (action.edit) return edit(action);
    setSent(true);
    await actions.invoke(chatId, action.tool, argumentsOf ? argumentsOf() : action.arguments);
    return setSent(false);
  };
  return html`<button type="button" class=${`button ${action.style ?? "default"} ${small ? "small" : ""}`} data-action=${action.label}
    aria-label=${about ? `${label}: ${about}` : undefined} disabled=${running || sent} onClick=${press}>${label}</button>`;
}

function Editor({ chatId, action, close }) {
  const { t, actions } = useApp();
  const field = useRef(null);
  const [value, setValue] = useState(String(action.arguments?.[action.edit] ?? ""));
  const running = useRunning(chatId);
  useEffect(() => field.current.focus(), []);
  const save = async (event) => {
    event.preventDefault();
    const reply = await actions.invoke(chatId, action.tool, { ...action.arguments, [action.edit]: value });
    if (reply) close();
  };
  const onKeyDown = (event) => {
    if (event.key !== "Escape" || isComposing(event)) return;
    event.preventDefault();
    close();
  };
  return html`<form class="editor" onSubmit=${save} onKeyDown=${onKeyDown}>
    <textarea aria-label=${t("editor.label")} ref=${field} rows=${Math.min(16, value.split("\n").length + 2)} value=${value}
      onInput=${(event) => setValue(event.target.value)}></textarea>
    <div class="actions">
      <button class="button primary" disabled=${running || !value.trim()}>${t("editor.save")}</button>
      <button type="button" class="button quiet" onClick=${close}>${t("editor.cancel")}</button>
    </div>
  </form>`;
}
