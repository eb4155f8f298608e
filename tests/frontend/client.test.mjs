// Commands, replies and reconnecting, with a transport that the test holds in its hand.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient } from "../../frontend/js/client.js";
import { waitBefore } from "../../frontend/js/connection.js";
import { CLOSE, decode } from "../../frontend/js/protocol.js";

/** The far end of the line: what was sent, and what arrives. */
function line() {
  const far = { sent: [], open: true, events: [], welcomes: 0 };
  far.client = createClient({
    transport: (handlers) => {
      far.receive = (frame) => handlers.onText(JSON.stringify(frame));
      far.lose = (code) => {
        far.open = false;
        handlers.onState("lost", code);
      };
      return { start() {}, retryNow() {}, send: (text) => far.open && far.sent.push(JSON.parse(text)) > 0 };
    },
    onWelcome: () => ++far.welcomes > 0,
    onEvent: (event) => far.events.push(event),
    onState: () => {},
  });
  far.comeBack = () => {
    far.open = true;
    far.receive({ type: "welcome" });
  };
  return far;
}

test("a reply settles its own command", async () => {
  const far = line();
  const first = far.client.request({ type: "a" });
  const second = far.client.request({ type: "b" });
  far.receive({ type: "error", ref: far.sent[1].ref, code: "invalid", message: "no", fields: { x: "y" } });
  far.receive({ type: "ok", ref: far.sent[0].ref, value: 1 });
  assert.equal((await first).value, 1);
  await assert.rejects(second, { code: "invalid", message: "no", fields: { x: "y" } });
});

test("a command fails at once without a connection, a durable one waits", async () => {
  const far = line();
  far.open = false;
  await assert.rejects(far.client.request({ type: "a" }), { code: "disconnected" });
  const durable = far.client.request({ type: "message.send", client_id: "1" }, { durable: true });
  far.comeBack();
  far.receive({ type: "ok", ref: far.sent[0].ref });
  await durable;
});

test("an unanswered durable command is sent again with the same client_id", async () => {
  const far = line();
  const plain = far.client.request({ type: "context.get" });
  const durable = far.client.request({ type: "message.send", client_id: "1" }, { durable: true });
  far.lose(1006);
  await assert.rejects(plain, { code: "disconnected" });
  far.comeBack();
  assert.deepEqual(far.sent[2], far.sent[1]);
  far.receive({ type: "ok", ref: far.sent[2].ref });
  await durable;
  far.lose(1006);
  far.comeBack();
  assert.equal(far.sent.length, 3);
});

test("a frame that was too big is not offered again", async () => {
  const far = line();
  const small = far.client.request({ type: "message.send", text: "x" }, { durable: true });
  const big = far.client.request({ type: "message.send", text: "x".repeat(100) }, { durable: true });
  far.lose(CLOSE.TOO_BIG);
  await assert.rejects(big, { code: "too_large" });
  far.comeBack();
  far.receive({ type: "ok", ref: far.sent.at(-1).ref });
  await small;
});

test("events and unknown frames", () => {
  const far = line();
  far.receive({ type: "turn.started", chat_id: "c", seq: 1 });
  far.receive({ type: "ok", ref: "nobody" });
  assert.deepEqual(far.events.map((event) => event.type), ["turn.started"]);
  for (const text of ["{", "[]", "1", "null", '{"type":3}']) assert.equal(decode(text), null);
});

test("waiting grows, has a limit and jitters; a slow socket comes back at once", () => {
  const waits = [0, 1, 2, 3, 20].map((attempt) => waitBefore(attempt, 1006, () => 0.5));
  assert.deepEqual(waits, [300, 600, 1200, 2400, 8000]);
  assert.notEqual(waitBefore(3, CLOSE.SERVICE_RESTART, () => 0), waitBefore(3, CLOSE.SERVICE_RESTART, () => 1));
  assert.equal(waitBefore(0, CLOSE.SLOW, () => 0.5), 0);
  assert.ok(waitBefore(0, CLOSE.POLICY, () => 0) > 5000);
});
