// Theme, language and the list of keys.

import { LANGUAGES, THEMES } from "../preferences.js";
import { MenuButton } from "./controls.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { IconButton } from "./icons.js";

export function PreferenceButtons() {
  const { t, preferences, ui, language } = useApp();
  const choices = (signal, values, label) =>
    values.map((value) => ({ label: label(value), checked: signal.value === value, act: () => (signal.value = value) }));
  const themes = choices(preferences.theme, THEMES, (value) => t(`theme.${value}`));
  const languages = choices(preferences.language, LANGUAGES, (value) => t(`language.${value}`));
  return html`<${MenuButton} icon="theme" label=${t("theme.label")} items=${themes} />
    <${MenuButton} text=${language.value.toUpperCase()} label=${t("language.label")} items=${languages} />
    <${IconButton} name="help" label=${t("help.title")} onClick=${() => ui.openDialog("help")} />`;
}
