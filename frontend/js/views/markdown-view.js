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
  const element = useRef(null);
  useLayoutEffect(() => {
    element.current.replaceChildren(renderBlock(token));
  }, [token]);
  return html`<div class="block" ref=${element}></div><${NestedCodeButtons} within=${element} token=${token} />`;
}

// Code inside lists and quotes is part of a sanitised block; its buttons are added beside the text.
function NestedCodeButtons({ within, token }) {
  const { t } = useApp();
  const [, copy] = useCopy();
  const label = t("copy.code");
  useLayoutEffect(() => {
    for (const pre of within.current.querySelectorAll("pre")) {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "copy-nested", textContent: label });
      button.onclick = () => copy(pre.querySelector("code").textContent);
      pre.tabIndex = 0;
      pre.before(button);
    }
  }, [token, label]);
  return null;
}

function CodeBlock({ language, text }) {
  const { t } = useApp();
  return html`<figure class="code" dir="ltr">
    <figcaption><span>${language.split(/\s/)[0].slice(0, 40)}</span><${CopyButton} text=${text} label=${t("copy.code")} /></figcaption>
    <pre tabindex="0"><code>${text}</code></pre>
  </figure>`;
}
