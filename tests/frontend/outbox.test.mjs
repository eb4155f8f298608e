// Messages on their way: what goes out when, what waits, and what two pages of one browser make of it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createOutbox } from "../../frontend/js/outbox.js";
import { createSending } from "../../frontend/js/sending.js";
import { applyOpened, reduce } from "../../frontend/js/state/chat.js";
import { createStorage } from "../../frontend/js/storage.js";
import { createStore } from "../../frontend/js/store.js";

const settled = () => new Promise(setImmediate);

/** A browser's storage, which tells its other pages of each change. */
function sharedArea() {
  const items = new Map();
  const pages = [];
  const told = (area, key) => pages.filter((page) => page.area !== area).forEach((page) => page.hear({ key }));
  const areaOf = () => {
    const area = {
      get length() {
        return items.size;
      },
      key: (index) => [...items.keys()][index] ?? null,
      getItem: (key) => items.get(key) ?? null,
      setItem: (key, value) => (items.set(key, value), told(area, key)),
      removeItem: (key) => (items.delete(key), told(area, key)),
    };
    return area;
  };
  return { items, areaOf, hear: (area, hear) => pages.push({ area, hear }) };
}

const message = (id, fields = {}) => ({ id, chat_id: "c", role: "user", content: "?", is_ephemeral: 0, status: "complete", turn_id: "t", ...fields });
const reply = (id, fields = {}) => message(id, { role: "assistant", content: "!", ...fields });

/** A page with the chat "c" open, and the server's end of its line: `sent` commands, to be answered one by one. */
function page(shared = sharedArea(), snapshot = {}) {
  const area = shared.areaOf();
  const storage = createStorage(() => area);
  const outbox = createOutbox(storage);
  shared.hear(area, (event) => outbox.changedElsewhere(storage.keyOf(event)));
  const store = createStore({ storage: { read: () => ({ open: ["c"], active: "c" }), write() {} }, frame: (callback) => callback() });
  const sent = [];
  const reopened = [];
  const client = { request: (command) => new Promise((resolve, reject) => sent.push({ ...command, resolve, reject: (code) => reject({ code, message: code }) })) };
  let ids = 0;
  const sending = createSending({
    client, store, outbox,
    newId: () => `${pages}-${ids++}`,
    tell: (command) => client.request(command).catch(() => null),
    catchUp: (chatId) => reopened.push(chatId),
  });
  pages++;
  const opened = { epoch: "e", seq: 0, chat: { turn_running: false }, messages: [], has_more: false, context: {}, ...snapshot };
  store.updateChat("c", (state) => applyOpened(state, opened));
  const event = (fields) => {
    const { seq } = store.chatNow("c");
    store.updateChat("c", (state) => reduce(state, { chat_id: "c", seq: seq + 1, ...fields }));
    if (fields.type === "turn.finished") sending.goOn("c");
  };
  const states = () => outbox.of("c").map(({ text, state }) => `${text} ${state}`);
  return { outbox, sending, sent, reopened, event, states, store };
}
let pages = 0;

const started = { type: "turn.started", turn_id: "t" };
const finished = (status = "complete") => ({ type: "turn.finished", turn_id: "t", status });

/** The server takes the message in and begins its turn. */
async function accept(one, id) {
  const command = one.sent.findLast(({ type, done }) => type === "message.send" && !done);
  command.done = true;
  const stored = message(id, { client_id: command.client_id, content: command.text });
  one.event({ type: "message.created", message: stored });
  one.event(started);
  command.resolve({ message: stored });
  await settled();
}

function answer(one, id, status = "complete") {
  one.event({ type: "message.created", message: reply(id, { status: "streaming" }) });
  one.event({ type: "message.completed", message: reply(id, { status }) });
  one.event(finished(status));
}

const texts = ({ sent }) => sent.filter(({ type }) => type === "message.send").map(({ text }) => text);

