// Markdown cut into blocks: maths in it, growth, and texts made to be slow.

import assert from "node:assert/strict";
import { test } from "node:test";
import { endBlocks, growBlocks, splitBlocks } from "../../frontend/js/blocks.js";
import { highlight } from "../../frontend/js/highlight.js";
import { headOf, piecesOf } from "../../frontend/js/pieces.js";

function flat(tokens) {
  return tokens.flatMap((token) => [token, ...flat(token.tokens ?? []), ...flat((token.items ?? []).flatMap((item) => item.tokens))]);
}
const tokensOf = (text) => flat(splitBlocks(text).map((block) => block.token));
const mathsIn = (text) => tokensOf(text).filter((token) => token.type.startsWith("maths")).map((token) => token.text);

const MATHS = {
  "Euler: $e^{i\\pi}+1=0$.": ["e^{i\\pi}+1=0"],
  "$a_1*b_2*c_3$ and $x_*y_*$": ["a_1*b_2*c_3", "x_*y_*"],
  "\\(a_b*c*\\) and \\[\\sum_{i=1}^n *x*\\]": ["a_b*c*", "\\sum_{i=1}^n *x*"],
  "*stress $a*b$ goes on*": ["a*b"],
  "before\n$$\na_1 \\\\\n- b\n= c\n# d\n$$\nafter": ["a_1 \\\\\n- b\n= c\n# d"],
  "- item $a_i$\n- $$x$$": ["a_i", "x"],
  "> \\[\n> \\frac{a}{b}\n> \\]": ["\\frac{a}{b}"],
  "$$\n\\frac{a}{b": ["$$\n\\frac{a}{b"],
  "$2 + 2 = 4$": ["2 + 2 = 4"],
  "a price of \\$5 and $\\text{\\$}5$": ["\\text{\\$}5"],
  "$a$, $b$-axis": ["a", "b"],
};
for (const [text, found] of Object.entries(MATHS)) {
  test(`the maths of ${JSON.stringify(text)} is kept exactly`, () => assert.deepEqual(mathsIn(text), found));
}

const NO_MATHS = [
  "$5 and $6", "from $5 to $10, or US$12", "costs $5, or US$ 7", "US$5-$6", "5$ or 6$", "**$5** and **$6**", "$5,$6", "$HOME/$PATH",
  "`$a_b$` and `\\(x\\)`", "```\n$$\nx\n$$\n```", "\\$x\\$", "\\\\(a\\\\)", "\\(open only", "a $$ b", "$$ open\n\nonly", "$ a $", "a $x\n\ny$ b",
];
for (const text of NO_MATHS) test(`${JSON.stringify(text)} holds no maths`, () => assert.deepEqual(mathsIn(text), []));

test("stress in the middle of money stays stress", () => {
  assert.ok(tokensOf("costs $5 *or* US$6 more").some((token) => token.type === "em"));
});

const TEXT = [
  "# Title", "Text with *stress* and $a_1*b$.", "$$\nx = \\frac{1}{2}\n$$", "- one\n- two\n\n  more", "```js\nconst a = 1;\n\nconst b = 2;\n```",
  "| a | b |\n|---|---|\n| $x$ | 2 |", "\\[ a\n+ b \\]", "> quote\n> more", "last",
].join("\n\n");

test("however a reply is cut into deltas, its blocks are those of the whole text", () => {
  const whole = splitBlocks(TEXT).map((block) => block.raw);
  for (let size = 1; size < 40; size += 3) {
    let blocks = [];
    for (let end = size; end < TEXT.length + size; end += size) blocks = growBlocks(blocks, TEXT.slice(0, end));
    assert.deepEqual(blocks.map((block) => block.raw), whole, `in pieces of ${size}`);
  }
});

test("finished blocks are the same objects however long the reply grows", () => {
  const first = growBlocks([], TEXT.slice(0, TEXT.indexOf("```js")));
  const later = growBlocks(first, TEXT);
  const finished = first.findLastIndex((block) => block.token.type !== "space");
  assert.ok(finished > 3);
  for (let i = 0; i < finished; i++) assert.equal(later[i], first[i]);
});

