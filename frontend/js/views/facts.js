// The facts: this chat's prompt versions and snapshots, the workspace's tasks and notes, what was deleted today.
// A change is a tool's, like a button's on a card: its card says what was done and undoes it.

import { useComputed } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { isComposing } from "../keys.js";
import { keepsComposing, Revealed } from "./controls.js";
import { useAnswer, useApp, useRunning } from "./context.js";
import { html } from "./html.js";
import { Icon, IconButton } from "./icons.js";

export function Facts({ chatId }) {
  const { t } = useApp();
  const facts = useFacts(chatId);
  return facts && html`<section class="facts" data-facts aria-labelledby="facts-title">
    <h2 id="facts-title">${t("facts.title")}</h2>
    <ul class="fact-groups">
      <${Prompts} chatId=${chatId} prompts=${facts.prompts} />
      <${Tasks} chatId=${chatId} tasks=${facts.tasks} />
      <${Notes} chatId=${chatId} notes=${facts.notes} />
      <${Snapshots} chatId=${chatId} snapshots=${facts.snapshots} />
      ${facts.deleted.length > 0 && html`<${Deleted} chatId=${chatId} deleted=${facts.deleted} />`}
    </ul>
  </section>`;
}

/** Asked for again when any tab changed a fact, and when a turn of this chat ended. */
function useFacts(chatId) {
  const { store, actions } = useApp();
  const idle = !useRunning(chatId);
  const revision = useComputed(() => store.workspace.value.factsRevision).value;
  const connected = useComputed(() => store.workspace.value.connection === "open").value;
  return useAnswer(() => actions.facts(chatId), connected, [chatId, idle, revision]).reply;
}

function Group({ name, amount, children }) {
  const { t } = useApp();
  return html`<li data-fact-group=${name}><details>
    <summary><${Icon} name="chevron" /><span>${t(`facts.${name}`)}</span><b>${amount}</b></summary>
    ${children}
  </details></li>`;
}

function Prompts({ chatId, prompts }) {
  const { t, ui, actions, when, dateTime } = useApp();
  const running = useRunning(chatId);
  const inForce = prompts.find((prompt) => prompt.status === "applied")?.version ?? 0;
  const amount = inForce ? t("facts.version", { version: String(inForce) }) : "—";
  const compare = (version) => {
    const before = version === inForce ? Math.max(0, ...prompts.map((prompt) => prompt.version).filter((other) => other < version)) : inForce;
    ui.openDialog("versions", { chatId, prompts, before, after: version });
  };
  return html`<${Group} name="prompts" amount=${amount}><ul>${prompts.map(({ version, status, created_at }) => {
    const name = t("facts.version", { version: String(version) });
    return html`<li class="fact" key=${version} data-version=${version} data-status=${status}>
      <span class="fact-text">${name} <span class="chip">${t(`status.${status}`)}</span><small title=${dateTime(created_at)}>${when(created_at)}</small></span>
      <${IconButton} name="compare" label=${`${t("facts.compare")}: ${name}`} data-action="compare" onClick=${() => compare(version)} />
      ${status === "draft" && html`<${IconButton} name="check" label=${`${t("action.apply")}: ${name}`} data-action="apply" disabled=${running}
        onClick=${() => actions.invoke(chatId, "system_prompt_apply", { version })} />`}
      ${(status === "superseded" || status === "discarded") && html`<${IconButton} name="restore" label=${`${t("action.roll_back")}: ${name}`} data-action="roll_back"
        disabled=${running} onClick=${() => actions.invoke(chatId, "system_prompt_rollback", { version })} />`}
    </li>`;
  })}</ul>${prompts.length === 0 && html`<${Nothing} />`}<//>`;
}

function Tasks({ chatId, tasks }) {
  const { t } = useApp();
  const open = tasks.filter((task) => !task.done).length;
  return html`<${Group} name="tasks" amount=${t("facts.openOf", { open, total: tasks.length })}>
    <ul>${tasks.map((task) => html`<${Task} key=${task.id} chatId=${chatId} task=${task} />`)}</ul>
    <${AddForm} chatId=${chatId} tool="task_add" argument="title" label=${t("facts.newTask")} icon="plus" />
  <//>`;
}

function Task({ chatId, task }) {
  const { t, actions } = useApp();
  const running = useRunning(chatId);
  const [editing, setEditing] = useState(false);
  const { id, title, done } = task;
  // The box shows what was pressed until the facts say what came of it.
  const [ticked, setTicked] = useState(null);
  useEffect(() => {
    if (!running) setTicked(null);
  }, [task]);
  if (editing) return html`<${TaskEditor} chatId=${chatId} task=${task} close=${() => setEditing(false)} />`;
  const tick = async () => {
    setTicked(!done);
    const reply = await (done ? actions.invoke(chatId, "task_update", { id, done: false }) : actions.invoke(chatId, "task_complete", { id }));
    if (!reply) setTicked(null);
  };
  return html`<li class=${done ? "fact done" : "fact"} data-task-id=${id}>
    <label class="fact-text"><input type="checkbox" checked=${ticked ?? done} disabled=${running} onChange=${tick} /><span dir="auto"><${Revealed} text=${title} /></span></label>
    <${IconButton} name="edit" label=${`${t("action.edit")}: ${title}`} data-action="edit" onClick=${() => setEditing(true)} />
    <${IconButton} name="trash" label=${`${t("action.delete")}: ${title}`} data-action="delete" disabled=${running} onClick=${() => actions.invoke(chatId, "task_delete", { id })} />
  </li>`;
}

