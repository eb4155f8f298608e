// One row of the conversation each: what the person wrote, what the model answered, what tools did.

import { useComputed } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { standingOf } from "../selectors.js";
import { Card, Sight } from "./card.js";
import { Revealed } from "./controls.js";
import { useApp, useRunning } from "./context.js";
import { html, memo } from "./html.js";
import { Icon } from "./icons.js";
import { later } from "./later.js";
import { Pieces, Typed } from "./pieces.js";
import { Markdown } from "./prose.js";

const TOOLS = "./message-tools.js";
const EDITOR = "./message-editor.js";
const useTools = later(() => import(TOOLS));
const useEditor = later(() => import(EDITOR));

/** A stored message; a streaming one follows its live text, the others ignore what the chat does. */
export const MessageRow = memo(({ chat, message, retryable }) => {
  const streaming = message.status === "streaming";
  const shown = useComputed(() => chat.value.live[message.id]?.message ?? message);
  const current = streaming ? shown.value : message;
  if (current.role === "user") return html`<${UserMessage} chat=${chat} message=${current} retryable=${retryable} />`;
  if (current.role === "assistant") return html`<${Reply} chat=${chat} message=${current} retryable=${retryable} />`;
  if (current.card) return html`<${Card} message=${current} />`;
  return html`<${Receipt} message=${current} />`;
});

function UserMessage({ chat, message, retryable }) {
  const { t } = useApp();
  const tools = useTools();
  const { article, editing, editor } = useEditing(message);
  return html`<article class="user" ref=${article} data-message-id=${message.id} data-status=${message.status} data-role="user" data-hidden=${message.hidden}>
    <h2 class="visually-hidden">${t("message.you")}</h2>
    ${editing && editor
      ? html`<${editor.EditMessage} chat=${chat} message=${message} />`
      : html`<div class="bubble"><${Typed} text=${message.content} /></div>
        <div class="under">${tools && html`<${tools.UserTools} message=${message} />`}</div>`}
    ${message.hidden && html`<${HiddenNote} message=${message} />`}
    ${message.status === "failed" && html`<${TurnFailure} chatId=${message.chat_id} message=${message} error=${message.metrics?.error} retryable=${retryable} />`}
  </article>`;
}

/** Whether a message of the person's is being edited; afterwards the focus is where it came from. */
function useEditing(message) {
  const { edits } = useApp();
  const article = useRef(null);
  const editing = edits.isOpen(edits.idOf(message));
  const before = useRef(editing);
  useEffect(() => {
    if (before.current && !editing) article.current.querySelector("[data-action=edit]")?.focus();
    before.current = editing;
  }, [editing]);
  return { article, editing, editor: useEditor(editing) };
}

/** That the model does not get a message, and the way back. */
function HiddenNote({ message }) {
  const { t, actions } = useApp();
  return html`<p class="note" data-note="hidden"><${Icon} name="eyeOff" />${t("message.hidden")}
    <button type="button" class="link" data-action="show" onClick=${() => actions.hideMessage(message.id, false)}>${t("message.unhide")}</button></p>`;
}

export function TurnFailure({ chatId, message, error, retryable }) {
  const tools = useTools(error?.code === "too_large");
  return html`<div class="failure" data-failure=${error?.code ?? "internal"}>
    <${Icon} name="alert" />
    ${tools ? html`<${tools.TooLong} chatId=${chatId} message=${message} error=${error} retryable=${retryable} />` : html`<${ErrorText} error=${error} />`}
    ${retryable && html`<${RetryButton} chatId=${chatId} />`}
  </div>`;
}

/** The person's language says what kind of failure it is, the server's own words say which. */
export function ErrorText({ error }) {
  const { t, has } = useApp();
  const key = `error.${error?.code}`;
  return html`<div class="error-text"><p>${t(has(key) ? key : "error.internal")}</p>
    ${error?.message && html`<p class="detail" dir="auto"><${Revealed} text=${error.message} /></p>`}</div>`;
}

function RetryButton({ chatId }) {
  const { t, actions } = useApp();
  return html`<button type="button" class="button small" data-action="retry" disabled=${useRunning(chatId)}
    onClick=${() => actions.regenerate(chatId)}><${Icon} name="retry" />${t("message.retry")}</button>`;
}

