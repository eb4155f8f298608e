// Tools in the menu, their arguments as a form, and cards as text.

import assert from "node:assert/strict";
import { test } from "node:test";
import { cardText } from "../../frontend/js/card-text.js";
import { fieldForWords, fieldsOf, readFields, slashIn, toolGroups } from "../../frontend/js/tools.js";

const tool = (name, family, fields = {}) => ({ name, family, for_model: true, ...fields });
const TOOLS = [tool("task_add", "tasks"), tool("note_save", "notes"), tool("task_list", "tasks"), tool("task_restore", "tasks", { for_model: false }), tool("current_state", null)];

const named = (query, recent = "") => toolGroups(TOOLS, { query }, ({ name }) => (name === "task_add" ? "Добавить задачу" : name), recent).map(({ family, tools }) => [family, ...tools.map(({ name }) => name)]);

test("tools stand family by family, without those that only buttons use", () => {
  assert.deepEqual(named(""), [["tasks", "task_add", "task_list"], ["notes", "note_save"]]);
});

test("the tool that was used last comes first and only once", () => {
  assert.deepEqual(named("", "task_list"), [["recent", "task_list"], ["tasks", "task_add"], ["notes", "note_save"]]);
  assert.deepEqual(named("", "gone"), named(""));
  assert.deepEqual(named("", "task_restore"), named(""));
});

test("tools are found by their name and by what the person calls them", () => {
  assert.deepEqual(named("ДОБАВ"), [["tasks", "task_add"]]);
  assert.deepEqual(named("save", "task_add"), [["notes", "note_save"]]);
});

test("words behind a tool's whole name are for that tool, and everything else is a message", () => {
  assert.deepEqual(slashIn("/tas", TOOLS), { query: "tas", words: undefined });
  assert.deepEqual(slashIn("/task_add buy milk\nand tea", TOOLS), { query: "task_add", words: "buy milk\nand tea" });
  assert.deepEqual(slashIn("/task_add ", TOOLS), { query: "task_add", words: "" });
  for (const message of ["", "task_add x", "/task x", "/task_restore 1", "/current_state x", "/etc/hosts is gone", " /task_add x"]) assert.equal(slashIn(message, TOOLS), null, message);
  const groups = toolGroups([tool("task_add_all", "tasks"), ...TOOLS], { query: "task_add", words: "x" }, ({ name }) => name, "task_add_all");
  assert.deepEqual(groups.flatMap(({ tools }) => tools.map(({ name }) => name)), ["task_add"]);
});

test("words fill the first field that one can type into", () => {
  assert.equal(fieldForWords(fieldsOf({ properties: { sure: { type: "boolean" }, id: { type: "integer" }, title: { type: "string" } } })), "id");
  assert.equal(fieldForWords(fieldsOf({ properties: { sure: { type: "boolean" } } })), undefined);
});

const PARAMETERS = {
  required: ["id", "sql", "sure"],
  properties: {
    id: { type: "integer", minimum: 1, maximum: 99 },
    sql: { type: "string" },
    sure: { type: "boolean" },
    done: { type: "boolean" },
    share: { anyOf: [{ type: "number" }, { type: "null" }] },
    format: { type: "integer", enum: [1, 2] },
    title: { type: "string" },
  },
};

test("each argument gets the control of its type", () => {
  const fields = fieldsOf(PARAMETERS);
  assert.deepEqual(fields.map(({ kind }) => kind), ["number", "textarea", "checkbox", "select", "number", "select", "text"]);
  assert.deepEqual(fields.map(({ required }) => required), [true, true, true, false, false, false, false]);
  assert.deepEqual(fields[0], { name: "id", required: true, kind: "number", min: 1, max: 99, step: 1 });
  assert.equal(fields[4].step, "any");
  assert.deepEqual(fieldsOf(undefined), []);
});

const control = (value, fields = {}) => ({ value, checked: false, valueAsNumber: Number.parseFloat(value), ...fields });

test("a form gives its values in the types of the schema and leaves out what is empty", () => {
  const elements = { id: control("7"), sql: control("select 1"), sure: control("on", { checked: true }), done: control("false"), share: control(""), format: control("2"), title: control("") };
  assert.deepEqual(readFields(elements, fieldsOf(PARAMETERS)), { id: 7, sql: "select 1", sure: true, done: false, format: 2 });
});

test("a card as text is what it shows", () => {
  assert.equal(cardText({ kind: "notice", body: "done" }), "done");
  assert.equal(cardText({ kind: "preview", body: "# Title" }), "# Title");
  assert.equal(cardText({ kind: "diff", before: "old", after: "new" }), "new");
  assert.equal(cardText({ kind: "list", items: [{ text: "a", done: true }, { text: "b", done: false }, { text: "c" }] }), "- [x] a\n- [ ] b\n- c");
  assert.equal(cardText({ kind: "table", columns: ["n", "text"], rows: [[1, "a|b\nc"], [null, { d: 2 }]] }), '| n | text |\n| --- | --- |\n| 1 | a\\|b c |\n|  | {"d":2} |');
  assert.equal(cardText({ kind: "preview" }), "");
});
