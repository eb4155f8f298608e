// A message of the person's as a text field in its place, and what becomes of the conversation when it is sent anew.

import { useComputed } from "@preact/signals";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { isComposing } from "../keys.js";
import { sizeProblem } from "../limits.js";
import { countAfter } from "../selectors.js";
import { SizeProblem } from "./composer.js";
import { useApp, useRunning } from "./context.js";
import { html } from "./html.js";
import { ErrorText } from "./messages.js";

const LONGEST_FIELD_LINES = 16;

export function EditMessage({ chat, message }) {
  const { t, actions, ui } = useApp();
  const { id, chat_id: chatId } = message;
  const running = useRunning(chatId);
  const following = useComputed(() => countAfter(chat.value, id)).value;
  const send = async (text) => {
    await actions.editMessage(id, text);
    ui.followEnd();
    return true;
  };
  const sendInFork = (text) => actions.sendInFork(chatId, id, text);
  return html`<${Editor} message=${message} text=${message.content} running=${running} save=${{ label: t("edit.send"), act: send }}
    other=${following > 0 && { label: t("edit.fork"), act: sendInFork }}>
    ${following > 0 && html`<p data-following=${following}>${t("edit.following", { count: following })}</p>`}
    ${running && html`<p>${t("edit.wait")}</p>`}
  <//>`;
}

export function EditQueued({ entry }) {
  const { t, actions } = useApp();
  const saved = useRef({});
  useEffect(() => () => actions.endEditQueued(entry.clientId, saved.current), []);
  const save = (text) => {
    saved.current = { text };
    return true;
  };
  return html`<${Editor} message=${entry} text=${entry.text} save=${{ label: t("editor.save"), act: save }} />`;
}

/** `save` and `other` are `{label, act}`; `act(text)` resolves with whether the editor is done, or rejects with CommandError. */
function Editor({ message, text, running = false, save, other, children }) {
  const { t, store, drafts, edits } = useApp();
  const id = edits.idOf(message);
  const field = useRef(null);
  const hintId = useId();
  const [initial] = useState(() => drafts.read(id) || text);
  const [problem, setProblem] = useState(null);
  const [sent, setSent] = useState(false);

  useEffect(() => {
    if (edits.wasOpened(id)) field.current.focus();
    field.current.setSelectionRange(initial.length, initial.length);
  }, []);

  const typed = ({ target }) => {
    setProblem(null);
    drafts.keep(id, target.value);
  };
  const submit = async ({ act }) => {
    const value = field.current.value;
    if (sent || !/\S/.test(value)) return;
    const size = sizeProblem(value, store.workspace.value.settings);
    if (size) {
      setProblem({ size });
      return;
    }
    setSent(true);
    try {
      if (await act(value)) return void edits.close(id);
    } catch (error) {
      if (!error.code) throw error;
      setProblem({ error });
    }
    setSent(false);
  };
  const submitSave = () => running || submit(save);
  const onKeyDown = (event) => {
    if (isComposing(event)) return;
    if (event.key === "Escape") edits.close(id);
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submitSave();
    else return;
    event.preventDefault();
  };
  return html`<form class="message-editor" data-editor onSubmit=${(event) => { event.preventDefault(); submitSave(); }} onKeyDown=${onKeyDown}>
    <textarea ref=${field} defaultValue=${initial} rows=${Math.min(LONGEST_FIELD_LINES, initial.split("\n", LONGEST_FIELD_LINES).length + 1)}
      dir="auto" aria-label=${t("edit.label")} aria-describedby=${hintId} onInput=${typed}></textarea>
    <div class="hints" id=${hintId}>${children}<p>${t("edit.keys")}</p></div>
    ${problem && html`<div class="failure" role="alert">${problem.size ? html`<${SizeProblem} ...${problem.size} />` : html`<${ErrorText} error=${problem.error} />`}</div>`}
    <div class="actions">
      <button class="button primary small" data-action="save-edit" disabled=${running || sent}>${save.label}</button>
      ${other && html`<button type="button" class="button small" data-action="send-in-fork" disabled=${sent} onClick=${() => submit(other)}>${other.label}</button>`}
      <button type="button" class="button quiet small" data-action="cancel-edit" onClick=${() => edits.close(id)}>${t("editor.cancel")}</button>
    </div>
  </form>`;
}