function Reply({ chat, message, retryable }) {
  const { t } = useApp();
  const tools = useTools();
  const standing = useComputed(() => standingOf(chat.value, message.id)).value;
  const { status, content, thinking } = message;
  const temporary = message.is_ephemeral === 1;
  const streaming = status === "streaming";
  return html`<article class=${temporary ? "reply temporary" : "reply"} data-message-id=${message.id} data-status=${status} data-role="assistant"
      data-hidden=${message.hidden} data-newest=${standing !== null} aria-busy=${streaming}>
    <h2 class="visually-hidden">${t("message.model")}</h2>
    ${temporary && html`<div class="chips"><span class="chip temporary">${t("card.temporary")}</span><${Sight} message=${message} /></div>`}
    ${thinking && html`<${Thinking} message=${message} active=${streaming && !content} />`}
    ${content && html`<${Markdown} text=${content} streaming=${streaming} />`}
    ${message.hidden && html`<${HiddenNote} message=${message} />`}
    ${!streaming && !temporary && html`<${ReplyNotes} message=${message} retryable=${retryable} continuable=${standing === "last"} />`}
    ${!streaming && content && html`<div class="meta">${tools && html`<${tools.ReplyTools} message=${message} standing=${standing} />`}</div>`}
  </article>`;
}

function Thinking({ message, active }) {
  const { t, seconds } = useApp();
  const passed = useSecondsOf(message, active);
  const known = message.metrics?.thinking_ms;
  const spent = known ? seconds(known) : passed;
  const summary = active ? t("thinking.active", { seconds: passed }) : spent ? t("thinking.spent", { seconds: spent }) : t("thinking.done");
  return html`<details class="thinking"><summary><${Icon} name="chevron" /><span>${summary}</span></summary>
    <div class="typed" dir="auto"><${Pieces} text=${message.thinking} /></div></details>`;
}

