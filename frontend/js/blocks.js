// Cuts Markdown into its top-level blocks so that a streaming reply redraws only its last one. Makes no HTML.

import { Marked } from "marked";

const marked = new Marked({ gfm: true, breaks: true });

/** Blocks `{raw, token, linked}`; `linked` says that reference definitions may have changed its links. */
export function splitBlocks(text) {
  const tokens = marked.lexer(normalise(text));
  const linked = Object.keys(tokens.links).length > 0;
  return tokens.map((token) => ({ raw: token.raw, token, linked }));
}

/** As `splitBlocks`, but keeps the finished blocks of `previous` as they are and reads only what follows them. */
export function growBlocks(previous, text) {
  const source = normalise(text);
  const finished = previous.slice(0, lastContent(previous));
  const prefix = finished.map((block) => block.raw).join("");
  if (!source.startsWith(prefix)) return splitBlocks(source);
  return [...finished, ...splitBlocks(source.slice(prefix.length))];
}

const normalise = (text) => text.replaceAll("\r\n", "\n");
const lastContent = (blocks) => Math.max(0, blocks.findLastIndex((block) => block.token.type !== "space"));
