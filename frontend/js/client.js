// Commands and their replies. A durable command carries a client_id and is sent again after a reconnect
// until it is answered; the server makes the repeat harmless.

import { CLOSE, CommandError, decode } from "./protocol.js";

const DISCONNECTED = { code: "disconnected", message: "Not connected." };

/**
 * `transport` is given `{onText, onState}` and returns `{start, send, retryNow}`. `onWelcome(frame)` says whether what
 * waits may go out over this socket.
 */
export function createClient({ transport, onWelcome, onEvent, onState }) {
  const waiting = new Map();
  let lastRef = 0;

  const connection = transport({ onText, onState: changeState });

  function onText(text) {
    const decoded = decode(text);
    if (decoded?.kind === "reply") settle(decoded.frame);
    else if (decoded?.kind === "event") onEvent(decoded.frame);
    else if (decoded?.kind === "welcome") {
      if (!onWelcome(decoded.frame)) return;
      for (const command of waiting.values()) if (!command.sent) transmit(command);
    }
  }

  function settle(frame) {
    const command = waiting.get(frame.ref);
    if (!command) return;
    waiting.delete(frame.ref);
    if (frame.type === "ok") command.resolve(frame);
    else command.reject(new CommandError(frame));
  }

  function changeState(state, closeCode) {
    if (state === "lost") {
      if (closeCode === CLOSE.TOO_BIG) failLargest();
      for (const [ref, command] of waiting) {
        command.sent = false;
        if (!command.durable) fail(ref, DISCONNECTED);
      }
    }
    onState(state);
  }

  // The frame that the server refused to read must not be offered again for ever.
  function failLargest() {
    const sent = [...waiting].filter(([, command]) => command.sent);
    const [largest] = sent.sort(([, a], [, b]) => b.text.length - a.text.length);
    if (largest) fail(largest[0], { code: "too_large", message: "The server refused a frame of this size." });
  }

  function fail(ref, error) {
    waiting.get(ref).reject(new CommandError(error));
    waiting.delete(ref);
  }

  function transmit(command) {
    command.sent = connection.send(command.text);
  }

  return {
    start: connection.start,
    retryNow: connection.retryNow,

    /** Resolves with the `ok` frame, rejects with CommandError. */
    request(command, { durable = false } = {}) {
      const ref = String(++lastRef);
      return new Promise((resolve, reject) => {
        const entry = { text: JSON.stringify({ ...command, ref }), durable, resolve, reject, sent: false };
        waiting.set(ref, entry);
        transmit(entry);
        if (!entry.sent && !durable) fail(ref, DISCONNECTED);
      });
    },
  };
}
