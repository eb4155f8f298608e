// Files of chats: taken apart while they are read, and what came of each conversation.

import assert from "node:assert/strict";
import { test } from "node:test";
import { conversationsIn, workspaceArchive } from "../../frontend/js/archives.js";
import { emphasise, hitsByChat } from "../../frontend/js/search-text.js";
import { takeIn } from "../../frontend/js/take-in.js";

async function taken(pieces) {
  const found = [];
  for await (const conversation of conversationsIn(pieces)) found.push(conversation);
  return found;
}

const cut = (text, size) => Array.from({ length: Math.ceil(text.length / size) }, (_, i) => text.slice(i * size, (i + 1) * size));

test("a list is taken apart wherever its pieces are cut", async () => {
  const items = [{ title: 'a "}]\\', nested: [1, { y: '[{\\"' }] }, { chat: { title: "b" } }, { empty: {} }];
  const text = ` \n${JSON.stringify(items, null, 2)}\n`;
  for (let size = 1; size < 12; size++) {
    const found = await taken(cut(text, size));
    assert.deepEqual(found.map(({ content }) => JSON.parse(content)), items, `pieces of ${size}`);
    assert.deepEqual(found.map(({ title }) => title), ['a "}]\\', "b", ""]);
  }
});

test("one object is one conversation, our file of all chats is many", async () => {
  assert.deepEqual(await taken(['{"title":', '"one"}']), [{ title: "one", content: '{"title":"one"}' }]);
  const whole = workspaceArchive(['{"chat":{"title":"a"}}', '{"chat":{"title":"b"}}']);
  assert.deepEqual((await taken(whole)).map(({ title }) => title), ["a", "b"]);
  assert.deepEqual(await taken(workspaceArchive([])), []);
});

test("what is wrong with a file is told apart", async () => {
  const codes = { "": "empty", " ": "empty", "PK\u0003\u0004": "zip", "hello": "not_json", "{": "not_json", "[{": "cut", "[{}": "cut", "[": "cut" };
  for (const [text, code] of Object.entries(codes)) await assert.rejects(taken([text]), { code }, JSON.stringify(text));
});

const file = (name, text) => new File([text], name);
const refusal = (code) => Object.assign(new Error(code), { code });
const answers = (reply) => ({ send: reply, limits: {}, onProgress: () => {}, isStopped: () => false });

test("new, known and failed chats are counted, each failure with its name and reason", async () => {
  const replies = { a: { chats: [1], skipped: 0 }, b: { chats: [], skipped: 1 } };
  const send = async (content) => replies[JSON.parse(content).title] ?? Promise.reject(refusal("invalid"));
  const files = [file("x.json", '[{"title":"a"},{"title":"b"},{"title":"c"}]'), file("broken.json", "?")];
  assert.deepEqual(await takeIn(files, answers(send)), {
    taken: 1, known: 1, stopped: false,
    failed: [{ title: "c", code: "invalid", message: "invalid" }, { title: "broken.json", code: "not_json" }],
  });
});

test("a chat that no frame can carry is not sent", async () => {
  const outcome = await takeIn([file("x.json", '[{"title":"big"}]')], { ...answers(() => assert.fail("sent")), limits: { max_frame_bytes: 520 } });
  assert.deepEqual(outcome.failed, [{ title: "big", code: "too_large" }]);
});

test("it ends when it is stopped, and when the connection is lost", async () => {
  const files = [file("x.json", '[{"title":"a"},{"title":"b"}]')];
  let sent = 0;
  const send = async () => (sent++, { chats: [1], skipped: 0 });
  const stopped = await takeIn(files, { ...answers(send), isStopped: () => sent === 1 });
  assert.deepEqual([stopped.taken, stopped.stopped], [1, true]);
  const lost = await takeIn(files, answers(() => Promise.reject(refusal("disconnected"))));
  assert.equal(lost.failed.length, 1);
});

test("progress is told in shares of the bytes that were read", async () => {
  const shares = [];
  await takeIn([file("x.json", "[]"), file("y.json", "[ ]")], { ...answers(), onProgress: ({ share }) => shares.push(share) });
  assert.equal(shares.at(-1), 1);
});

test("hits are gathered by chat, the best hit's chat first", () => {
  const hit = (chat_id, message_id) => ({ chat_id, message_id, title: chat_id });
  const groups = hitsByChat([hit("b", 1), hit("a", 2), hit("b", 3)]);
  assert.deepEqual(groups.map(({ chatId, hits }) => [chatId, hits.map(({ message_id }) => message_id)]), [["b", [1, 3]], ["a", [2]]]);
});

test("the words that were meant are told apart in any form, and nothing of the text is lost", () => {
  const meant = (text, query) => emphasise(text, query).filter((piece) => piece.meant).map((piece) => piece.text);
  assert.deepEqual(meant("Напиши отчёт об отчетах за май", "отчет"), ["отчёт", "отчетах"]);
  assert.deepEqual(meant("tasks and a task, no mask", "task"), ["tasks", "task"]);
  assert.deepEqual(meant("a cat", "at"), []);
  const text = "<b>x</b> task's end";
  assert.equal(emphasise(text, "task x").map((piece) => piece.text).join(""), text);
});
