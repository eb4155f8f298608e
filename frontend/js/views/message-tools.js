// What can be done with a message, and what is known about a reply. Not needed for the first paint.

import { useComputed } from "@preact/signals";
import { useState } from "preact/hooks";
import { modelOf, waitingFor, windowNumbers } from "../selectors.js";
import { windowsOf } from "../model-window.js";
import { CopyButton, MenuButton } from "./controls.js";
import { useApp, useRunning } from "./context.js";
import { html } from "./html.js";
import { Icon, IconButton } from "./icons.js";
import { ErrorText } from "./messages.js";

export function UserTools({ message }) {
  const { t, edits } = useApp();
  return html`<div class="message-tools"><${Written} at=${message.created_at} />
    <${CopyButton} text=${message.content} label=${t("copy.text")} />
    <${IconButton} name="edit" label=${t("message.edit")} data-action="edit" onClick=${() => edits.open(edits.idOf(message), message.content)} />
    <${MoreTools} message=${message} /></div>`;
}

function Written({ at }) {
  const { when, dateTime } = useApp();
  return html`<time class="when" datetime=${at} title=${dateTime(at)}>${when(at)}</time>`;
}

export function ReplyTools({ message, standing }) {
  const { t, actions } = useApp();
  const { content, chat_id: chatId, is_ephemeral: ephemeral } = message;
  return html`<${Figures} message=${message} />
    <div class="message-tools"><${CopyButton} text=${content} label=${t("copy.markdown")} />
      ${standing && html`<${Regenerate} chatId=${chatId} held=${standing === "held"} />`}
      <${IconButton} name="prompt" label=${t("message.useAsPrompt")} data-action="use-as-prompt" disabled=${useRunning(chatId)}
        onClick=${() => actions.invoke(chatId, "system_prompt_draft", { content })} />
      ${!ephemeral && html`<${MoreTools} message=${message} />`}
    </div>
    ${message.variant && html`<${Variants} message=${message} />`}`;
}

/** `held`: a tool was used by hand since, so that the reply can't be made anew. */
function Regenerate({ chatId, held }) {
  const { t, actions } = useApp();
  const off = useRunning(chatId) || held;
  // Not `disabled`: who comes by the keyboard should learn why.
  return html`<${IconButton} name="retry" label=${held ? t("message.regenerateHeld") : t("message.regenerate")} data-action="regenerate"
    aria-disabled=${off} onClick=${() => off || actions.regenerate(chatId)} />`;
}

function MoreTools({ message }) {
  const { t, actions } = useApp();
  const { id, chat_id: chatId, hidden } = message;
  const items = [
    { id: "hide", icon: hidden ? "eye" : "eyeOff", label: t(hidden ? "message.unhide" : "message.hide"), act: () => actions.hideMessage(id, !hidden) },
    { id: "fork", icon: "fork", label: t("message.fork"), act: () => actions.fork(chatId, id) },
  ];
  return html`<${MenuButton} icon="more" label=${t("message.more")} items=${items} />`;
}

/** The replies to one question, of which one is shown. */
function Variants({ message }) {
  const { t, actions, ui } = useApp();
  const { index, count } = message.variant;
  const running = useRunning(message.chat_id);
  const show = async (wanted) => {
    if (await actions.showVariant(message.id, wanted)) ui.announce(t("variant.shown", { index: wanted, count }));
  };
  const step = (action, wanted) => {
    const off = running || wanted < 1 || wanted > count;
    return html`<${IconButton} name="chevron" class=${action} label=${t(`variant.${action}`)} data-action=${`variant-${action}`} aria-disabled=${off}
      onClick=${() => off || show(wanted)} />`;
  };
  return html`<div class="variants" role="group" aria-label=${t("variant.label")} data-variant=${index}>
    ${step("previous", index - 1)}<span aria-hidden="true">${index}/${count}</span><span class="visually-hidden">${t("variant.shown", { index, count })}</span>${step("next", index + 1)}
  </div>`;
}

/** Short figures in a line; pressed, in full words below it. */
function Figures({ message }) {
  const app = useApp();
  const [open, setOpen] = useState(false);
  const figures = figuresOf(app, message);
  return html`<button type="button" class="figures" data-figures aria-expanded=${open} title=${figures.map(({ full }) => full).join("\n")} onClick=${() => setOpen(!open)}>
      ${figures.map(({ short }, i) => short && html`<span key=${i}>${short}</span>`)}
    </button>
    ${open && html`<ul class="figures-full">${figures.map(({ full }, i) => html`<li key=${i} dir="auto">${full}</li>`)}</ul>`}`;
}

