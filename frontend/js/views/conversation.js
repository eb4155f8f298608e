// The list of messages and where it is scrolled to. It follows the end only while the person is there.

import { useComputed } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { waitingFor } from "../selectors.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { ClearedLine, MessageRow, PendingMessage, TurnFailure, UndoLine } from "./messages.js";

// Within this distance of the end the person counts as being there.
const END_PX = 48;

// Older messages are asked for before the person sees the top.
const TOP_PX = 400;

export function Conversation({ chatId }) {
  const { t, store, actions, ui } = useApp();
  const chat = store.chat(chatId);
  const messages = useComputed(() => chat.value.messages);
  const loaded = useComputed(() => chat.value.loaded);
  const frame = useRef(null);
  const column = useRef(null);
  const { atEnd, onScroll, toEnd } = useSteadyScroll(frame, column);

  const { followed } = ui;
  const seen = useRef(followed.value);
  useEffect(() => {
    if (followed.value !== seen.current) toEnd();
    seen.current = followed.value;
  }, [followed.value]);
  const scrolled = ({ currentTarget }) => {
    onScroll(currentTarget);
    if (currentTarget.scrollTop < TOP_PX) actions.loadOlder(chatId);
  };
  return html`<div class="conversation">
    <div class="scroll" ref=${frame} onScroll=${scrolled} tabindex="0" role="region" aria-label=${t("conversation.label")} data-conversation=${chatId}>
      <div class="column" ref=${column} data-loaded=${loaded.value}>
        ${loaded.value ? html`<${Rows} chat=${chat} messages=${messages.value} chatId=${chatId} />` : html`<p class="loading">${t("conversation.loading")}</p>`}
      </div>
    </div>
    ${!atEnd && html`<button type="button" class="to-end" onClick=${toEnd}><${Icon} name="down" />${t("conversation.toEnd")}</button>`}
  </div>`;
}

function Rows({ chat, chatId, messages }) {
  const { outbox } = useApp();
  const cleared = useComputed(() => chat.value.cleared).value;
  const hasMore = useComputed(() => chat.value.hasMore).value;
  const pending = useComputed(() => outbox.entries.value.filter((entry) => entry.chatId === chatId)).value;
  const arrived = new Set(messages.map((message) => message.client_id));
  const waiting = pending.filter((entry) => !arrived.has(entry.clientId));
  const lastUser = messages.findLastIndex((message) => message.role === "user");
  const empty = messages.length + waiting.length + cleared.length === 0;
  return html`
    ${hasMore && html`<${Earlier} chatId=${chatId} />`}
    ${empty && html`<${EmptyChat} />`}
    ${withLines(messages, cleared).map(({ message, line, index }) =>
      line
        ? html`<${ClearedLine} key=${`cleared-${line.seq}`} chatId=${chatId} line=${line} />`
        : html`<${MessageRow} key=${message.id} chat=${chat} message=${message} retryable=${index >= lastUser} />`,
    )}
    ${cleared.length === 0 && html`<${UndoLine} chat=${chat} chatId=${chatId} />`}
    ${waiting.map((entry) => html`<${PendingMessage} key=${entry.clientId} entry=${entry} />`)}
    <${TurnState} chat=${chat} chatId=${chatId} />`;
}

/** Messages with each cleared line after the last message that stood before it. */
function withLines(messages, cleared) {
  const rows = messages.map((message, index) => ({ message, index }));
  for (const line of cleared) {
    const place = rows.findLastIndex((row) => (row.line ? row.line.seq < line.seq : row.message.id <= line.afterId));
    rows.splice(place + 1, 0, { line });
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
  if (running && (waiting || !writing)) {
    return html`<p class="working" data-turn=${waiting ?? "running"}><span class="pulse"></span>${t(`turn.${waiting ?? "working"}`)}</p>`;
  }
  return problem && html`<${TurnFailure} chatId=${chatId} error=${problem} retryable=${false} />`;
}

function untoldProblem({ problem, messages }) {
  const told = problem && messages.some((message) => message.turn_id === problem.turnId && (message.status === "failed" || message.metrics?.error));
  return told ? null : problem;
}

/** Keeps the end in view while the person is there, and what they read where it is while they are not. */
function useSteadyScroll(frame, column) {
  const held = useRef({ following: true, row: null, top: 0 });
  const [atEnd, setAtEnd] = useState(true);

  const onScroll = (element) => {
    const { scrollHeight, scrollTop, clientHeight } = element;
    const following = scrollHeight - scrollTop - clientHeight < END_PX;
    held.current = following ? { following } : { following, ...firstRowInView(element, column.current) };
    setAtEnd(following);
  };
  const toEnd = () => {
    held.current = { following: true };
    frame.current.scrollTop = frame.current.scrollHeight;
    setAtEnd(true);
  };
  useEffect(() => {
    const element = frame.current;
    const observer = new ResizeObserver(() => {
      const { following, row, top } = held.current;
      if (following) element.scrollTop = element.scrollHeight;
      else if (row?.isConnected) element.scrollTop += row.getBoundingClientRect().top - top;
    });
    observer.observe(column.current);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return { atEnd, onScroll, toEnd };
}

function firstRowInView(element, column) {
  const edge = element.getBoundingClientRect().top;
  const row = [...column.children].find((child) => child.dataset.messageId && child.getBoundingClientRect().bottom > edge);
  return { row, top: row?.getBoundingClientRect().top };
}
