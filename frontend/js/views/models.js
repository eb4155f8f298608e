// Which model answers in this chat, as a button in the bar that opens the choice, and the models that are on their way.

import { useEffect, useId, useRef, useState } from "preact/hooks";
import { modelOf } from "../selectors.js";
import { place } from "./controls.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { later } from "./later.js";
import { percentOf } from "./pull-progress.js";

const LIST = "./model-list.js";
const useList = later(() => import(LIST));

export function ModelPicker({ chatId }) {
  const { t, store } = useApp();
  const workspace = store.workspace.value;
  const model = modelOf(workspace, workspace.chats[chatId]);
  const button = useRef(null);
  const popover = useRef(null);
  const id = useId();
  const [open, setOpen] = useState(false);
  const list = useList(open);
  const name = nameOf(model, workspace.modelBackend, t);
  return html`<${Pulls} />
    <button type="button" ref=${button} class=${model && !model.missing ? "model" : "model none"} data-backend=${workspace.modelBackend ?? "none"} data-model-picker
      aria-label=${`${t("model.label")}: ${name}`} title=${name} aria-haspopup="dialog" aria-expanded=${open} popovertarget=${id}>
      <${Icon} name="chip" /><span class="model-name" dir="auto">${name}</span><${Icon} name="chevron" /></button>
    <div id=${id} ref=${popover} popover="auto" class="model-popover" role="dialog" aria-label=${t("model.label")} onToggle=${({ newState }) => setOpen(newState === "open")}
      onKeyDown=${(event) => event.key === "Escape" && event.stopPropagation()}>
      ${list && html`<${list.ModelList} chatId=${chatId} close=${() => popover.current.hidePopover()} ready=${() => place(popover.current, button.current, "end")} />`}
    </div>`;
}

function nameOf(model, backend, t) {
  if (!model) return t("model.none");
  if (model.missing) return t("model.missing", { name: model.name });
  return backend === "embedded" ? t("model.embedded", { name: model.name }) : model.name;
}

/** A line for the models that are being fetched, which goes on when their dialog is closed. */
function Pulls() {
  const { t, store, ui } = useApp();
  const pulls = Object.values(store.workspace.value.pulls);
  const running = pulls.filter((pull) => pull.status === "running");
  useAnnouncements(pulls);
  if (!running.length) return null;
  const [first] = running;
  const percent = percentOf(first);
  const share = percent === null ? "…" : `${percent} %`;
  const label = running.length > 1 ? t("pull.several", { count: running.length }) : t("pull.running", { name: first.name });
  return html`<button type="button" class="pulling" data-pulling=${first.name} title=${label} aria-label=${`${label}: ${share}`} onClick=${() => ui.openDialog("pull")}>
    <${Icon} name="download" /><span>${share}</span></button>`;
}

function useAnnouncements(pulls) {
  const { t, ui } = useApp();
  const known = useRef(null);
  useEffect(() => {
    const before = known.current;
    known.current = Object.fromEntries(pulls.map(({ name, status }) => [name, status]));
    if (!before) return;
    for (const { name, status } of pulls) {
      if (before[name] === "running" && status !== "running") ui.announce(`${name}: ${t(`pull.${status}`)}`);
    }
  });
}
