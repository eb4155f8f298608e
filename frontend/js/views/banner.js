// Over the composer: the question whether the result is there, and the chip that says when working material goes.

import { useComputed } from "@preact/signals";
import { useState } from "preact/hooks";
import { useApp } from "./context.js";
import { html } from "./html.js";

export function Banner({ chatId }) {
  const { store } = useApp();
  const pending = useComputed(() => store.chat(chatId).value.context?.pending_transaction ?? null).value;
  // The live region is there before its text, or screen readers stay silent.
  return html`<div role="status" class="banner-slot">
    ${pending && html`<${Question} key=${pending.transaction_id} chatId=${chatId} pending=${pending} />`}
  </div>`;
}

function Question({ chatId, pending }) {
  const { t, actions } = useApp();
  const [answered, setAnswered] = useState(false);
  const answer = async (value) => {
    setAnswered(true);
    if (!(await actions.answer(chatId, pending.transaction_id, value))) setAnswered(false);
  };
  return html`<div class="banner" data-banner=${pending.transaction_id}>
    <strong>${t("banner.question")}</strong>
    <span class="banner-answers">
      <button type="button" class="button primary" data-answer="yes" disabled=${answered} onClick=${() => answer("yes")}>${t("banner.yes")}</button>
      <button type="button" class="button" data-answer="no" disabled=${answered} onClick=${() => answer("no")}>${t("banner.no")}</button>
    </span>
  </div>`;
}

export function TtlChip({ chatId }) {
  const { t, has, store, actions } = useApp();
  const context = useComputed(() => store.chat(chatId).value.context).value;
  if (!context?.active_tool) return null;
  const { active_tool: family, unrelated_count: used, ttl_messages: limit } = context;
  const left = Math.max(0, limit - used);
  return html`<div class="ttl" data-ttl-chip=${family} data-left=${left} role="group" aria-label=${t("ttl.label")}>
    <span class="ttl-name">${has(`family.${family}`) ? t(`family.${family}`) : family}</span>
    <span class="steps" aria-hidden="true">${Array.from({ length: limit }, (_, i) => html`<i key=${i} class=${i < left ? "" : "off"}></i>`)}</span>
    <span class="ttl-text">${t("ttl.left", { count: left })}</span>
    <span class="ttl-actions">
      <button type="button" class="link" data-action="keep" onClick=${() => actions.keep(chatId)}>${t("ttl.keep")}</button>
      <button type="button" class="link" data-action="clear" onClick=${() => actions.clear(chatId)}>${t("ttl.clear")}</button>
    </span>
  </div>`;
}
