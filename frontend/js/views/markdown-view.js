// Draws Markdown block by block: a finished block of a streaming reply is never drawn again.

import { useEffect, useLayoutEffect, useReducer, useRef } from "preact/hooks";
import { endBlocks, growBlocks } from "../blocks.js";
import { renderBlock } from "../markdown.js";
import { CodeBlock } from "./code-block.js";
import { useCopy } from "./controls.js";
import { useApp } from "./context.js";
import { html, memo } from "./html.js";

// What a frame can draw. A longer text comes as if it streamed, and nobody waits for its end.
const STEP_CHARACTERS = 12_000;

// A block that takes longer to draw is drawn anew for a quarter of the time at most, however fast it grows.
const SLOW_MS = 24;
const REST_FACTOR = 3;

// To draw this much again whenever it comes into view would be seen: its row stays (views/row-list.js).
const KEPT_CHARACTERS = 60_000;

export function Markdown({ text, streaming = false }) {
  const pace = usePace(text);
  const growing = streaming || pace.drawn < text.length;
  const blocks = useBlocks(text.slice(0, pace.drawn), growing);
  pace.block = blocks.at(-1)?.raw.length ?? 0;
  const shown = blocks.filter((block) => block.token.type !== "space" && block.token.type !== "def");
  return html`<div class="prose" dir="auto" data-kept=${text.length > KEPT_CHARACTERS || undefined}>
    ${shown.map((block, i) => html`<${Block} key=${i} ...${block} finished=${!growing || i < shown.length - 1} />`)}
  </div>`;
}

/** How much of the text to draw now, `drawn`: a step more than before, and no more while the page rests from a slow one. */
function usePace(text) {
  const [, draw] = useReducer((count) => count + 1, 0);
  const pace = useRef({ drawn: 0, block: 0, restsUntil: 0 }).current;
  const began = performance.now();
  const rest = pace.restsUntil - began;
  // The last block is drawn anew with each step, so the steps grow with it.
  const reached = rest > 0 ? pace.drawn : pace.drawn + STEP_CHARACTERS + pace.block;
  pace.drawn = Math.min(text.length, reached);
  useLayoutEffect(() => {
    const now = performance.now();
    if (now - began > SLOW_MS) pace.restsUntil = now + REST_FACTOR * (now - began);
  });
  useEffect(() => {
    if (pace.drawn === text.length) return undefined;
    const timer = rest > 0 ? setTimeout(draw, rest) : requestAnimationFrame(draw);
    return () => (rest > 0 ? clearTimeout(timer) : cancelAnimationFrame(timer));
  });
  return pace;
}

function useBlocks(text, growing) {
  const held = useRef({ text: null, growing, blocks: [] });
  if (held.current.text !== text || held.current.growing !== growing) {
    const blocks = (growing ? growBlocks : endBlocks)(held.current.blocks, text);
    held.current = { text, growing, blocks };
  }
  return held.current.blocks;
}

const Block = memo(
  ({ token, finished, goesOn }) => (token.type === "code" ? html`<${CodeBlock} language=${token.lang ?? ""} text=${token.text} finished=${finished} />` : html`<${HtmlBlock} token=${token} goesOn=${goesOn} />`),
  (a, b) => a.raw === b.raw && a.linked === b.linked && (a.finished === b.finished || a.token.type !== "code"),
);

function HtmlBlock({ token, goesOn }) {
  const { t } = useApp();
  const element = useRef(null);
  const [, copy] = useCopy();
  const label = t("copy.code");
  useLayoutEffect(() => {
    const fragment = renderBlock(token);
    fragment.querySelectorAll("pre").forEach((pre) => addCopyButton(pre, label, copy));
    element.current.replaceChildren(fragment);
  }, [token, label]);
  return html`<div class=${goesOn ? "block goes-on" : "block"} ref=${element}></div>`;
}

// Code inside a list or a quote is part of a sanitised block; its button is added beside the text.
function addCopyButton(pre, label, copy) {
  const button = Object.assign(document.createElement("button"), { type: "button", className: "copy-nested", textContent: label });
  button.onclick = () => copy(pre.textContent);
  const frame = Object.assign(document.createElement("div"), { className: "nested-code" });
  pre.tabIndex = 0;
  pre.replaceWith(frame);
  frame.append(pre, button);
}
