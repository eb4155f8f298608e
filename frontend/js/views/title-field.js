// A chat's title as a field over the place where it stands.

import { useEffect, useRef } from "preact/hooks";
import { isComposing } from "../keys.js";
import { useApp } from "./context.js";
import { html } from "./html.js";

/** Enter and leaving it save, Escape does not, an empty one changes nothing. `home()` is where the focus returns to. */
export function TitleField({ chatId, home }) {
  const { t, store, actions, ui } = useApp();
  const field = useRef(null);
  const before = useRef(store.workspace.peek().chats[chatId]?.title ?? "").current;
  useEffect(() => {
    field.current.focus();
    field.current.select();
  }, []);

  const end = (saves) => {
    // The field leaves the page with the focus in it, which ends it once more.
    if (!ui.renaming.peek()) return;
    ui.stopRenaming();
    const title = field.current.value.trim();
    if (saves && title && title !== before) actions.renameChat(chatId, title);
  };
  const onKeyDown = (event) => {
    event.stopPropagation();
    if (isComposing(event) || (event.key !== "Enter" && event.key !== "Escape")) return;
    event.preventDefault();
    end(event.key === "Enter");
    home()?.focus();
  };
  return html`<input class="title-field" ref=${field} defaultValue=${before} maxlength="200" autocomplete="off" dir="auto"
    aria-label=${t("rename.label")} data-rename=${chatId} onKeyDown=${onKeyDown} onBlur=${() => end(true)} />`;
}