test("a long list becomes blocks of its items, however it grew", () => {
  const text = `before\n\n${"- item with *stress*\n".repeat(350)}\nafter`;
  const lists = (blocks) => blocks.filter((block) => block.token.type === "list").map(({ token, goesOn }) => [token.items.length, goesOn]);
  assert.deepEqual(lists(splitBlocks(text)), [[100, false], [100, true], [100, true], [50, true]]);
  let blocks = [];
  for (let end = 500; end < text.length + 500; end += 500) blocks = growBlocks(blocks, text.slice(0, end));
  assert.deepEqual(lists(blocks), lists(splitBlocks(text)));
  assert.equal(blocks.map((block) => block.raw).join(""), text);
});

test("texts made to be slow are cut in time", () => {
  const slow = ["\\[ abc\n", "$$ abc\n\n$$\n", "\\( a $x ", "$a ", "*$a* "].map((piece) => piece.repeat(20_000 / piece.length));
  for (const text of slow) {
    const started = performance.now();
    splitBlocks(text);
    assert.ok(performance.now() - started < 2000, text.slice(0, 10));
  }
});

test("the head of a long text is its beginning and cuts no character", () => {
  for (const text of ["short", "line\n".repeat(50_000), "word ".repeat(50_000), `${"x".repeat(9_999)}${"😀".repeat(100)}`]) {
    const head = headOf(text);
    assert.ok(text.startsWith(head) && head.length <= 10_000 && head.isWellFormed());
    assert.ok(head === text || head.split("\n").length > 100 || head.length > 9_000);
  }
});

test("pieces are whole lines that joined are the text", () => {
  for (const text of ["", "a", "a\n", "\n".repeat(1000), "line\n".repeat(12_345), `${"x\r\n".repeat(500)}end`]) {
    const pieces = piecesOf(text);
    assert.equal(pieces.join(""), text);
    assert.ok(pieces.slice(0, -1).every((piece) => piece.endsWith("\n")));
  }
  assert.ok(piecesOf("line\n".repeat(12_345)).length > 100);
});

test("text that grows changes its last piece only", () => {
  const text = "line\n".repeat(1234);
  const before = piecesOf(text);
  const after = piecesOf(`${text}more\n`);
  assert.deepEqual(after.slice(0, before.length - 1), before.slice(0, -1));
});

const colours = async (code, language) => Object.fromEntries((await highlight(code, language)).filter((run) => run.colour).map((run) => [run.text, run.colour]));

test("code is cut into runs of one colour that joined are the code", async () => {
  const code = 'def greet(name: str) -> str:\n    # hello\n    return f"Hello, {name + 1}!"\n';
  for (const language of ["python", "Py", "js", "html", "json", "sql", "diff", "c++", "yaml"]) {
    assert.equal((await highlight(code, language)).map((run) => run.text).join(""), code, language);
  }
  const found = await colours(code, "python");
  assert.deepEqual([found.def, found["# hello"], found.greet, found["1"]], ["keyword", "comment", "name", "number"]);
});

test("an unknown language has no colours, and neither has one that is named after a part of an object", async () => {
  for (const language of ["brainfuck", "constructor", "__proto__", "../core", '"><img onerror=x>']) assert.equal(await highlight("x", language), null);
});

test("a tag changes nothing of how the text behind it is read", () => {
  for (const text of ["Press <kbd>a<b</kbd> now", "<code>x<y</code>", "A <pre>x<y</pre>", "<a>x https://host.example</a>"]) {
    const inline = splitBlocks(`- ${text}`)[0].token.items[0].tokens[0].tokens;
    assert.ok(inline.filter(({ type }) => type === "text").every(({ escaped }) => !escaped), text);
  }
  assert.ok(JSON.stringify(splitBlocks("<a>x https://host.example</a>")).includes('"type":"link"'));
});

test("a text that has streamed in is read as one that comes at once when it is complete", () => {
  const text = "- a\n\n$$1. + +\n\n\n-->\n\\[</div>\n\n***x\n| a |\n";
  let blocks = [];
  for (let end = 1; end < text.length; end += 3) blocks = growBlocks(blocks, text.slice(0, end));
  assert.deepEqual(endBlocks(blocks, text).map(({ raw }) => raw), splitBlocks(text).map(({ raw }) => raw));
});
