// Random hostile Markdown: streamed it keeps every letter and is drawn as it is at once; what is drawn of each prefix holds
// only what may stand in the page. The last needs a browser: `python -m tests.faults.fuzz_markdown --minutes 3`. Here:
//
//     node tests/faults/fuzz_markdown.mjs kept,drawn 60 [seed]          checks, seconds

/** Numbers from 0 to 1 that follow from the seed (mulberry32). */
function randomFrom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const CANARY = "globalThis.canary=1";
const SCRIPTED = [
  `<script>${CANARY}</script>`, `<img src=x onerror="${CANARY}">`, `<svg/onload=${CANARY}>`, `<svg><animate onbegin=${CANARY} attributeName=x>`,
  `<math><mtext><table><mglyph><style><img src onerror=${CANARY}>`, `<iframe srcdoc="<script>parent.${CANARY}</script>">`, "<object data=x>", "<embed src=x>",
  "<base href=//host/>", `<meta http-equiv=refresh content="0;url=javascript:${CANARY}">`, "<link rel=stylesheet href=//host/x>",
  `<form action="javascript:${CANARY}"><button>b</button>`, `<details open ontoggle=${CANARY}>`, "<style>@import '//host/x';</style>",
  `<b onclick=${CANARY} style="position:fixed" id=app class=modal>b</b>`, `<b/onmouseover=${CANARY}>`, `<template><img src=x onerror=${CANARY}></template>`,
  `<noscript><p title="</noscript><img src=x onerror=${CANARY}>">`, `<form><math><mtext></form><form><mglyph><style></math><img src onerror=${CANARY}>`,
  `<!--><img src=x onerror=${CANARY}>-->`, `<![CDATA[<img src=x onerror=${CANARY}>]]>`, `<?x <img src=x onerror=${CANARY}>?>`, "<a name=x>", "<kbd>", "</kbd>", "<sub><sup>",
];
const ADDRESSES = [
  `javascript:${CANARY}`, `JaVaScRiPt:${CANARY}`, `java\tscript:${CANARY}`, `java&#10;script:${CANARY}`, `&#106;avascript:${CANARY}`, `\u0001javascript:${CANARY}`,
  "data:text/html,<script>x</script>", "data:image/svg+xml,<svg onload=x>", "data:image/png;base64,AAAA", "vbscript:x", "blob:x", "file:///etc/passwd", "//host/x", "/x", "x:y",
  "https://host/a?b=c&d", "http://host", "mailto:a@b.example", "HTTPS://HOST/", "https://host/\" onmouseover=x", "<https://host/a b>", "https:javascript:x",
];
const INLINE = [
  "word", " ", "слово", "🙂", "\u202e", "\u0000", "&lt;b&gt;", "&#60;b&#62;", "*", "**", "_", "~~", "`", "``", "\\", "\\*", "$a_1$", "$", "$$", "\\(x\\)", "\\[", "\\]",
  "|", "[", "]", "](", ")", "![", "<", ">", '"', "https://host/x", "www.host.example", "a@b.example", "<b>", "</b>", "<br>", "<u>", "<think>", "[x]", "[ ] ",
  "[a]", "[a][b]", "![a][b]", "<https://host>", "  \n", "\\\n", "\r\n",
];
const LINES = [
  "# ", "###### ", "- ", "* ", "+ ", "1. ", "7) ", "- [ ] ", "- [x] ", "> ", ">", "    ", "\t", "  ", "```", "```js", '```"><img src=x onerror=' + CANARY + ">", "~~~", "$$", "\\[", "\\]",
  "---", "===", "***", "| a | b |", "|---|:-:|", "| 1 | 2 |", "<div>", "</div>", "<b>", "<pre>", "<!-- ", "-->", "<details>", "",
];

/** A text of a few lines, most of which begin as blocks do and hold what could break out of them. */
function hostileText(random) {
  const pick = (choices) => choices[Math.floor(random() * choices.length)];
  const link = () => pick([`[a](${pick(ADDRESSES)})`, `![a](${pick(ADDRESSES)})`, `<${pick(ADDRESSES)}>`, `[a](${pick(ADDRESSES)} "t")`, `\n\n[${pick(["a", "b"])}]: ${pick(ADDRESSES)}\n`]);
  const html = () => pick([`<a href="${pick(ADDRESSES)}">`, `<img src="${pick(ADDRESSES)}">`, pick(SCRIPTED), pick(SCRIPTED).slice(0, Math.floor(random() * 20))]);
  const part = () => (random() < 0.5 ? pick(INLINE) : random() < 0.5 ? link() : html());
  const line = () => {
    let text = "";
    while (random() < 0.6) text += pick(LINES);
    while (random() < 0.6) text += part();
    return text;
  };
  let text = line();
  while (random() < 0.85 && text.length < 250) text += pick(["\n", "\n", "\n\n", "\n\n\n", "\n \n"]) + line();
  return text;
}

// What ends a block of text is not seen.
const withoutEndSpaces = (html) => html.replace(/\s+(?=<\/|$)/g, "");

/** A text's blocks after it has come in small pieces; each step goes on from the one before. */
function* growth({ growBlocks }, text, random) {
  let blocks = [];
  for (let end = 0; end < text.length; ) {
    end = Math.min(text.length, end + 1 + Math.floor(random() * 16));
    blocks = growBlocks(blocks, text.slice(0, end));
    yield { blocks, end };
  }
}

