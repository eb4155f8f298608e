// Compares two texts by line, and by word where lines changed. Returns rows to draw; knows no DOM.

import Diff from "diff/lib/diff/base.js";

// A diff that takes longer than this is shown as "all of it replaced": the page must not freeze.
const TIME_LIMIT_MS = 150;

// Below this share of common words a word diff is confetti; whole lines read better.
const WORD_DIFF_SIMILARITY = 0.35;

const CONTEXT_LINES = 2;

class TokenDiff extends Diff {
  castInput = (tokens) => tokens;
  tokenize = (tokens) => tokens;
  removeEmpty = (tokens) => tokens;
  join = (tokens) => tokens;
}

const tokenDiff = new TokenDiff();

// Words of any script, single Han and kana characters, runs of symbols so that an emoji stays whole.
// Intl.Segmenter would know more words, but its time grows with the square of the length.
const TOKEN = /\n|[^\S\n]+|[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[\p{L}\p{N}_][\p{L}\p{M}\p{N}_]*|[^\p{L}\p{N}\p{P}\s_]+|./gsu;

function compare(before, after) {
  const changes = tokenDiff.diff(before, after, { timeout: TIME_LIMIT_MS });
  return changes ?? [{ removed: true, value: before }, { added: true, value: after }];
}

/** Rows `{kind: "same" | "removed" | "added", parts: [{text, changed}]}`, one for each line. */
export function diffRows(before, after) {
  const changes = compare(lines(before), lines(after));
  const rows = [];
  for (let i = 0; i < changes.length; i++) {
    const { removed, added, value } = changes[i];
    const next = changes[i + 1];
    if (removed && next?.added) {
      rows.push(...changedRows(value, next.value));
      i++;
    } else {
      rows.push(...value.map((line) => wholeRow(added ? "added" : removed ? "removed" : "same", line)));
    }
  }
  return rows;
}

/** Long runs without a change become one `{kind: "skipped", count}`. */
export function foldContext(rows, context = CONTEXT_LINES) {
  const near = rows.map((_, i) => rows.slice(Math.max(0, i - context), i + context + 1).some((row) => row.kind !== "same"));
  const folded = [];
  rows.forEach((row, i) => {
    const last = folded.at(-1);
    if (near[i]) folded.push(row);
    else if (last?.kind === "skipped") last.count++;
    else folded.push({ kind: "skipped", count: 1 });
  });
  return folded;
}

/** Characters that came and went. */
export function diffSize(rows) {
  const count = (kind) =>
    rows.filter((row) => row.kind === kind).flatMap((row) => row.parts).filter((part) => part.changed)
      .reduce((sum, part) => sum + part.text.length, 0);
  return { added: count("added"), removed: count("removed") };
}

const lines = (text) => (text === "" ? [] : text.split(/\r\n|\n/));
const wholeRow = (kind, line) => ({ kind, parts: [{ text: line, changed: kind !== "same" }] });
const tokens = (text) => text.match(TOKEN) ?? [];

function changedRows(removedLines, addedLines) {
  const changes = compare(tokens(removedLines.join("\n")), tokens(addedLines.join("\n")));
  if (similarity(changes) < WORD_DIFF_SIMILARITY) {
    return [...removedLines.map((line) => wholeRow("removed", line)), ...addedLines.map((line) => wholeRow("added", line))];
  }
  return [...wordRows("removed", changes), ...wordRows("added", changes)];
}

function similarity(changes) {
  const length = (chosen) => chosen.reduce((sum, change) => sum + change.value.join("").trim().length, 0);
  return length(changes.filter((change) => !change.added && !change.removed)) / (length(changes) || 1);
}

function wordRows(kind, changes) {
  const other = kind === "removed" ? "added" : "removed";
  const rows = [{ kind, parts: [] }];
  for (const change of changes.filter((change) => !change[other])) {
    change.value.join("").split("\n").forEach((text, i) => {
      if (i > 0) rows.push({ kind, parts: [] });
      if (text) rows.at(-1).parts.push({ text, changed: Boolean(change[kind]) });
    });
  }
  return rows;
}