test("what is written while a reply streams goes out in order, each after the turn before it", async () => {
  const one = page();
  one.sending.send("c", "first");
  await accept(one, 1);
  one.sending.send("c", "second");
  one.sending.send("c", "third");
  assert.deepEqual(one.states(), ["second queued", "third queued"]);
  answer(one, 2);
  await settled();
  assert.deepEqual(texts(one), ["first", "second"]);
  await accept(one, 3);
  assert.deepEqual(one.states(), ["third queued"]);
  answer(one, 4);
  await settled();
  assert.deepEqual(texts(one), ["first", "second", "third"]);
  await accept(one, 5);
  assert.deepEqual(one.states(), []);
});

test("a second message does not overtake one that is not acknowledged yet", () => {
  const one = page();
  one.sending.send("c", "first");
  one.sending.send("c", "second");
  assert.deepEqual(one.states(), ["first sending", "second queued"]);
});

for (const status of ["failed", "interrupted", "stopped"]) {
  test(`a turn that ended ${status} holds back what waits, and nothing is fired later`, async () => {
    const one = page();
    one.sending.send("c", "first");
    await accept(one, 1);
    one.sending.send("c", "waits");
    if (status === "failed") {
      one.event({ type: "message.updated", message: message(1, { status }) });
      one.event({ ...finished(status), error: { code: "model_unavailable", message: "gone" } });
    } else answer(one, 2, status);
    await settled();
    assert.deepEqual(one.states(), ["waits paused"]);
    one.sending.send("c", "another");
    await accept(one, 3);
    answer(one, 4);
    await settled();
    assert.deepEqual(texts(one), ["first", "another"]);
    one.sending.release(one.outbox.of("c")[0].clientId);
    await settled();
    assert.deepEqual(texts(one).at(-1), "waits");
  });
}

test("stopped before the first word, too", async () => {
  const one = page();
  one.sending.send("c", "first");
  await accept(one, 1);
  one.sending.send("c", "waits");
  one.event(finished("stopped"));
  assert.deepEqual(one.states(), ["waits paused"]);
});

test("a Stop that comes too late still holds back the queue", async () => {
  const one = page();
  one.sending.send("c", "first");
  await accept(one, 1);
  one.sending.send("c", "waits");
  one.sending.stop("c");
  answer(one, 2);
  assert.deepEqual(one.states(), ["waits paused"]);
});

test("Stop and Send in the same breath: one stop, then the message", async () => {
  const one = page();
  one.sending.send("c", "first");
  await accept(one, 1);
  one.sending.stop("c");
  one.sending.stop("c");
  one.sending.send("c", "instead");
  await settled();
  assert.deepEqual(one.sent.map(({ type }) => type), ["message.send", "turn.stop"]);
  answer(one, 2, "stopped");
  one.sent[1].resolve({});
  await settled();
  assert.deepEqual(texts(one), ["first", "instead"]);
});

test("Send now stops the reply, sends that message and leaves the others waiting", async () => {
  const one = page();
  one.sending.send("c", "first");
  await accept(one, 1);
  for (const text of ["second", "third"]) one.sending.send("c", text);
  one.sending.sendNow(one.outbox.of("c")[1].clientId);
  answer(one, 2, "stopped");
  one.sent.find(({ type }) => type === "turn.stop").resolve({});
  await settled();
  assert.deepEqual(texts(one), ["first", "third"]);
  assert.deepEqual(one.states(), ["second queued", "third sending"]);
});

test("another page's turn that was first makes a message wait instead of fail", async () => {
  const one = page();
  one.sending.send("c", "first");
  one.event(started);
  one.sent[0].reject("turn_running");
  await settled();
  assert.deepEqual(one.states(), ["first queued"]);
  assert.deepEqual(one.reopened, []);
  one.event({ type: "message.created", message: message(1) });
  answer(one, 2);
  await settled();
  assert.deepEqual(texts(one), ["first", "first"]);
  assert.equal(one.sent[0].client_id, one.sent[1].client_id);
});

test("a page that knows of no turn looks again", async () => {
  const one = page();
  one.sending.send("c", "first");
  one.sent[0].reject("turn_running");
  await settled();
  assert.deepEqual([one.states(), one.reopened], [["first queued"], ["c"]]);
});

test("a refused message stays with its reason and holds back those behind it", async () => {
  const one = page();
  one.sending.send("c", "first");
  one.sending.send("c", "second");
  one.sent[0].reject("too_large");
  await settled();
  assert.deepEqual(one.states(), ["first failed", "second paused"]);
  assert.equal(one.outbox.of("c")[0].error.code, "too_large");
});

