// Code points, unseen characters, the diff and the cutting of Markdown into blocks.

import assert from "node:assert/strict";
import { test } from "node:test";
import { growBlocks, splitBlocks } from "../../frontend/js/blocks.js";
import { diffRows, diffSize, foldContext } from "../../frontend/js/diff.js";
import { codePointLength, dropCodePoints, revealUnseen } from "../../frontend/js/text.js";

test("lengths are in code points, whole and broken pairs alike", () => {
  for (const text of ["", "abc", "привет", "a🙂b", "👨‍👩‍👧", "\ud83d", "x\ud83d\ud83d\ude00"]) {
    assert.equal(codePointLength(text), [...text].length, JSON.stringify(text));
  }
});

test("dropping code points never cuts a pair", () => {
  assert.equal(dropCodePoints("🙂🙂a", 1), "🙂a");
  assert.equal(dropCodePoints("ab", 5), "");
});

const codes = (text) => revealUnseen(text).filter((segment) => segment.code).map((segment) => segment.code);

test("characters that would not be seen are found", () => {
  assert.deepEqual(codes("a\u200bb\u202ec\u{e0041}d\u00ad\u2066"), ["U+200B", "U+202E", "U+E0041", "U+00AD", "U+2066"]);
  assert.deepEqual(codes("a\u200db\ufe0f"), ["U+200D", "U+FE0F"]);
  assert.deepEqual(codes("a\tb\nc é ю"), []);
});

test("what an emoji is made of is not hidden text", () => {
  assert.deepEqual(codes("👨‍👩‍👧 ❤️ 1️⃣ 👩🏽‍💻"), []);
});

test("revealing keeps every character", () => {
  const text = "👨‍👩‍👧a\u200bb\u202e";
  assert.equal(revealUnseen(text).map((segment) => segment.text).join(""), text);
});

const kinds = (rows) => rows.map((row) => row.kind);
const side = (rows, kind) => rows.filter((row) => row.kind !== kind).map((row) => row.parts.map((part) => part.text).join("")).join("\n");

test("a diff holds both texts", () => {
  const before = "один\nдва слова здесь\nтри\n\nконец";
  const after = "один\nдва других слова здесь\n\nновая\nконец";
  const rows = diffRows(before, after);
  assert.equal(side(rows, "added"), before);
  assert.equal(side(rows, "removed"), after);
});

test("only changed words are marked, in Cyrillic too", () => {
  const rows = diffRows("команда поддержки, быстро и вежливо", "команда поддержки, коротко и вежливо");
  assert.deepEqual(kinds(rows), ["removed", "added"]);
  const marked = rows.map((row) => row.parts.filter((part) => part.changed).map((part) => part.text));
  assert.deepEqual(marked, [["быстро"], ["коротко"]]);
});

test("lines with nothing in common are marked whole", () => {
  const rows = diffRows("alpha beta gamma", "1 2 3 4 5 6 7");
  assert.ok(rows.every((row) => row.parts.length === 1 && row.parts[0].changed));
});

test("the first draft is all added", () => {
  const rows = diffRows("", "a\nb");
  assert.deepEqual(kinds(rows), ["added", "added"]);
  assert.deepEqual(diffSize(rows), { added: 2, removed: 0 });
});

test("long runs without a change are folded", () => {
  const lines = Array.from({ length: 20 }, (_, i) => `line ${i}`);
  const rows = foldContext(diffRows(lines.join("\n"), [...lines.slice(0, 10), "new", ...lines.slice(10)].join("\n")));
  assert.deepEqual(kinds(rows), ["skipped", "same", "same", "added", "same", "same", "skipped"]);
  assert.equal(rows[0].count, 8);
});

test("a huge diff ends in time", () => {
  const text = (seed) => Array.from({ length: 30_000 }, (_, i) => `${(i * seed) % 9973}`).join("\n");
  const started = performance.now();
  diffRows(text(7919), text(104_729));
  assert.ok(performance.now() - started < 3000);
});

const MARKDOWN = "# Title\n\nText with *stress*\nand a break.\n\n- one\n- two\n\n  more\n\n```js\nconst a = 1;\n\n\nconst b = 2;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nlast";

test("blocks that grew piece by piece equal those cut at once", () => {
  for (const size of [1, 3, 7]) {
    let blocks = [];
    for (let end = size; end < MARKDOWN.length + size; end += size) blocks = growBlocks(blocks, MARKDOWN.slice(0, end));
    assert.deepEqual(blocks.map((block) => block.raw), splitBlocks(MARKDOWN).map((block) => block.raw), `in pieces of ${size}`);
  }
});

test("a finished block is not read again", () => {
  const before = growBlocks([], "first\n\nsecond");
  const after = growBlocks(before, "first\n\nsecond and more");
  assert.equal(after[0], before[0]);
  assert.notEqual(after.at(-1), before.at(-1));
});

test("text that is not a continuation is read anew", () => {
  assert.equal(growBlocks(growBlocks([], "first\n\nsecond"), "other")[0].raw, "other");
});

test("blocks say when reference definitions may have changed their links", () => {
  assert.ok(splitBlocks("[a]\n\n[a]: https://example.org").every((block) => block.linked));
  assert.ok(splitBlocks("[a](https://example.org)").every((block) => !block.linked));
});
