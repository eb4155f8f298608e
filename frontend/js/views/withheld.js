// What the model is not sent and why: by reason, each unfolds to its messages.

import { useState } from "preact/hooks";
import { CardTitle } from "./card.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { IconButton } from "./icons.js";
import { sum } from "./request-parts.js";

export function Withheld({ chatId, withheld }) {
  const { t } = useApp();
  if (!withheld.length) return html`<p class="muted small">${t("withheld.none")}</p>`;
  const reasons = [...new Set(withheld.map((item) => item.reason))];
  return html`<section class="withheld" data-withheld><h3>${t("withheld.title")}</h3><ul>${reasons.map(
    (reason) => html`<${Reason} key=${reason} chatId=${chatId} reason=${reason} items=${withheld.filter((item) => item.reason === reason)} />`,
  )}</ul></section>`;
}

function Reason({ chatId, reason, items }) {
  const { t, number } = useApp();
  const [open, setOpen] = useState(false);
  const told = items.filter((item) => item.head !== undefined);
  return html`<li data-reason=${reason}><details onToggle=${({ currentTarget }) => setOpen(currentTarget.open)}>
    <summary><span>${t(`withheld.${reason}`, { count: items.length })}</span><b>${number(sum(items))}</b></summary>
    ${open && html`<p class="small">${t(`why.${reason}`)}</p>
      <ul>${told.map((item) => html`<${Item} key=${item.message_id} chatId=${chatId} item=${item} />`)}</ul>
      ${told.length < items.length && html`<p class="small muted">${t("withheld.older", { count: items.length - told.length })}</p>`}`}
  </details></li>`;
}

function Item({ chatId, item }) {
  const { t, known, number, store, actions, ui } = useApp();
  const { message_id: id, role, tool, head } = item;
  const who = role !== "tool" ? t(`role.${role}`) : tool ? known(`tool.${tool}`, tool) : t("withheld.receipt");
  const card = role === "tool" && store.chat(chatId).peek().messages.find((message) => message.id === id)?.card;
  const show = () => {
    ui.closeDrawer();
    actions.showMessage(chatId, id);
  };
  return html`<li class="withheld-item" data-withheld-message=${id}>
    <button type="button" class="withheld-head" title=${t("withheld.show")} onClick=${show}><span class="muted">${who}</span> <span dir="auto">${card ? html`<${CardTitle} card=${card} />` : head || "—"}</span></button>
    <b>${number(item.tokens)}</b>
    ${item.reason === "hidden" && role !== "tool" && html`<${IconButton} name="eye" label=${t("message.unhide")} data-action="unhide" onClick=${() => actions.hideMessage(id, false)} />`}
  </li>`;
}