test("a queue outlives the page, and goes on when the chat is opened", async () => {
  const shared = sharedArea();
  const before = page(shared);
  before.sending.send("c", "first");
  await accept(before, 1);
  before.sending.send("c", "waits");
  const after = page(shared, { messages: [message(1), reply(2)] });
  after.sending.goOn("c");
  await settled();
  assert.deepEqual(texts(after), ["waits"]);
});

test("a turn that failed while no page looked holds the queue back", () => {
  const shared = sharedArea();
  const before = page(shared);
  before.store.updateChat("c", (state) => ({ ...state, turn: { id: "t", waiting: null } }));
  before.sending.send("c", "waits");
  const after = page(shared, { messages: [message(1, { status: "failed" })] });
  after.sending.goOn("c");
  assert.deepEqual(after.states(), ["waits paused"]);
});

test("what was being sent is sent again after a reload, under the same client_id", async () => {
  const shared = sharedArea();
  const before = page(shared);
  before.sending.send("c", "first");
  const after = page(shared);
  after.sending.resume();
  await settled();
  assert.deepEqual([texts(after), after.sent[0].client_id], [["first"], before.sent[0].client_id]);
});

test("two pages see the same queue, and what one takes back the other does not send", async () => {
  const shared = sharedArea();
  const [one, two] = [page(shared), page(shared)];
  for (const each of [one, two]) each.event(started);
  one.sending.send("c", "written in the first");
  assert.deepEqual(two.states(), ["written in the first queued"]);
  assert.equal(two.sending.takeBack(two.outbox.of("c")[0].clientId), "written in the first");
  for (const each of [one, two]) {
    each.event({ type: "message.created", message: message(1) });
    answer(each, 2);
  }
  await settled();
  assert.deepEqual([texts(one), texts(two)], [[], []]);
});

test("two pages that send the same message send it under one client_id", async () => {
  const shared = sharedArea();
  const [one, two] = [page(shared), page(shared)];
  for (const each of [one, two]) each.event(started);
  one.sending.send("c", "waits");
  for (const each of [one, two]) each.store.updateChat("c", (state) => ({ ...state, turn: null, messages: [message(1), reply(2)] }));
  one.sending.goOn("c");
  two.sending.goOn("c");
  two.sending.resume();
  await settled();
  assert.equal(new Set([...one.sent, ...two.sent].map(({ client_id }) => client_id)).size, 1);
});

test("nothing goes out past a message that is being edited", async () => {
  const one = page();
  one.sending.send("c", "first");
  await accept(one, 1);
  for (const text of ["draft", "behind"]) one.sending.send("c", text);
  const [{ clientId }] = one.outbox.of("c");
  one.sending.startEdit(clientId);
  answer(one, 2);
  await settled();
  assert.deepEqual(texts(one), ["first"]);
  one.sending.endEdit(clientId, { text: "better" });
  await settled();
  assert.deepEqual(texts(one), ["first", "better"]);
  one.sending.endEdit("gone", {});
});

test("messages of a chat that was deleted meanwhile go with it", () => {
  const shared = sharedArea();
  const one = page(shared);
  one.event(started);
  one.sending.send("c", "waits");
  one.outbox.prune((id) => id !== "c");
  assert.deepEqual([one.states(), [...shared.items.keys()]], [[], []]);
});

test("full storage loses the convenience, not the message", async () => {
  const area = { length: 0, key: () => null, getItem: () => null, removeItem() {}, setItem() { throw new DOMException("full", "QuotaExceededError"); } };
  const outbox = createOutbox(createStorage(() => area));
  outbox.add({ chatId: "c", clientId: "1", text: "kept", state: "queued" });
  assert.equal(outbox.find("1").text, "kept");
});

test("something else in the storage is no message", () => {
  const shared = sharedArea();
  for (const [key, value] of [["cleanroom.outbox.a", "{"], ["cleanroom.outbox.b", "3"], ["cleanroom.tabs", "{}"], ["other", "1"]]) shared.items.set(key, value);
  assert.deepEqual(page(shared).states(), []);
});
