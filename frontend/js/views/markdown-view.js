// Draws Markdown block by block: a finished block of a streaming reply is never drawn again.

import { useLayoutEffect, useRef } from "preact/hooks";
import { growBlocks, splitBlocks } from "../blocks.js";
import { renderBlock } from "../markdown.js";
import { useCopy, CopyButton } from "./controls.js";
import { useApp } from "./context.js";
import { html, memo } from "./html.js";

export function Markdown({ text, streaming = false }) {
  const blocks = useRef([]);
  blocks.current = streaming ? growBlocks(blocks.current, text) : splitBlocks(text);
  const shown = blocks.current.filter((block) => block.token.type !== "space" && block.token.type !== "def");
  return html`<div class="prose" dir="auto">${shown.map((block, i) => html`<${Block} key=${i} ...${block} />`)}</div>`;
}

const Block = memo(
  ({ token }) => (token.type === "code" ? html`<${CodeBlock} language=${token.lang ?? ""} text=${token.text} />` : html`<${HtmlBlock} token=${token} />`),
  (a, b) => a.raw === b.raw && a.linked === b.linked,
);

function HtmlBlock({ token }) {
  const { t } = useApp();
  const element = useRef(null);
  const [, copy] = useCopy();
  const label = t("copy.code");
  useLayoutEffect(() => {
    const fragment = renderBlock(token);
    fragment.querySelectorAll("pre").forEach((pre) => addCopyButton(pre, label, copy));
    element.current.replaceChildren(fragment);
  }, [token, label]);
  return html`<div class="block" ref=${element}></div>`;
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

function CodeBlock({ language, text }) {
  const { t } = useApp();
  return html`<figure class="code" dir="ltr">
    <figcaption><span>${language.split(/\s/)[0].slice(0, 40)}</span><${CopyButton} text=${text} label=${t("copy.code")} /></figcaption>
    <pre tabindex="0"><code>${text}</code></pre>
  </figure>`;
}
