// Taking chats in from files: choosing them, how far it has come, and what came of each.

import { useEffect, useRef, useState } from "preact/hooks";
import { takeIn } from "../take-in.js";
import { useApp } from "./context.js";
import { Dialog } from "./dialog.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";

// Enough to see what kind of fault it is.
const SHOWN_FAILURES = 50;

export function ImportDialog({ files, close }) {
  const { t } = useApp();
  const { progress, outcome, start, stop } = useTakingIn();
  useEffect(() => {
    if (files) start(files);
  }, [files]);
  return html`<${Dialog} name="import" title=${t("import.title")} close=${() => (stop(), close())}>
    ${progress ? html`<${Progress} progress=${progress} stop=${stop} />` : html`<${Choice} again=${outcome !== null} start=${start} />`}
    <div role="status">${outcome && html`<${Outcome} outcome=${outcome} />`}</div>
  <//>`;
}

function useTakingIn() {
  const { store, actions } = useApp();
  const [progress, setProgress] = useState(null);
  const [outcome, setOutcome] = useState(null);
  const stopped = useRef(false);
  const start = async (files) => {
    stopped.current = false;
    setOutcome(null);
    setProgress({ taken: 0, share: 0 });
    const limits = store.workspace.value.settings;
    const result = await takeIn(files, { send: actions.importChat, limits, onProgress: setProgress, isStopped: () => stopped.current });
    setProgress(null);
    setOutcome(result);
  };
  return { progress, outcome, start, stop: () => (stopped.current = true) };
}

function Choice({ again, start }) {
  const { t } = useApp();
  const field = useRef(null);
  const chosen = () => {
    const files = [...field.current.files];
    if (files.length) start(files);
  };
  return html`${!again && html`<p>${t("import.what")}</p><p class="muted small">${t("import.twice")}</p>`}
    <div class="actions"><button type="button" class="button primary" data-action="choose-files" onClick=${() => field.current.click()}><${Icon} name="upload" />${t(again ? "import.more" : "import.choose")}</button></div>
    <input type="file" accept=".json,application/json" multiple hidden ref=${field} onChange=${chosen} />`;
}

function Progress({ progress, stop }) {
  const { t } = useApp();
  return html`<progress value=${progress.share} aria-label=${t("import.title")}></progress>
    <p class="muted small">${t("import.progress", { count: progress.taken })}</p>
    <div class="actions"><button type="button" class="button" data-action="stop-import" onClick=${stop}>${t("import.stop")}</button></div>`;
}

function Outcome({ outcome }) {
  const { t } = useApp();
  const { taken, known, failed, stopped } = outcome;
  const nothing = taken + known + failed.length === 0;
  return html`<div class="import-outcome" data-import-outcome>
    ${stopped && html`<p>${t("import.stopped")}</p>`}
    ${nothing && !stopped && html`<p>${t("import.nothing")}</p>`}
    ${taken > 0 && html`<p data-taken=${taken}><${Icon} name="check" />${t("import.taken", { count: taken })}</p>`}
    ${known > 0 && html`<p data-known=${known}><${Icon} name="check" />${t("import.known", { count: known })}</p>`}
    ${failed.length > 0 && html`<p class="danger-text" data-failed=${failed.length}><${Icon} name="alert" />${t("import.failed", { count: failed.length })}</p>
      <ul class="import-failures" tabindex="0" aria-label=${t("import.failed", { count: failed.length })}>${failed.slice(0, SHOWN_FAILURES).map((failure, i) => html`<${Failure} key=${i} ...${failure} />`)}</ul>`}
  </div>`;
}

function Failure({ title, code, message }) {
  const { t, known } = useApp();
  const reason = known(`import.bad.${code}`, null) ?? known(`error.${code}`, t("error.internal"));
  return html`<li><bdi>${title || t("chat.untitled")}</bdi>: ${reason}${code === "invalid" && message ? html` <span dir="auto">${message}</span>` : ""}</li>`;
}
