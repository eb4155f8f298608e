// A block of code with its language and a copy button. Colours come once it is finished, and are imported only then.

import { useLayoutEffect, useState } from "preact/hooks";
import { CopyButton } from "./controls.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { Pieces } from "./pieces.js";

const HIGHLIGHTER = "../highlight.js";

// Beyond this the page would stop for more than a moment.
const MAX_COLOURED_CHARACTERS = 20_000;

export function CodeBlock({ language, text, finished }) {
  const { t } = useApp();
  const name = language.split(/\s/)[0].slice(0, 40);
  const runs = useRuns(text, finished && text.length <= MAX_COLOURED_CHARACTERS ? name : "");
  return html`<figure class="code" dir="ltr">
    <figcaption><bdi>${name}</bdi><${CopyButton} text=${text} label=${t("copy.code")} /></figcaption>
    <pre tabindex="0"><code>${runs ? runs.map(drawRun) : html`<${Pieces} text=${text} />`}</code></pre>
  </figure>`;
}

const drawRun = ({ text, colour }) => (colour ? html`<span class=${`code-${colour}`}>${text}</span>` : text);

/** The code in runs of one colour, or null while there are none. */
function useRuns(text, language) {
  const [found, setFound] = useState(null);
  useLayoutEffect(() => {
    if (!language) return undefined;
    let current = true;
    const keep = (runs) => current && setFound({ text, runs });
    // Without the server there are no colours, and the code can be read all the same.
    import(HIGHLIGHTER).then(({ highlight }) => highlight(text, language).then(keep), () => {});
    return () => (current = false);
  }, [text, language]);
  return found?.text === text ? found.runs : null;
}
