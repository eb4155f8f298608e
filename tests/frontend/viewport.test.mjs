// Which rows of a long list are drawn, and the room that stands for the others.

import assert from "node:assert/strict";
import { test } from "node:test";
import { arrange, offsetsOf, rowAt, rowsBetween } from "../../frontend/js/viewport.js";

const keys = (count) => Array.from({ length: count }, (_, i) => String(i));
const even = (count) => offsetsOf(keys(count), () => 10);

test("offsets add up the heights", () => {
  const heights = { a: 10, b: 5, c: 0, d: 20 };
  assert.deepEqual([...offsetsOf(Object.keys(heights), (key) => heights[key])], [0, 10, 15, 15, 35]);
  assert.deepEqual([...offsetsOf([], () => 1)], [0]);
});

test("a row covers what begins at its top, and the ends cover what is beyond them", () => {
  const offsets = even(5);
  assert.deepEqual([-100, 0, 9.9, 10, 25, 49, 50, 9999].map((y) => rowAt(offsets, y)), [0, 0, 0, 1, 2, 4, 4, 4]);
  assert.equal(rowAt(even(0), 5), 0);
});

test("the rows between two places are those that touch the stretch", () => {
  assert.deepEqual(rowsBetween(even(100), 55, 84), { first: 5, last: 9 });
  assert.deepEqual(rowsBetween(even(100), -900, 15), { first: 0, last: 2 });
  assert.deepEqual(rowsBetween(even(0), 0, 100), { first: 0, last: 0 });
});

const drawn = (parts) => parts.flatMap((part) => ("index" in part ? [part.index] : []));
const height = (parts) => parts.reduce((sum, part) => sum + (part.room ?? 10), 0);

test("rows and room together are as high as the list, whatever is kept", () => {
  const offsets = even(100);
  for (const kept of [[], [0], [99], [3, 50, 98], [40, 41, 42]]) {
    const parts = arrange(offsets, { first: 40, last: 45 }, kept);
    assert.equal(height(parts), 1000, kept);
    assert.deepEqual(drawn(parts), [...new Set([...kept, 40, 41, 42, 43, 44])].sort((a, b) => a - b));
  }
});

test("what is kept stands at its place, apart from the others", () => {
  assert.deepEqual(arrange(even(10), { first: 5, last: 6 }, [1, 9]), [{ room: 10 }, { index: 1 }, { room: 30 }, { index: 5 }, { room: 30 }, { index: 9 }]);
});

test("a list that is drawn whole has no room left", () => {
  assert.deepEqual(arrange(even(2), { first: 0, last: 2 }), [{ index: 0 }, { index: 1 }]);
  assert.deepEqual(arrange(even(0), { first: 0, last: 0 }), []);
});