/** Throws when a part of a streaming text is in no block, or in two. Its spaces are marked's to keep. */
function checkKept(modules, text, random) {
  for (const { blocks, end } of growth(modules, text, random)) {
    const [held, sent] = [blocks.map(({ raw }) => raw).join(""), text.slice(0, end)].map((part) => part.replace(/\s/g, ""));
    if (held !== sent) throw new Error(`after ${end} the blocks hold ${JSON.stringify(held)}`);
  }
}

/** Throws when a text that has streamed in is drawn otherwise than the whole text at once. */
function checkDrawn(modules, text, random) {
  const grown = modules.endBlocks([...growth(modules, text, random)].at(-1)?.blocks ?? [], text);
  const drawn = (blocks) => blocks.filter(({ token }) => token.type !== "space").map(({ token, goesOn }) => withoutEndSpaces(modules.draw(token)) + (goesOn ? "…" : ""));
  const [is, should] = [drawn(grown), drawn(modules.splitBlocks(text))].map((blocks) => JSON.stringify(blocks));
  if (is !== should) throw new Error(`streamed it is drawn as ${is}, at once as ${should}`);
}

const ELEMENTS = new Set(
  "A B BLOCKQUOTE BR CODE DEL DIV EM H1 H2 H3 H4 H5 H6 HR I IMG KBD LI MARK OL P PRE S STRONG SUB SUP TABLE TBODY TD TH THEAD TR U UL VAR".split(" "),
);
const ATTRIBUTES = new Set(["align", "alt", "href", "src", "start", "title", "rel", "target"]);
const OWN = { DIV: { class: "scroll-x", tabindex: "0" }, VAR: { class: "math", dir: "ltr" } };

/** Throws when something that is drawn of a prefix may not be in the page. */
function checkTree({ splitBlocks, renderBlock }, text) {
  const step = Math.max(1, Math.floor(text.length / 12));
  for (let end = text.length; end > 0; end -= step) {
    // A block of code is drawn as text.
    const drawn = splitBlocks(text.slice(0, end)).filter(({ token }) => token.type !== "code");
    for (const { token } of drawn) checkFragment(renderBlock(token));
  }
}

function checkFragment(fragment) {
  const host = document.createElement("div");
  host.append(fragment);
  document.body.append(host);
  const walker = document.createTreeWalker(host, NodeFilter.SHOW_ALL);
  while (walker.nextNode()) checkNode(walker.currentNode);
  host.remove();
  if (globalThis.canary !== undefined) throw new Error("a script ran");
}

function checkNode(node) {
  if (node.nodeType === Node.TEXT_NODE) return;
  if (!ELEMENTS.has(node.nodeName)) throw new Error(`${node.nodeName} is drawn`);
  for (const { name, value } of node.attributes) {
    if (!ATTRIBUTES.has(name) && OWN[node.nodeName]?.[name] !== value) throw new Error(`${node.nodeName} has ${name}="${value}"`);
  }
  if (node.nodeName === "A" && node.hasAttribute("href")) checkLink(node);
  if (node.nodeName === "IMG" && !/^data:image\/(png|jpeg|gif|webp|avif);base64,/i.test(node.getAttribute("src"))) throw new Error(`a picture of ${node.src}`);
  if (node.nodeName !== "IMG" && node.hasAttribute("src")) throw new Error(`${node.nodeName} has a source`);
}

function checkLink(link) {
  // ":" is that of an address which leads nowhere.
  if (!["http:", "https:", "mailto:", ":"].includes(link.protocol)) throw new Error(`a link to ${link.href}`);
  if (link.rel !== "noopener noreferrer" || link.target !== "_blank") throw new Error("a link without its guard");
}

const CHECKS = { kept: checkKept, drawn: checkDrawn, tree: checkTree };

/** Tries for a while; for each check named how many texts it tried, how many failed, and the shortest one of those. */
export function explore(modules, names, seed, milliseconds) {
  const figures = Object.fromEntries(names.map((name) => [name, { tried: 0, failures: 0, shortest: null }]));
  for (const started = performance.now(); performance.now() - started < milliseconds; seed++) {
    const text = hostileText(randomFrom(seed));
    for (const name of names) tryOne(figures[name], () => CHECKS[name](modules, text, randomFrom(seed)), { seed, text });
  }
  return figures;
}

function tryOne(figures, check, example) {
  figures.tried++;
  try {
    check();
  } catch ({ message }) {
    figures.failures++;
    if (!(figures.shortest?.text.length <= example.text.length)) figures.shortest = { ...example, message };
  }
}

if (globalThis.process && globalThis.process.argv[1] === import.meta.filename) {
  const [, , names = "kept,drawn", seconds = "60", seed = String(Date.now() % 2 ** 31)] = globalThis.process.argv;
  const [blocks, { Marked }, { maths }] = await Promise.all(["../../frontend/js/blocks.js", "marked", "../../frontend/js/maths.js"].map((name) => import(name)));
  const asText = ({ type, text }) => `<${type}>${text}</${type}>`;
  const marked = new Marked({ gfm: true, breaks: true }, maths, { extensions: ["maths", "mathsBlock"].map((name) => ({ name, renderer: asText })) });
  const figures = explore({ ...blocks, draw: (token) => marked.parser([token]) }, names.split(","), Number(seed), Number(seconds) * 1000);
  console.log(JSON.stringify({ seed, ...figures }, null, 1));
  globalThis.process.exitCode = Object.values(figures).some(({ failures }) => failures > 0) ? 1 : 0;
}
