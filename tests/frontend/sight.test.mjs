// Whether the model sees a piece of working material now, and why not.

import assert from "node:assert/strict";
import { test } from "node:test";
import { sightOf } from "../../frontend/js/selectors.js";

const context = (fields = {}) => ({ active_tool: "notes", unrelated_count: 0, ttl_messages: 4, in_hand: [], ...fields });
const question = { id: 1, role: "user", turn_id: "t1" };
const card = (id, subject, fields = {}) => ({ id, role: "tool", turn_id: "t1", status: "complete", card: { subject, ...fields } });
const state = (fields) => ({ turn: null, messages: [question, card(2, "notes.1"), card(3, "notes.1")], context: context(), ...fields });

test("in its own turn it is seen, unless a newer one took its place or it waits", () => {
  const running = state({ turn: { id: "t1" } });
  assert.equal(sightOf(running, card(3, "notes.1")), "turn");
  assert.equal(sightOf(running, card(2, "notes.1", { superseded: true })), "superseded");
  assert.equal(sightOf(running, { ...card(3), status: "streaming" }), "temporary");
  assert.equal(sightOf(running, { id: 4, role: "assistant", turn_id: "t1", status: "complete" }), "turn");
});

test("in another turn, or in a button's, it is not", () => {
  assert.equal(sightOf(state({ turn: { id: "t2" } }), card(3, "notes.1")), "temporary");
  assert.equal(sightOf(state({ turn: { id: "button" } }), { ...card(4, "notes.2"), turn_id: "button" }), "temporary");
});

test("a turn whose id is not known yet is that of the newest question", () => {
  assert.equal(sightOf(state({ turn: { id: null } }), card(3, "notes.1")), "turn");
});

test("of what is in hand the newest card is as the model is shown it", () => {
  const inHand = state({ context: context({ in_hand: ["notes.1"], unrelated_count: 3 }) });
  assert.equal(sightOf(inHand, card(3, "notes.1")), "hand");
  assert.equal(sightOf(inHand, card(2, "notes.1")), "soon");
  assert.equal(sightOf(inHand, card(3)), "soon");
});

test("before anything is known it is temporary", () => {
  assert.equal(sightOf(state({ context: null }), card(3, "notes.1")), "temporary");
});
