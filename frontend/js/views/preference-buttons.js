// Theme, language, notifications, the list of keys and the way out.

import { useComputed } from "@preact/signals";
import { THEMES } from "../preferences.js";
import { MenuButton } from "./controls.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { IconButton } from "./icons.js";

export function PreferenceButtons() {
  const { t, store, preferences, ui, language, languages, canNotify } = useApp();
  const hasLogin = useComputed(() => store.workspace.value.settings.login).value;
  const user = useComputed(() => store.workspace.value.settings.user).value;
  const choices = (signal, values, label) =>
    values.map((value) => ({ label: label(value), checked: signal.value === value, act: () => (signal.value = value) }));
  const themes = choices(preferences.theme, THEMES, (value) => t(`theme.${value}`));
  const tongues = choices(preferences.language, ["auto", ...languages], (value) => (value === "auto" ? t("language.auto") : ownName(value)));
  return html`${user && html`<span class="muted small who" title=${t("user.label", { name: user })} data-who>${user}</span>`}
    <${MenuButton} icon="theme" label=${t("theme.label")} items=${themes} />
    <${MenuButton} text=${language.value.toUpperCase()} label=${t("language.label")} items=${tongues} />
    ${canNotify && html`<${NotifyButton} />`}
    <${IconButton} name="help" label=${t("help.title")} onClick=${() => ui.openDialog("help")} />
    ${hasLogin && html`<form method="post" action="/logout"><${IconButton} name="logOut" type="submit" label=${t("logOut.label")} data-action="log-out" /></form>`}`;
}

function NotifyButton() {
  const { t, preferences } = useApp();
  const { notify } = preferences;
  return html`<${IconButton} name=${notify.value ? "bell" : "bellOff"} label=${t("notify.label")} aria-pressed=${notify.value} data-action="notify"
    onClick=${() => (notify.value = !notify.value)} />`;
}

/** Asked once, after the first reply that came while the person looked elsewhere. */
export function NotifyOffer() {
  const { t, preferences } = useApp();
  const { notify, notifyOffer } = preferences;
  const answer = (wanted) => {
    notifyOffer.value = "done";
    notify.value = wanted;
  };
  return html`<div role="status">${notifyOffer.value === "now" && html`<div class="notice-box quiet" data-notify-offer>
    <p>${t("notify.question")}</p>
    <button type="button" class="button small" data-answer="yes" onClick=${() => answer(true)}>${t("notify.yes")}</button>
    <button type="button" class="button small quiet" data-answer="no" onClick=${() => answer(false)}>${t("notify.no")}</button>
  </div>`}</div>`;
}

/** What a language calls itself. */
function ownName(language) {
  const [first, ...rest] = new Intl.DisplayNames(language, { type: "language" }).of(language);
  return first.toLocaleUpperCase(language) + rest.join("");
}
