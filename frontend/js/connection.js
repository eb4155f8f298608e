// One WebSocket that comes back by itself. Knows frames as text and close codes, nothing of what they mean.

import { CLOSE } from "./protocol.js";

const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 8000;

// A refusal won't change within seconds.
const REFUSED_WAIT_MS = 15000;

/** How long to wait before attempt `attempt`; jitter keeps many pages from returning in the same instant. */
export function waitBefore(attempt, closeCode, random) {
  if (closeCode === CLOSE.SLOW && attempt === 0) return 0;
  const base = closeCode === CLOSE.POLICY ? REFUSED_WAIT_MS : Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** attempt);
  return base / 2 + random() * base;
}

/** `onText(text)` for each frame, `onState("connecting" | "open" | "lost", closeCode?)` for each change. */
export function createConnection({ url, onText, onState, random = Math.random }) {
  let socket = null;
  let attempt = 0;
  let timer = null;

  function connect() {
    clearTimeout(timer);
    timer = null;
    socket = new WebSocket(url);
    socket.onopen = () => onState("open");
    socket.onmessage = ({ data }) => {
      attempt = 0;
      onText(data);
    };
    socket.onclose = ({ code }) => {
      socket = null;
      onState("lost", code);
      timer = setTimeout(connect, waitBefore(attempt++, code, random));
    };
  }

  return {
    start() {
      onState("connecting");
      connect();
    },
    send(text) {
      if (socket?.readyState !== WebSocket.OPEN) return false;
      socket.send(text);
      return true;
    },
    retryNow() {
      if (!socket) connect();
    },
  };
}
