// A change that the model asked for and that waits for the person: what it is, and Allow or Deny.

import { useState } from "preact/hooks";
import { Fold, Revealed } from "./controls.js";
import { useApp } from "./context.js";
import { html } from "./html.js";

export function Approval({ chatId, approval }) {
  const { known } = useApp();
  const { state, arguments: values } = approval;
  // What came of an allowed call has a card of its own.
  if (state === "allowed") return null;
  return html`<dl class="call">${Object.entries(values).map(([name, value]) => html`<div key=${name}>
      <dt>${known(`argument.${name}`, name)}</dt><dd><${Fold}><div class="typed" dir="auto"><${Revealed} text=${typeof value === "string" ? value : JSON.stringify(value)} /></div><//></dd>
    </div>`)}</dl>
    ${state === "waiting" && html`<${Answers} chatId=${chatId} callId=${approval.call_id} />`}`;
}

function Answers({ chatId, callId }) {
  const { t, actions } = useApp();
  const [sent, setSent] = useState(false);
  const answer = async (value) => {
    setSent(true);
    if (!(await actions.answerCall(chatId, callId, value))) setSent(false);
  };
  return html`<div class="actions" data-approval="waiting">
    <button type="button" class="button primary" data-answer="allow" disabled=${sent} onClick=${() => answer("allow")}>${t("approval.allow")}</button>
    <button type="button" class="button" data-answer="deny" disabled=${sent} onClick=${() => answer("deny")}>${t("approval.deny")}</button>
  </div>`;
}
