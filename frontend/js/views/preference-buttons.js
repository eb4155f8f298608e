// Theme, language and the list of keys.

import { LANGUAGES, THEMES } from "../preferences.js";
import { MenuButton } from "./controls.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { IconButton } from "./icons.js";

export function PreferenceButtons() {
  const { t, preferences, ui, language } = useApp();
  const choices = (signal, values, prefix) =>
    values.map((value) => ({ label: t(`${prefix}.${value}`), checked: signal.value === value, act: () => (signal.value = value) }));
  return html`<${MenuButton} icon="theme" label=${t("theme.label")} items=${choices(preferences.theme, THEMES, "theme")} />
    <${MenuButton} text=${language.value.toUpperCase()} label=${t("language.label")} items=${choices(preferences.language, LANGUAGES, "language")} />
    <${IconButton} name="help" label=${t("help.title")} onClick=${() => ui.openDialog("help")} />`;
}
