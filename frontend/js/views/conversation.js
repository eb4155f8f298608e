// The list of messages and where it is scrolled to. It follows the end only while the person is there.

import { useComputed } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { hostOf, waitingFor } from "../selectors.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { ClearedLine, MessageRow, PendingMessage, TurnFailure, UndoLine } from "./messages.js";
import { useRowList } from "./row-list.js";

// Older messages are asked for before the person sees the top.
const TOP_PX = 800;

// A model that writes at all writes more often.
const SILENCE_MS = 10_000;

// How long a message that was looked for stays marked.
const MARKED_MS = 2500;

export function Conversation({ chatId }) {
  const { t, store, actions, ui } = useApp();
  const chat = store.chat(chatId);
  const messages = useComputed(() => chat.value.messages);
  const cleared = useComputed(() => chat.value.cleared);
  const loaded = useComputed(() => chat.value.loaded).value;
  const rows = useComputed(() => withLines(messages.value, cleared.value)).value;
  const { frame, parts, atEnd, onScroll, toEnd, show } = useRowList(rows.map((row) => row.key));
  const marked = useTarget(chatId, loaded, show);

  const { followed } = ui;
  const seen = useRef(followed.value);
  useEffect(() => {
    if (followed.value !== seen.current) toEnd();
    seen.current = followed.value;
  }, [followed.value]);
  const scrolled = ({ currentTarget }) => {
    onScroll();
    if (currentTarget.scrollTop < TOP_PX) actions.loadOlder(chatId);
  };
  return html`<div class="conversation">
    <div class="scroll" ref=${frame} onScroll=${scrolled} tabindex="0" role="region" aria-label=${t("conversation.label")} data-conversation=${chatId}>
      <div class="column" data-loaded=${loaded}>
        ${loaded ? html`<${Column} chat=${chat} chatId=${chatId} rows=${rows} parts=${parts} marked=${marked} />` : html`<p class="loading">${t("conversation.loading")}</p>`}
      </div>
    </div>
    ${!atEnd && html`<button type="button" class="to-end" onClick=${toEnd}><${Icon} name="down" />${t("conversation.toEnd")}</button>`}
  </div>`;
}

/** Brings the message that the person looks for into view and marks it for a moment; returns its id meanwhile. */
function useTarget(chatId, loaded, show) {
  const { ui } = useApp();
  const target = ui.target.value;
  const [marked, setMarked] = useState(null);
  useEffect(() => {
    if (!loaded || target?.chatId !== chatId) return;
    ui.clearTarget();
    show(String(target.messageId), (row) => {
      const message = row.firstElementChild;
      message.tabIndex = -1;
      message.focus({ preventScroll: true });
      setMarked(row.dataset.row);
    });
  }, [loaded, target]);
  useEffect(() => {
    if (!marked) return undefined;
    const timer = setTimeout(() => setMarked(null), MARKED_MS);
    return () => clearTimeout(timer);
  }, [marked]);
  return marked;
}

function Column({ chat, chatId, rows, parts, marked }) {
  const { outbox } = useApp();
  const hasMore = useComputed(() => chat.value.hasMore).value;
  const pending = useComputed(() => outbox.entries.value.filter((entry) => entry.chatId === chatId)).value;
  const arrived = useMemo(() => new Set(rows.map(({ message }) => message?.client_id)), [rows]);
  const lastUser = useMemo(() => rows.findLastIndex(({ message }) => message?.role === "user"), [rows]);
  const noLines = useMemo(() => rows.every((row) => row.message), [rows]);
  const waiting = pending.filter((entry) => !arrived.has(entry.clientId));
  const draw = (index) => {
    const { key, message, line } = rows[index];
    return html`<div class="row" key=${key} data-row=${key} data-marked=${marked === key}>
      ${line ? html`<${ClearedLine} chatId=${chatId} line=${line} />` : html`<${MessageRow} chat=${chat} message=${message} retryable=${index >= lastUser} />`}
    </div>`;
  };
  return html`
    ${hasMore && html`<${Earlier} chatId=${chatId} />`}
    ${rows.length + waiting.length === 0 && html`<${EmptyChat} />`}
    <div class="rows" data-rows>
      ${parts.map((part, i) => ("room" in part ? html`<${Room} key=${`room-${i}`} height=${part.room} />` : draw(part.index)))}
    </div>
    ${noLines && html`<${UndoLine} chat=${chat} chatId=${chatId} />`}
    <${TurnState} chat=${chat} chatId=${chatId} />
    ${waiting.map((entry) => html`<${PendingMessage} key=${entry.clientId} entry=${entry} />`)}`;
}

/** Stands for rows that are not drawn. */
const Room = ({ height }) => html`<div style=${{ height: `${height}px` }}></div>`;

/** Messages with each cleared line after the last message that stood before it. */
function withLines(messages, cleared) {
  const rows = messages.map((message) => ({ key: String(message.id), message }));
  for (const line of cleared) {
    const place = rows.findLastIndex((row) => (row.line ? row.line.seq < line.seq : row.message.id <= line.afterId));
    rows.splice(place + 1, 0, { key: `cleared-${line.seq}`, line });
  }
  return rows;
}

function Earlier({ chatId }) {
  const { t, actions } = useApp();
  return html`<button type="button" class="link earlier" onClick=${() => actions.loadOlder(chatId)}>${t("conversation.earlier")}</button>`;
}

function EmptyChat() {
  const { t } = useApp();
  return html`<div class="empty"><h2>${t("empty.chatTitle")}</h2><p>${t("empty.chatBody")}</p></div>`;
}

/** Below the last message: what the turn waits for, or why it failed when no message says so. */
function TurnState({ chat, chatId }) {
  const { t } = useApp();
  const running = useComputed(() => chat.value.turn !== null).value;
  const waiting = useComputed(() => chat.value.turn && waitingFor(chat.value)).value;
  const writing = useComputed(() => Object.values(chat.value.live).some(({ message }) => message.content || message.thinking)).value;
  const problem = useComputed(() => untoldProblem(chat.value)).value;
  const silent = useSilence(chat, running);
  const host = useComputed(() => hostOf(chat.value)).value;
  const state = waiting || (silent && "silent") || (!writing && "working");
  if (running && state) {
    const words = state === "silent" && host ? t("turn.silentHost", { name: host }) : t(`turn.${state}`);
    return html`<p class="working" data-turn=${state}><span class="pulse"></span>${words}</p>`;
  }
  return problem && html`<${TurnFailure} chatId=${chatId} error=${problem} retryable=${false} />`;
}

/** Whether nothing came for a while; drawn again when that changes, not for every delta. */
function useSilence(chat, running) {
  const [silent, setSilent] = useState(false);
  useEffect(() => {
    if (!running) return undefined;
    let timer = null;
    const heard = () => {
      clearTimeout(timer);
      setSilent(false);
      timer = setTimeout(setSilent, SILENCE_MS, true);
    };
    const unsubscribe = chat.subscribe(heard);
    return () => {
      unsubscribe();
      clearTimeout(timer);
      setSilent(false);
    };
  }, [chat, running]);
  return silent;
}

function untoldProblem({ problem, messages }) {
  const told = problem && messages.some((message) => message.turn_id === problem.turnId && (message.status === "failed" || message.metrics?.error));
  return told ? null : problem;
}
