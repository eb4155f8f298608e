// Cuts Markdown into its top-level blocks so that a streaming reply redraws only its last one. Makes no HTML.

import { Marked, Tokenizer } from "marked";
import { maths } from "./maths.js";

// A tag is text or bare formatting here, so none changes how what follows is read; behind <code> and <pre> marked
// would pass it on unescaped, and behind <a> make no links.
const tags = {
  tag(source) {
    const { inLink, inRawBlock } = this.lexer.state;
    const token = Tokenizer.prototype.tag.call(this, source);
    Object.assign(this.lexer.state, { inLink, inRawBlock });
    return token;
  },
};

const marked = new Marked({ gfm: true, breaks: true }, maths, { tokenizer: tags });

// What is read anew as a whole when it is complete.
const WHOLE_CHARACTERS = 20_000;

// A list longer than this becomes several blocks: a streaming one would be drawn anew as a whole with every item.
const LIST_ITEMS = 100;

/** Blocks `{raw, token, linked, goesOn}`; `linked`: definitions may have changed its links; `goesOn`: it is the rest of the list before it. */
export function splitBlocks(text) {
  const tokens = marked.lexer(normalise(text));
  const linked = Object.keys(tokens.links).length > 0;
  return tokens.flatMap(shorten).map((token) => ({ raw: token.raw, token, linked, goesOn: token.goesOn ?? false }));
}

// Only lists without numbers: their items look the same wherever the list begins.
function shorten(token) {
  if (token.type !== "list" || token.ordered || token.items.length <= LIST_ITEMS) return [token];
  const lists = [];
  for (let first = 0; first < token.items.length; first += LIST_ITEMS) {
    const items = token.items.slice(first, first + LIST_ITEMS);
    lists.push({ ...token, items, raw: items.map((item) => item.raw).join(""), goesOn: first > 0 });
  }
  return lists.map((list) => list.raw).join("") === token.raw ? lists : [token];
}

/** As `splitBlocks`, but keeps the finished blocks of `previous` as they are and reads only what follows them. */
export function growBlocks(previous, text) {
  const source = normalise(text);
  const finished = previous.slice(0, lastContent(previous));
  const prefix = finished.map((block) => block.raw).join("");
  if (!source.startsWith(prefix)) return splitBlocks(source);
  const [next, ...rest] = splitBlocks(source.slice(prefix.length));
  // Cut off from the list before it, a part of it no longer knows that it goes on.
  return [...finished, ...(next ? [{ ...next, goesOn: goesOn(finished, next) }] : []), ...rest];
}

/** As `growBlocks` for a text that is complete: a definition at its end makes links of what stands before it, and `***` a rule. */
export function endBlocks(previous, text) {
  const grown = growBlocks(previous, text);
  const isCut = previous.length > 0 && (text.length <= WHOLE_CHARACTERS || grown.some((block) => block.linked));
  return isCut ? splitBlocks(text) : grown;
}

const goesOn = (finished, { token }) => finished.length > 0 && token.type === "list" && finished.at(-1).token.type === "list" && finished.at(-1).token.items.length === LIST_ITEMS;
const normalise = (text) => text.replaceAll("\r\n", "\n");
const lastContent = (blocks) => Math.max(0, blocks.findLastIndex((block) => block.token.type !== "space"));
