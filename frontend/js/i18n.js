// Words, numbers and times in the person's language. Catalogues are plain data; plural forms come from Intl.

import { computed } from "@preact/signals";
import en from "./i18n/en.js";
import ru from "./i18n/ru.js";

const CATALOGUES = { en, ru };

/** `choice` is a signal holding `auto` or a language; `preferred` are the browser's languages. */
export function createI18n(choice, preferred) {
  const language = computed(() => (choice.value === "auto" ? firstKnown(preferred) : choice.value));
  const tools = computed(() => toolsFor(language.value));

  return {
    language,
    has: (key) => key in tools.value.catalogue,
    /** The text of a key that the catalogue may not have, such as the name of a new tool. */
    known: (key, fallback) => (key in tools.value.catalogue ? translate(tools.value, key) : fallback),
    t: (key, params) => translate(tools.value, key, params),
    number: (value) => tools.value.grouped.format(value),
    seconds: (ms) => tools.value.short.format(ms / 1000),
    decimal: (value) => tools.value.decimal.format(value),
    megabytes: (bytes) => tools.value.precise.format(bytes / 1_048_576),
    dateTime: (iso) => tools.value.dateTime.format(new Date(iso)),
  };
}

const firstKnown = (preferred) => preferred.map((tag) => tag.slice(0, 2).toLowerCase()).find((tag) => tag in CATALOGUES) ?? "en";

function toolsFor(language) {
  return {
    catalogue: CATALOGUES[language],
    plural: new Intl.PluralRules(language),
    grouped: new Intl.NumberFormat(language, { useGrouping: "always" }),
    decimal: new Intl.NumberFormat(language, { maximumFractionDigits: 1 }),
    short: new Intl.NumberFormat(language, { maximumSignificantDigits: 2 }),
    precise: new Intl.NumberFormat(language, { maximumFractionDigits: 2 }),
    dateTime: new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" }),
  };
}

/** An entry is a text or its plural forms, chosen by `params.count`; `{name}` is replaced by that parameter. */
function translate({ catalogue, plural, grouped }, key, params = {}) {
  const entry = catalogue[key] ?? key;
  const text = typeof entry === "string" ? entry : entry[plural.select(params.count)] ?? entry.other;
  return text.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = params[name];
    if (value === undefined) return whole;
    return typeof value === "number" ? grouped.format(value) : String(value);
  });
}
