// Maths in Markdown: between its signs stands a text of its own that no other rule reads. Makes no HTML.

const PAIRS = [["$$", "$$"], ["\\(", "\\)"], ["\\[", "\\]"]];
const DISPLAYED = /^ {0,3}(?=\$\$|\\\[)/;
const DISPLAYED_OPENING = /\n(?= {0,3}(?:\$\$|\\\[))/g;
const BLANK_LINE = /\n[ \t]*\n/;
const LINE_END = /^[ \t]*(?:\n+|$)/;

// `$` is money too: the opening one touches what follows, the closing one what is before it and no letter or digit after.
const DOLLARS = /^\$(?![\s$])((?:\\[^\n]|[^\\$`\n])+)(?<!\s)\$(?![\p{L}\p{N}$])/u;
// "$5, or in US$": a number with words is a price unless there is something to calculate.
const PRICE = /^\d[^\\^_=+<>{}]*$/;
const WORD_END = /[\p{L}\p{N}$]$/u;

// Bounds, so that many openings without an end don't cost the square of the text's length.
const LONGEST_CHARACTERS = 5000;
const LOOK_AHEAD_CHARACTERS = 500;

const OPENING = /\$|\\[([]/;

/** The maths at the start of `source`, as `{raw, text}`, or undefined; `before` is the text in front of it. */
function mathsAt(source, before) {
  for (const [opening, closing] of PAIRS) if (source.startsWith(opening)) return between(source, opening, closing);
  const [raw, text] = DOLLARS.exec(source) ?? [];
  return raw && !PRICE.test(text) && !WORD_END.test(before.slice(-2)) ? { raw, text } : undefined;
}

function between(source, opening, closing) {
  const end = source.slice(0, LONGEST_CHARACTERS).indexOf(closing, opening.length);
  const text = source.slice(opening.length, end);
  return end > opening.length && !BLANK_LINE.test(text) ? { raw: source.slice(0, end + closing.length), text } : undefined;
}

/** Maths on lines of its own. While its end may still come it reaches to the end of the text, signs included: what stands in it is no list yet. */
function displayedAt(source) {
  const [indent] = DISPLAYED.exec(source) ?? [];
  if (indent === undefined) return undefined;
  const rest = source.slice(indent.length);
  const found = mathsAt(rest, "") ?? unfinished(rest);
  const [lineEnd] = (found && LINE_END.exec(rest.slice(found.raw.length))) ?? [];
  return lineEnd === undefined ? undefined : { raw: indent + found.raw + lineEnd, text: found.text };
}

const unfinished = (source) => (source.length < LONGEST_CHARACTERS && !BLANK_LINE.test(source) ? { raw: source, text: source } : undefined);

const token = (type, found) => found && { type, raw: found.raw, text: found.text.trim() };

/** Where the next maths may begin, or a space before which there is none. */
function nextOpening(source) {
  const near = source.slice(0, LOOK_AHEAD_CHARACTERS);
  const index = near.search(OPENING);
  return index < 0 && near.length < source.length ? near.lastIndexOf(" ") : index;
}

const inline = {
  name: "maths",
  level: "inline",
  start: nextOpening,
  tokenizer: (source, tokens) => token("maths", mathsAt(source, tokens.at(-1)?.raw ?? "")),
};

/** Where a paragraph ends because maths begins. An opening without an end ends none. */
function nextDisplayed(source) {
  const [paragraph] = source.split("\n\n", 1);
  for (const { index } of paragraph.matchAll(DISPLAYED_OPENING)) if (displayedAt(source.slice(index + 1))) return index;
  return -1;
}

const block = {
  name: "mathsBlock",
  level: "block",
  start: nextDisplayed,
  tokenizer: (source) => token("mathsBlock", displayedAt(source)),
};

/** Hides maths from the search for the end of stress that began before it. */
function mask(source) {
  let masked = "";
  let rest = source;
  for (let index = rest.search(OPENING); index >= 0; index = rest.search(OPENING)) {
    const found = mathsAt(rest.slice(index), rest.slice(0, index));
    const width = found?.raw.length ?? 1;
    masked += rest.slice(0, index) + (found ? "a".repeat(width) : rest[index]);
    rest = rest.slice(index + width);
  }
  return masked + rest;
}

/** For every instance of marked that cuts text or draws tokens. */
export const maths = { extensions: [block, inline], hooks: { emStrongMask: mask } };
