// What a search shows: hits by chat, and which words of a text were meant. Pure functions.

// Endings differ from form to form; this much of a word's end may be another one.
const ENDING_CHARACTERS = 2;
const SHORTEST_BEGINNING = 3;

const WORD = /[\p{L}\p{N}\p{M}]+/gu;

const wordsOf = (text) => [...text.matchAll(WORD)].map(([word]) => fold(word));
const fold = (word) => word.toLocaleLowerCase().replaceAll("ё", "е");

/** Hits as `{chatId, title, hits}`, the chat of the best hit first. */
export function hitsByChat(hits) {
  const groups = new Map();
  for (const hit of hits) {
    if (!groups.has(hit.chat_id)) groups.set(hit.chat_id, { chatId: hit.chat_id, title: hit.title, hits: [] });
    groups.get(hit.chat_id).hits.push(hit);
  }
  return [...groups.values()];
}

/** The text in pieces `{text, meant}`: `meant` where a word of the query, or another form of it, stands. */
export function emphasise(text, query) {
  const wanted = wordsOf(query);
  const pieces = [];
  let start = 0;
  for (const { 0: word, index } of text.matchAll(WORD)) {
    if (!wanted.some((one) => alike(fold(word), one))) continue;
    if (index > start) pieces.push({ text: text.slice(start, index), meant: false });
    pieces.push({ text: word, meant: true });
    start = index + word.length;
  }
  if (start < text.length) pieces.push({ text: text.slice(start), meant: false });
  return pieces;
}

function alike(word, wanted) {
  if (word === wanted) return true;
  const beginning = Math.max(SHORTEST_BEGINNING, wanted.length - ENDING_CHARACTERS);
  return word.length >= beginning && wanted.startsWith(word.slice(0, beginning));
}
