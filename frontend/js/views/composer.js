// Where the person writes: text that grows, the size check before sending, Stop while a turn runs, tools by "/".
// The text is the field's own, so that a key in a long one costs no drawing.

import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isComposing } from "../keys.js";
import { sizeProblem } from "../limits.js";
import { slashIn, toolGroups } from "../tools.js";
import { useApp, useRunning } from "./context.js";
import { html } from "./html.js";
import { Icon, IconButton } from "./icons.js";
import { SlashMenu, ToolForm, optionId } from "./slash.js";

// Measuring the height of a huge text at every key would freeze the page; beyond this it simply scrolls.
const MEASURED_CHARACTERS = 20_000;

export function Composer({ chatId }) {
  const { t, store, drafts, actions, preferences, ui } = useApp();
  const field = useRef(null);
  const menuId = useId();
  const [initial] = useState(() => drafts.read(chatId));
  const [blank, setBlank] = useState(isBlank(initial));
  const slashOf = (text) => slashIn(text, store.workspace.value.tools);
  const [slash, setSlash] = useState(() => slashOf(initial));
  const [tooLarge, setTooLarge] = useState(null);
  const [tool, setTool] = useState(null);
  const running = useRunning(chatId);
  const menu = useSlashMenu(slash);
  const editLast = useEditLast(chatId);

  const typed = (value) => {
    setBlank(isBlank(value));
    setSlash(slashOf(value));
    setTooLarge(null);
    drafts.keep(chatId, value);
    fitHeight(field.current, value);
  };
  const change = (value) => {
    field.current.value = value;
    typed(value);
  };
  const openTools = () => {
    if (field.current.value === "") change("/");
    else setSlash(slashOf(field.current.value) ?? { query: "" });
    menu.show();
    field.current.focus();
  };
  const choose = (chosen) => {
    const typedSlash = slashOf(field.current.value);
    if (typedSlash && !typedSlash.words) change("");
    else setSlash(null);
    preferences.lastTool.value = chosen.name;
    setTool({ ...chosen, words: typedSlash?.words });
  };
  const closeTool = ({ isUsed }) => {
    // Words that were written for a tool stay until it was used with them: a form can be closed by mistake.
    const typedSlash = slashOf(field.current.value);
    if (isUsed && typedSlash?.words) change("");
    else setSlash(typedSlash);
    setTool(null);
    field.current.focus();
  };
  const send = () => {
    const text = field.current.value;
    if (isBlank(text)) return;
    const problem = sizeProblem(text, store.workspace.value.settings);
    if (problem) return setTooLarge(problem);
    if (actions.isBusy(chatId)) ui.announce(t("queue.waits"));
    actions.send(chatId, text);
    ui.followEnd();
    return change("");
  };
  const onKeyDown = (event) => {
    if (isComposing(event)) return undefined;
    if (menu.open && menu.onKeyDown(event, choose)) return event.preventDefault();
    if (event.key === "ArrowUp" && field.current.value === "" && editLast()) return event.preventDefault();
    if (event.key !== "Enter" || event.shiftKey || event.altKey) return undefined;
    event.preventDefault();
    return send();
  };

  useDraftPutBack(chatId, (text) => {
    change(text);
    field.current.focus();
  });
  useLayoutEffect(() => fitHeight(field.current, initial), []);
  useEffect(() => {
    if (matchMedia("(hover: hover)").matches && document.activeElement === document.body) field.current.focus();
  }, []);

  return html`<div class="composer-area">
    ${tool && html`<${ToolForm} key=${tool.name} chatId=${chatId} tool=${tool} words=${tool.words} close=${closeTool} running=${running} />`}
    ${menu.open && html`<${SlashMenu} id=${menuId} groups=${menu.groups} current=${menu.current} choose=${choose} />`}
    <form class="composer" data-composer onSubmit=${(event) => { event.preventDefault(); send(); }}>
      <${IconButton} name="slash" label=${t("composer.tools")} class="slash-button" onClick=${openTools} />
      <textarea ref=${field} rows="1" defaultValue=${initial} aria-label=${t("composer.label")} placeholder=${t("composer.placeholder")}
        aria-autocomplete="list" aria-controls=${menu.open ? menuId : undefined} aria-describedby=${`${menuId}-hint`}
        aria-activedescendant=${menu.open ? optionId(menuId, menu.current) : undefined}
        onInput=${(event) => typed(event.target.value)} onKeyDown=${onKeyDown}></textarea>
      ${running && html`<button type="button" class="button stop" data-action="stop" onClick=${() => actions.stop(chatId)}><${Icon} name="stop" /><span>${t("composer.stop")}</span></button>`}
      <button class="button primary send" data-action="send" disabled=${blank} title=${running ? t("queue.waits") : undefined}>
        <${Icon} name=${running ? "clock" : "send"} /><span>${t(running ? "composer.queue" : "composer.send")}</span>
      </button>
    </form>
    <p id=${`${menuId}-hint`} class="composer-hint" role="status">
      ${tooLarge ? html`<${SizeProblem} ...${tooLarge} />` : drafts.unsaved.value.includes(chatId) ? t("composer.unsaved") : running && !blank ? t("composer.queueHint") : ""}
    </p>
  </div>`;
}

const isBlank = (text) => !/\S/.test(text);

export function SizeProblem({ bytes, limit }) {
  const { t, megabytes } = useApp();
  return html`<span class="danger-text" data-too-large>${t("composer.tooLarge", { size: megabytes(bytes), limit: megabytes(limit) })}</span>`;
}

function useSlashMenu(slash) {
  const { store, preferences, known } = useApp();
  const [index, setIndex] = useState(0);
  const [dismissed, setDismissed] = useState(false);
  const label = (tool) => known(`tool.${tool.name}`, tool.name);
  const groups = slash === null ? [] : toolGroups(store.workspace.value.tools, slash, label, preferences.lastTool.value);
  const tools = groups.flatMap((group) => group.tools);
  const current = tools[Math.min(index, tools.length - 1)];
  useEffect(() => {
    setIndex(0);
    if (slash === null) setDismissed(false);
  }, [slash?.query]);

  const onKeyDown = (event, choose) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) setIndex((tools.indexOf(current) + move + tools.length) % tools.length);
    else if (event.key === "Enter" || event.key === "Tab") choose(current);
    else if (event.key === "Escape") setDismissed(true);
    else return false;
    return true;
  };
  return { open: tools.length > 0 && !dismissed, show: () => setDismissed(false), groups, current, onKeyDown };
}

/** Opens the person's last message for editing, if there is one. */
function useEditLast(chatId) {
  const { store, edits, ui } = useApp();
  return () => {
    const last = store.chatNow(chatId).messages.findLast((message) => message.role === "user");
    if (!last) return false;
    edits.open(edits.idOf(last), last.content);
    // The field takes the focus, and so comes into view, unless its row is too far away to be drawn.
    if (!document.querySelector(`[data-message-id="${last.id}"]`)) ui.showTarget({ chatId, messageId: last.id });
    return true;
  };
}

function useDraftPutBack(chatId, change) {
  const { drafts } = useApp();
  const replaced = drafts.replaced.value;
  const seen = useRef(replaced);
  useEffect(() => {
    if (replaced !== seen.current && replaced?.chatId === chatId) change(replaced.text);
    seen.current = replaced;
  }, [replaced]);
}

function fitHeight(element, text) {
  const huge = text.length > MEASURED_CHARACTERS;
  element.classList.toggle("huge", huge);
  element.style.height = "";
  if (!huge) element.style.height = `${element.scrollHeight}px`;
}