function TaskEditor({ chatId, task, close }) {
  const { t, actions } = useApp();
  const field = useRef(null);
  const save = async (event) => {
    event.preventDefault();
    const title = field.current.value.trim();
    if (title === task.title || (await actions.invoke(chatId, "task_update", { id: task.id, title }))) close();
  };
  const onKeyDown = (event) => {
    keepsComposing(event);
    if (event.key !== "Escape" || isComposing(event)) return;
    event.preventDefault();
    close();
  };
  return html`<li class="fact" data-task-id=${task.id}><form class="fact-form" onSubmit=${save}>
    <input ref=${(element) => focusOnce(field, element)} required maxlength="500" autocomplete="off" aria-label=${t("argument.title")} defaultValue=${task.title} onKeyDown=${onKeyDown} />
    <${IconButton} name="check" type="submit" label=${t("editor.save")} disabled=${useRunning(chatId)} />
    <${IconButton} name="close" label=${t("editor.cancel")} onClick=${close} />
  </form></li>`;
}

function focusOnce(field, element) {
  if (element && !field.current) element.focus();
  field.current = element;
}

/** One line that a tool makes something new of. */
function AddForm({ chatId, tool, argument, label, icon }) {
  const { actions } = useApp();
  const running = useRunning(chatId);
  const field = useRef(null);
  const add = async (event) => {
    event.preventDefault();
    const text = field.current.value.trim();
    if (text && (await actions.invoke(chatId, tool, { [argument]: text }))) field.current.value = "";
  };
  return html`<form class="fact-form" data-add=${tool} onSubmit=${add}>
    <input ref=${field} required maxlength="200" autocomplete="off" placeholder=${label} aria-label=${label} onKeyDown=${keepsComposing} />
    <${IconButton} name=${icon} type="submit" label=${label} disabled=${running} />
  </form>`;
}

function Notes({ chatId, notes }) {
  const { t, number, ui, actions } = useApp();
  const running = useRunning(chatId);
  // The list may be a moment old: what is edited is what the database holds now.
  const open = async (id) => {
    const fresh = await actions.facts(chatId).catch(actions.report);
    const note = fresh?.notes.find((held) => held.id === id);
    if (note) ui.openDialog("note", { chatId, note });
  };
  const create = () => ui.openDialog("note", { chatId, note: null });
  return html`<${Group} name="notes" amount=${number(notes.length)}>
    <ul>${notes.map((note) => html`<li class="fact" key=${note.id} data-note-id=${note.id}>
      <button type="button" class="fact-text fact-open" dir="auto" onClick=${() => open(note.id)}><${Revealed} text=${note.title} /></button>
      <${IconButton} name="trash" label=${`${t("action.delete")}: ${note.title}`} data-action="delete" disabled=${running} onClick=${() => actions.invoke(chatId, "note_delete", { id: note.id })} />
    </li>`)}</ul>
    <button type="button" class="button small" data-action="new-note" onClick=${create}><${Icon} name="plus" />${t("facts.newNote")}</button>
  <//>`;
}

function Snapshots({ chatId, snapshots }) {
  const { t, number, when, dateTime, ui, actions } = useApp();
  const running = useRunning(chatId);
  // What comes of these two is a card: on a narrow page the panel must not hide it.
  const show = (tool, args) => {
    ui.closeDrawer();
    ui.followEnd();
    actions.invoke(chatId, tool, args);
  };
  return html`<${Group} name="snapshots" amount=${number(snapshots.length)}>
    <ul>${snapshots.map(({ id, label, created_at }) => html`<li class="fact" key=${id} data-snapshot-id=${id}>
      <span class="fact-text"><bdi><${Revealed} text=${label} /></bdi><small title=${dateTime(created_at)}>${when(created_at)}</small></span>
      <${IconButton} name="compare" label=${`${t("facts.compareWithNow")}: ${label}`} data-action="compare" disabled=${running} onClick=${() => show("snapshot_diff", { a: id })} />
      <${IconButton} name="restore" label=${`${t("action.restore")}: ${label}`} data-action="restore" disabled=${running} onClick=${() => show("snapshot_restore", { id })} />
    </li>`)}</ul>
    <${AddForm} chatId=${chatId} tool="snapshot_take" argument="label" label=${t("facts.newSnapshot")} icon="camera" />
  <//>`;
}

function Deleted({ chatId, deleted }) {
  const { t, number, actions } = useApp();
  const running = useRunning(chatId);
  return html`<${Group} name="deleted" amount=${number(deleted.length)}>
    <ul>${deleted.map(({ kind, fact_id: id, title }) => html`<li class="fact" key=${`${kind}-${id}`} data-deleted=${`${kind}-${id}`}>
      <span class="fact-text"><small>${t(`kind.${kind}`)}</small><bdi><${Revealed} text=${title} /></bdi></span>
      <${IconButton} name="restore" label=${`${t("action.restore")}: ${title}`} data-action="restore" disabled=${running} onClick=${() => actions.invoke(chatId, `${kind}_restore`, { id })} />
    </li>`)}</ul>
    <p class="muted small">${t("facts.deletedHint")}</p>
  <//>`;
}

function Nothing() {
  const { t } = useApp();
  return html`<p class="muted small">${t("card.empty")}</p>`;
}
