// Drafts in the browser's storage: what is kept, when, and what is said when it can't be.

import assert from "node:assert/strict";
import { test } from "node:test";
import { createDrafts } from "../../frontend/js/drafts.js";
import { createStorage } from "../../frontend/js/storage.js";

/** An area of `room` characters with the interface of localStorage. */
function areaOf(room = Infinity) {
  const held = new Map();
  return {
    held,
    get length() {
      return held.size;
    },
    key: (index) => [...held.keys()][index] ?? null,
    getItem: (key) => held.get(key) ?? null,
    setItem(key, value) {
      if (value.length > room) throw new DOMException("no room", "QuotaExceededError");
      held.set(key, value);
    },
    removeItem: (key) => held.delete(key),
  };
}

const draftsIn = (area) => createDrafts(createStorage(() => area));

test("who types without a pause is stored all the same", (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const area = areaOf();
  const drafts = draftsIn(area);
  for (let length = 1; length <= 20; length++) {
    drafts.keep("a", "x".repeat(length));
    context.mock.timers.tick(100);
  }
  assert.ok(draftsIn(area).read("a").length >= 17);
});

test("a text that the browser has no room for is told of, until it is gone or fits again", () => {
  const drafts = draftsIn(areaOf(100));
  drafts.keep("a", "x".repeat(200));
  drafts.keep("b", "short");
  drafts.flush();
  assert.deepEqual(drafts.unsaved.value, ["a"]);
  assert.equal(drafts.read("a").length, 200);
  drafts.keep("a", "shorter");
  drafts.flush();
  assert.deepEqual(drafts.unsaved.value, []);
  drafts.keep("a", "x".repeat(200));
  drafts.flush();
  drafts.forget("a");
  assert.deepEqual(drafts.unsaved.value, []);
});

test("where storage is forbidden, only a text that is there is told of", () => {
  const drafts = createDrafts(
    createStorage(() => {
      throw new DOMException("forbidden", "SecurityError");
    }),
  );
  drafts.keep("a", "words");
  drafts.flush();
  assert.deepEqual([drafts.read("a"), drafts.unsaved.value], ["words", ["a"]]);
  drafts.keep("a", "");
  drafts.flush();
  assert.deepEqual(drafts.unsaved.value, []);
});

test("two pages of one browser leave each other's chats alone", () => {
  const area = areaOf();
  const [one, two] = [draftsIn(area), draftsIn(area)];
  one.keep("a", "in one");
  two.keep("b", "in two");
  one.flush();
  two.flush();
  one.keep("a", "");
  one.flush();
  assert.deepEqual([draftsIn(area).read("a"), draftsIn(area).read("b")], ["", "in two"]);
});

test("a chat that is gone takes its drafts along, those of its messages too", () => {
  const area = areaOf();
  const drafts = draftsIn(area);
  for (const id of ["a", "a.7", "ab", "b.1"]) drafts.keep(id, id);
  drafts.flush();
  drafts.forgetChat("a");
  assert.deepEqual([...area.held.keys()], ["cleanroom.draft.ab", "cleanroom.draft.b.1"]);
  draftsIn(area).prune((id) => id === "b");
  assert.deepEqual([...area.held.keys()], ["cleanroom.draft.b.1"]);
});

test("people who share a browser have nothing of each other's, whatever they are called", () => {
  const area = areaOf();
  const users = ["", "ann", "ann.draft", "ann/draft.", "@ann", "Анна"];
  const of = (user) => createStorage(() => area, user);
  users.forEach((user) => of(user).write("draft.c", `of ${user}`));
  for (const user of users) {
    assert.equal(of(user).read("draft.c"), `of ${user}`);
    assert.deepEqual(of(user).keys("draft."), ["draft.c"]);
    const heard = [...area.held.keys()].filter((key) => of(user).keyOf({ key })?.startsWith("draft."));
    assert.equal(heard.length, 1);
    const drafts = createDrafts(of(user));
    assert.equal(drafts.read("c"), `of ${user}`);
  }
  createDrafts(of("ann")).prune(() => false);
  assert.deepEqual(users.filter((user) => of(user).read("draft.c", null) === null), ["ann"]);
});
