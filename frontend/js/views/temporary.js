// The line over the composer of a temporary chat, with the way to keep it.

import { useComputed } from "@preact/signals";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";

export function TemporaryLine({ chatId }) {
  const { t, store, actions } = useApp();
  const temporary = useComputed(() => store.workspace.value.chats[chatId]?.temporary).value;
  return temporary && html`<p class="temporary-line" data-temporary><${Icon} name="hourglass" /><span>${t("temporary.line")}</span>
    <button type="button" class="link" data-action="keep-chat" onClick=${() => actions.keepChat(chatId)}>${t("temporary.keep")}</button></p>`;
}
