// Files of chats: takes them apart into single conversations, and puts one together. Knows no DOM and no socket.

const SPECIAL = /["\\{}[\]]/g;

/** A file that is not, or not wholly, JSON with chats; `code` says how. */
export class BadArchive extends Error {
  constructor(code) {
    super(code);
    this.code = code;
  }
}

/**
 * The conversations of a file as `{title, content}`, from the pieces of its text. A list is taken apart while it is
 * read, since an export of years is larger than a text may be in a browser; one object is read as a whole.
 */
export async function* conversationsIn(pieces) {
  let list = null;
  let text = "";
  const items = createSplitter();
  for await (const piece of pieces) {
    if (list === null) {
      text += piece;
      const first = text.match(/[^\s\ufeff]/);
      if (!first) continue;
      if (first[0] !== "[" && first[0] !== "{") throw new BadArchive(text.startsWith("PK") ? "zip" : "not_json");
      list = first[0] === "[";
      if (!list) continue;
      yield* items.push(text.slice(first.index + 1)).map(conversationOf);
    } else if (list) yield* items.push(piece).map(conversationOf);
    else text += piece;
  }
  if (list === null) throw new BadArchive("empty");
  if (list) items.end();
  else yield* parse(text, "not_json").chats?.map(describe) ?? [conversationOf(text)];
}

/** The objects of a JSON list as texts, each as soon as its end has come. The list's `[` is not given to it. */
function createSplitter() {
  let item = "";
  let depth = 0;
  let inText = false;
  let escaped = false;

  function push(piece) {
    const found = [];
    let start = 0;
    let skipped = escaped ? 0 : -1;
    escaped = false;
    for (const { index, 0: character } of piece.matchAll(SPECIAL)) {
      if (index === skipped) continue;
      if (character === "\\") {
        skipped = index + 1;
        escaped = skipped === piece.length;
      } else if (character === '"') inText = !inText;
      else if (inText) continue;
      else if ("{[".includes(character)) start = depth++ === 0 ? index : start;
      else if (--depth === 0) {
        found.push(item + piece.slice(start, index + 1));
        item = "";
      }
    }
    if (depth > 0) item += piece.slice(start);
    return found;
  }

  return {
    push,
    /** The list's own `]` is one more than was opened. */
    end() {
      if (depth !== -1) throw new BadArchive("cut");
    },
  };
}

const conversationOf = (text) => describe(parse(text, "cut"));

function parse(text, code) {
  try {
    return JSON.parse(text);
  } catch {
    throw new BadArchive(code);
  }
}

const describe = (item) => ({ title: titleOf(item), content: JSON.stringify(item) });

const titleOf = (item) => [item?.title, item?.chat?.title].find((title) => typeof title === "string" && title) ?? "";

/** One file of many single exports, as pieces of a text. */
export const workspaceArchive = (contents) => ['{"format":"cleanroom","version":1,"chats":[', ...contents.flatMap((content, i) => (i ? [",", content] : [content])), "]}"];
