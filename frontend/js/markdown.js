// The one place where text of people and models becomes HTML: marked, then DOMPurify with an allow-list.

// The minified build has half the size and no exports: it leaves a global.
import "dompurify";
import { Marked } from "marked";
import { maths } from "./maths.js";

const { DOMPurify } = globalThis;

const ALLOWED_TAGS = [
  "a", "b", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "kbd", "li",
  "mark", "ol", "p", "pre", "s", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "u", "ul", "var",
];
// No id, name, class or style: content must not be able to name or restyle parts of the page.
const ALLOWED_ATTRIBUTES = ["align", "alt", "href", "src", "start", "title"];
const LINK = /^(?:https?:|mailto:)/i;
const INLINE_IMAGE = /^data:image\/(?:png|jpeg|gif|webp|avif);base64,/i;

// A picture inside a message is drawn from the message itself, and nothing is fetched; beyond this it is only weight.
const MAX_INLINE_IMAGE_CHARACTERS = 2_000_000;

// Formatting that models write as bare tags. Any other tag is what the text is about (`<think>`, `<T>`) and is shown.
const BARE_TAG = /^<\/?(?:b|br|del|em|i|kbd|mark|s|strong|sub|sup|u)\s*\/?>$/i;

const marked = new Marked(
  {
    gfm: true,
    breaks: true,
    renderer: {
      html: ({ text, block }) => (BARE_TAG.test(text.trim()) ? text : block ? `<p>${escapeHtml(text.trim())}</p>` : escapeHtml(text)),
      checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    },
  },
  maths,
  {
    // No other text becomes this element.
    extensions: [
      { name: "maths", renderer: ({ text }) => `<var>${escapeHtml(text)}</var>` },
      { name: "mathsBlock", renderer: ({ text }) => `<p><var>${escapeHtml(text)}</var></p>` },
    ],
  },
);

/** Draw one block of `blocks.js` into a fragment that is safe to insert. */
export function renderBlock(token) {
  const fragment = DOMPurify.sanitize(marked.parser([token]), {
    ALLOWED_TAGS,
    ALLOWED_ATTR: ALLOWED_ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    ALLOWED_URI_REGEXP: LINK,
    RETURN_DOM_FRAGMENT: true,
  });
  fragment.querySelectorAll("img").forEach(replaceForeignImage);
  fragment.querySelectorAll("a[href]").forEach(guardLink);
  fragment.querySelectorAll("table").forEach(wrapTable);
  fragment.querySelectorAll("var").forEach(markMaths);
  return fragment;
}

const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escapeHtml = (text) => text.replace(/[&<>"']/g, (character) => ESCAPES[character]);

function replaceForeignImage(image) {
  const source = image.getAttribute("src") ?? "";
  if (INLINE_IMAGE.test(source) && source.length <= MAX_INLINE_IMAGE_CHARACTERS) return;
  const document = image.ownerDocument;
  const label = image.getAttribute("alt") || source.slice(0, 200);
  if (!LINK.test(source)) return image.replaceWith(document.createTextNode(label));
  const link = document.createElement("a");
  link.href = source;
  link.textContent = label;
  image.replaceWith(image.closest("a") ? label : link);
}

function guardLink(link) {
  link.rel = "noopener noreferrer";
  link.target = "_blank";
}

function markMaths(element) {
  element.className = "math";
  element.dir = "ltr";
}

function wrapTable(table) {
  const frame = table.ownerDocument.createElement("div");
  frame.className = "scroll-x";
  frame.tabIndex = 0;
  table.replaceWith(frame);
  frame.append(table);
}
