// What of the facts needs more room than the panel: one note, and two versions of the prompt side by side.

import { useMemo, useState } from "preact/hooks";
import { diffRows } from "../diff.js";
import { useApp, useRunning } from "./context.js";
import { Dialog } from "./dialog.js";
import { DiffSize, DiffView } from "./diff-view.js";
import { html } from "./html.js";
import { ErrorText } from "./messages.js";
import { Field, useToolForm } from "./slash.js";

const NOTE_FIELDS = [
  { name: "title", kind: "text", required: true },
  { name: "content", kind: "textarea", required: true },
];

/** A note to change, or a new one when there is none. */
export function NoteDialog({ chatId, note, close }) {
  const { t } = useApp();
  const running = useRunning(chatId);
  const { form, error, wrong, submit } = useToolForm(chatId, "note_save", NOTE_FIELDS, { fixed: note ? { id: note.id } : {}, done: close });
  return html`<${Dialog} name="note" wide title=${t(note ? "facts.note" : "facts.newNote")} close=${close}>
    <form ref=${form} onSubmit=${submit}>
      ${NOTE_FIELDS.map((field) => html`<${Field} key=${field.name} id=${`note-${field.name}`} field=${field} value=${note?.[field.name]} wrong=${wrong[field.name]} />`)}
      ${error && html`<div class="failure" role="alert"><${ErrorText} error=${error} /></div>`}
      <div class="actions"><button class="button primary" disabled=${running}>${t("editor.save")}</button>
        <button type="button" class="button quiet" onClick=${close}>${t("editor.cancel")}</button></div>
    </form>
  <//>`;
}

// Before the first version there was no text.
const NOTHING = { version: 0, content: "", status: null };

export function VersionsDialog({ chatId, prompts, before, after, close }) {
  const { t, actions } = useApp();
  const running = useRunning(chatId);
  const [chosen, choose] = useState({ before, after });
  const find = (version) => prompts.find((prompt) => prompt.version === version) ?? NOTHING;
  const rows = useMemo(() => diffRows(find(chosen.before).content, find(chosen.after).content), [chosen]);
  const picker = (side) => html`<${VersionPicker} side=${side} prompts=${prompts} value=${chosen[side]} choose=${(version) => choose({ ...chosen, [side]: version })} />`;
  const { version, status } = find(chosen.after);
  const inForce = prompts.find((prompt) => prompt.status === "applied") ?? NOTHING;
  const label = status === "draft" ? t("action.apply") : version ? t("facts.rollBackTo", { version: String(version) }) : t("facts.removePrompt");
  const putInForce = () => {
    actions.invoke(chatId, status === "draft" ? "system_prompt_apply" : "system_prompt_rollback", { version });
    close();
  };
  return html`<${Dialog} name="versions" wide title=${t("facts.compare")} close=${close}>
    <div class="version-pickers">${picker("before")}${picker("after")}<${DiffSize} rows=${rows} /></div>
    <div class="version-diff" tabindex="0" role="group" aria-label=${t("facts.difference")}><${DiffView} key=${`${chosen.before}-${chosen.after}`} rows=${rows} /></div>
    <div class="actions">
      <button type="button" class="button primary" data-action="put-in-force" disabled=${running || version === inForce.version} onClick=${putInForce}>${label}</button>
      <button type="button" class="button quiet" onClick=${close}>${t("dialog.close")}</button>
    </div>
  <//>`;
}

function VersionPicker({ side, prompts, value, choose }) {
  const { t } = useApp();
  return html`<label class="field"><span>${t(`facts.${side}`)}</span>
    <select data-side=${side} value=${value} onChange=${(event) => choose(Number(event.target.value))}>
      ${prompts.map(({ version, status }) => html`<option key=${version} value=${version}>${t("facts.version", { version: String(version) })} · ${t(`status.${status}`)}</option>`)}
      <option value="0">${t("facts.noVersion")}</option>
    </select></label>`;
}