function figuresOf({ t, seconds, decimal, number, when, dateTime }, { model, metrics, created_at: at }) {
  const { first_token_ms: wait, tokens_per_second: speed, prompt_tokens: prompt, reply_tokens: reply, num_ctx: window, host } = metrics ?? {};
  const figures = [
    model && { short: model, full: t("meta.model", { name: model }) },
    host && { short: null, full: t("meta.host", { name: host }) },
    wait > 0 && { short: t("meta.firstToken", { seconds: seconds(wait) }), full: t("meta.firstTokenFull", { seconds: seconds(wait) }) },
    speed > 0 && { short: t("meta.speed", { speed: decimal(speed) }), full: t("meta.speedFull", { speed: decimal(speed) }) },
    prompt > 0 && { short: t("meta.prompt", { tokens: number(prompt) }), full: t("meta.promptFull", { tokens: number(prompt) }) },
    reply > 0 && { short: null, full: t("meta.replyFull", { tokens: number(reply) }) },
    window > 0 && { short: null, full: t("meta.windowFull", { tokens: number(window) }) },
    { short: when(at), full: t("meta.written", { time: dateTime(at) }) },
  ];
  return figures.filter(Boolean);
}

/** Why a message still waits, and what can be done with it meanwhile. */
export function QueueTools({ entry }) {
  const { t, store, actions, drafts, edits } = useApp();
  const { clientId, chatId, text } = entry;
  const running = useRunning(chatId);
  const held = entry.state === "paused";
  const asks = useComputed(() => waitingFor(store.chat(chatId).value) === "approval").value;
  const reason = held || !running ? "queue.paused" : asks ? "queue.afterAnswer" : "queue.waits";
  const edit = () => {
    actions.startEditQueued(clientId);
    edits.open(edits.idOf(entry), text);
  };
  return html`<div class="queue-tools">
    <p class="note" data-note=${held ? "paused" : "queued"}><${Icon} name="clock" />${t(reason)}</p>
    <button type="button" class="link" data-action="send-now" onClick=${() => actions.sendNow(clientId)}>${t(running ? "queue.sendNow" : "composer.send")}</button>
    <button type="button" class="link" data-action="edit" onClick=${edit}>${t("action.edit")}</button>
    <button type="button" class="link" data-action="cancel-queued" onClick=${() => drafts.putBack(chatId, actions.takeBack(clientId))}>${t("message.backToDraft")}</button>
  </div>`;
}

/** A message that the model's window can't hold: both numbers, and the ways out. */
export function TooLong({ chatId, message, error, retryable }) {
  const { t, store, actions, drafts, edits, megabytes } = useApp();
  const numbers = windowNumbers(error);
  const workspace = store.workspace.value;
  const larger = largerWindow(modelOf(workspace, workspace.chats[chatId]), numbers);
  const widen = async () => {
    if (await actions.updateModel(larger.name, larger.tokens)) actions.regenerate(chatId);
  };
  const startNew = async () => {
    const chat = await actions.createChat({ model: workspace.chats[chatId]?.model });
    if (chat) drafts.putBack(chat.id, message.content);
  };
  return html`${numbers ? html`<p class="error-text" data-too-long>${t("error.window", numbers)}</p>` : html`<${ErrorText} error=${error} />`}
    ${retryable && larger && html`<button type="button" class="button small" data-action="larger-window" onClick=${widen}
      title=${larger.bytes ? t("window.memory", { size: megabytes(larger.bytes) }) : undefined}>${t("window.larger", { tokens: larger.tokens })}</button>`}
    ${message && html`<button type="button" class="button small" data-action="shorten" onClick=${() => edits.open(edits.idOf(message), message.content)}>${t("message.edit")}</button>
      <button type="button" class="button small" data-action="new-chat-with" onClick=${startNew}>${t("window.newChat")}</button>`}`;
}

/** The smallest round window that holds what is needed, as `{name, tokens, bytes}`; null when the model has none. */
function largerWindow(model, numbers) {
  if (!model || model.missing) return null;
  const tokens = windowsOf(model).find((size) => size > model.num_ctx && size > (numbers?.needed ?? 0));
  return tokens ? { name: model.name, tokens, bytes: (model.kv_bytes_per_token ?? 0) * tokens } : null;
}