/** Seconds since the message began, drawn anew each second while `active`; then what they came to in this page, or null. */
function useSecondsOf(message, active) {
  const secondsNow = () => Math.max(0, Math.round((Date.now() - Date.parse(message.created_at)) / 1000));
  const last = useRef(null);
  const [, draw] = useState(0);
  useEffect(() => {
    if (!active) return undefined;
    const timer = setInterval(() => draw((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, [active]);
  if (active) last.current = secondsNow();
  return last.current;
}

function ReplyNotes({ message, retryable, continuable }) {
  const { t } = useApp();
  const { status, metrics } = message;
  const left = metrics?.left_out_messages ?? 0;
  const nothingChanged = metrics?.changes === 0 && (metrics.failed_calls > 0 || metrics.nothing_changed);
  const goOn = continuable && html`<${ContinueButton} chatId=${message.chat_id} />`;
  return html`
    ${status === "stopped" && html`<p class="note" data-note="stopped">${t("message.stopped")}${goOn}</p>`}
    ${status === "interrupted" &&
    html`<p class="note warn" data-note="interrupted"><${Icon} name="alert" />${t(metrics?.error ? "message.interrupted" : "message.restarted")}${goOn}${retryable && html`<${RetryButton} chatId=${message.chat_id} />`}</p>
      ${metrics?.error && html`<${ErrorText} error=${metrics.error} />`}`}
    ${status === "complete" && metrics?.done_reason === "length" && html`<p class="note warn" data-note="length"><${Icon} name="alert" />${t("message.cut")}${goOn}</p>`}
    ${metrics?.prompt_cut && html`<p class="note alarm" data-note="prompt-cut"><${Icon} name="alert" /><span>${t("message.promptCut")}</span></p>`}
    ${nothingChanged && html`<p class="note" data-note="nothing-changed">${t("message.nothingChanged")}</p>`}
    ${left > 0 && html`<p class="note" data-note="left-out">${t("message.leftOut", { count: left })}</p>`}`;
}

function ContinueButton({ chatId }) {
  const { t, actions } = useApp();
  return html`<button type="button" class="button small" data-action="continue" disabled=${useRunning(chatId)}
    onClick=${() => actions.continueReply(chatId)}><${Icon} name="resume" />${t("message.continue")}</button>`;
}

/** The permanent trace of tool calls: one quiet line a call. */
function Receipt({ message }) {
  const { t, has } = useApp();
  const calls = readReceipt(message.content);
  return html`<ul class="receipt" data-message-id=${message.id} data-role="receipt">${calls.map(({ tool, outcome, more }, i) =>
    more
      ? html`<li key=${i}>${t("receipt.more", { count: more })}</li>`
      : html`<li key=${i}><${Icon} name=${succeeded(outcome) ? "check" : "cross"} /><span>${has(`tool.${tool}`) ? t(`tool.${tool}`) : tool}</span><span class="outcome" dir="auto">${outcome}</span></li>`,
  )}</ul>`;
}

const succeeded = (outcome) => /^ok\b/.test(outcome ?? "");

function readReceipt(content) {
  try {
    const calls = JSON.parse(content);
    return Array.isArray(calls) ? calls : [];
  } catch {
    return [];
  }
}

/** Written in this browser and not yet acknowledged by the server: on its way, refused, or waiting for its turn. */
export function PendingMessage({ entry }) {
  const { t, actions, drafts } = useApp();
  const tools = useTools();
  const { article, editing, editor } = useEditing(entry);
  const { clientId, state } = entry;
  const waits = state === "queued" || state === "paused";
  return html`<article class="user pending" ref=${article} data-pending=${state} data-client-id=${clientId}>
    <h2 class="visually-hidden">${t("message.you")}</h2>
    ${editing && editor
      ? html`<${editor.EditQueued} entry=${entry} />`
      : html`<div class="bubble"><${Typed} text=${entry.text} /></div>
        ${waits && tools && html`<${tools.QueueTools} entry=${entry} />`}`}
    ${state === "sending" && html`<p class="note"><${Icon} name="clock" />${t("message.sending")}</p>`}
    ${state === "failed" &&
    html`<div class="failure"><${Icon} name="alert" /><${ErrorText} error=${entry.error} />
      <button type="button" class="button small" data-action="send-again" onClick=${() => actions.release(clientId)}>${t("message.sendAgain")}</button>
      <button type="button" class="button small quiet" data-action="back-to-draft" onClick=${() => drafts.putBack(entry.chatId, actions.takeBack(clientId))}>${t("message.backToDraft")}</button>
    </div>`}
  </article>`;
}

/** What a clearing took and why, with the way back while there is one. */
export function ClearedLine({ chatId, line }) {
  const { t, has } = useApp();
  const { reason, family, messages: count, tokens, undoUntil } = line;
  const undoable = useUntil(undoUntil);
  const what = has(`family.${family}`) ? t(`family.${family}`) : family;
  return html`<div class="cleared" data-cleared=${reason}>
    <span>${t("cleared.what", { count, family: what, tokens })} — ${t(`cleared.${reason}`)}</span>
    ${undoable && html`<${UndoButton} chatId=${chatId} />`}
  </div>`;
}

/** The way back after a reload, when the line that named the clearing is gone. */
export function UndoLine({ chat, chatId }) {
  const { t } = useApp();
  const undoable = useUntil(useComputed(() => chat.value.context?.undo_until).value);
  return undoable && html`<div class="cleared" data-cleared="earlier"><span>${t("cleared.undoable")}</span><${UndoButton} chatId=${chatId} /></div>`;
}

function UndoButton({ chatId }) {
  const { t, actions } = useApp();
  return html`<button type="button" class="link" data-action="undo" onClick=${() => actions.undo(chatId)}>${t("cleared.undo")}</button>`;
}

/** True until the moment `iso` has come; false at once when there is none. */
function useUntil(iso) {
  const left = iso ? Date.parse(iso) - Date.now() : 0;
  const [, draw] = useState(0);
  useEffect(() => {
    if (left <= 0) return undefined;
    const timer = setTimeout(() => draw((count) => count + 1), left);
    return () => clearTimeout(timer);
  }, [iso]);
  return left > 0;
}
