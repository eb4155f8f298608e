// One row of the conversation each: what the person wrote, what the model answered, what tools did.

import { useComputed } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { Card } from "./card.js";
import { CopyButton, Fold, Revealed } from "./controls.js";
import { useApp, useRunning } from "./context.js";
import { html, memo } from "./html.js";
import { Icon, IconButton } from "./icons.js";
import { Markdown } from "./markdown-view.js";

/** A stored message; a streaming one follows its live text, the others ignore what the chat does. */
export const MessageRow = memo(({ chat, message, retryable }) => {
  const streaming = message.status === "streaming";
  const shown = useComputed(() => chat.value.live[message.id]?.message ?? message);
  const current = streaming ? shown.value : message;
  if (current.role === "user") return html`<${UserMessage} message=${current} retryable=${retryable} />`;
  if (current.role === "assistant") return html`<${Reply} message=${current} retryable=${retryable} />`;
  if (current.card) return html`<${Card} message=${current} />`;
  return html`<${Receipt} message=${current} />`;
});

function UserMessage({ message, retryable }) {
  const { t, dateTime } = useApp();
  return html`<article class="user" data-message-id=${message.id} data-status=${message.status} data-role="user">
    <h2 class="visually-hidden">${t("message.you")}</h2>
    <div class="bubble" title=${dateTime(message.created_at)}><${Fold} class="typed-fold"><div class="typed" dir="auto" data-text>${message.content}</div><//></div>
    <div class="message-tools"><${CopyButton} text=${message.content} /></div>
    ${message.status === "failed" && html`<${TurnFailure} chatId=${message.chat_id} error=${message.metrics?.error} retryable=${retryable} />`}
  </article>`;
}

export function TurnFailure({ chatId, error, retryable }) {
  return html`<div class="failure" data-failure=${error?.code ?? "internal"}>
    <${Icon} name="alert" /><${ErrorText} error=${error} />
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
    onClick=${() => actions.retry(chatId)}><${Icon} name="retry" />${t("message.retry")}</button>`;
}

function Reply({ message, retryable }) {
  const { t } = useApp();
  const { status, content, thinking } = message;
  const temporary = message.is_ephemeral === 1;
  const streaming = status === "streaming";
  return html`<article class=${temporary ? "reply temporary" : "reply"} data-message-id=${message.id} data-status=${status} data-role="assistant" aria-busy=${streaming}>
    <h2 class="visually-hidden">${t("message.model")}</h2>
    ${temporary && html`<span class="chip temporary">${t("card.temporary")}</span>`}
    ${thinking && html`<${Thinking} text=${thinking} active=${streaming && !content} />`}
    ${content && html`<${Markdown} text=${content} streaming=${streaming} />`}
    ${!streaming && (temporary ? html`<${ReplyTools} message=${message} />` : html`<${ReplyNotes} message=${message} retryable=${retryable} /><${ReplyMeta} message=${message} />`)}
  </article>`;
}

function Thinking({ text, active }) {
  const { t } = useApp();
  return html`<details class="thinking"><summary><${Icon} name="chevron" />${t(active ? "thinking.active" : "thinking.done")}</summary>
    <div class="typed" dir="auto">${text}</div></details>`;
}

function ReplyNotes({ message, retryable }) {
  const { t } = useApp();
  const { status, metrics = {} } = message;
  const left = metrics?.left_out_messages ?? 0;
  const nothingChanged = metrics?.changes === 0 && (metrics.failed_calls > 0 || metrics.nothing_changed);
  return html`
    ${status === "stopped" && html`<p class="note" data-note="stopped">${t("message.stopped")}</p>`}
    ${status === "interrupted" &&
    html`<p class="note warn" data-note="interrupted"><${Icon} name="alert" />${t("message.interrupted")}${retryable && html`<${RetryButton} chatId=${message.chat_id} />`}</p>
      ${metrics?.error && html`<${ErrorText} error=${metrics.error} />`}`}
    ${metrics?.done_reason === "length" && html`<p class="note warn" data-note="length">${t("message.cut")}</p>`}
    ${nothingChanged && html`<p class="note" data-note="nothing-changed">${t("message.nothingChanged")}</p>`}
    ${left > 0 && html`<p class="note" data-note="left-out">${t("message.leftOut", { count: left })}</p>`}`;
}

function ReplyMeta({ message }) {
  const { t, seconds, decimal } = useApp();
  const { model, metrics } = message;
  return html`<div class="meta">
    ${model && html`<span>${model}</span>`}
    ${metrics?.first_token_ms > 0 && html`<span>${t("meta.firstToken", { seconds: seconds(metrics.first_token_ms) })}</span>`}
    ${metrics?.tokens_per_second > 0 && html`<span>${t("meta.speed", { speed: decimal(metrics.tokens_per_second) })}</span>`}
    <${ReplyTools} message=${message} />
  </div>`;
}

function ReplyTools({ message }) {
  const { t, actions } = useApp();
  const { content, chat_id: chatId } = message;
  const running = useRunning(chatId);
  return content && html`<div class="message-tools"><${CopyButton} text=${content} />
    <${IconButton} name="prompt" label=${t("message.useAsPrompt")} data-action="use-as-prompt" disabled=${running}
      onClick=${() => actions.invoke(chatId, "system_prompt_draft", { content })} />
  </div>`;
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

/** Sent by this browser and not yet acknowledged by the server. */
export function PendingMessage({ entry }) {
  const { t, actions, drafts } = useApp();
  const failed = entry.state === "failed";
  return html`<article class="user pending" data-pending=${entry.state} data-client-id=${entry.clientId}>
    <h2 class="visually-hidden">${t("message.you")}</h2>
    <div class="bubble"><div class="typed" dir="auto" data-text>${entry.text}</div></div>
    ${!failed && html`<p class="note"><${Icon} name="clock" />${t("message.sending")}</p>`}
    ${failed &&
    html`<div class="failure"><${Icon} name="alert" /><${ErrorText} error=${entry.error} />
      <button type="button" class="button small" onClick=${() => actions.sendAgain(entry.clientId)}>${t("message.sendAgain")}</button>
      <button type="button" class="button small quiet" onClick=${() => drafts.putBack(entry.chatId, actions.takeBack(entry.clientId))}>${t("message.backToDraft")}</button>
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
