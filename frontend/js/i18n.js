// Words, numbers and times in the person's language. A language is one file of i18n/, loaded when it is wanted.

import { computed, effect, signal } from "@preact/signals";

/**
 * `choice` is a signal holding `auto` or a language, `automatic` what auto means, `preferred` the browser's tags: they say
 * in which country's way numbers and times are written. Resolves once the language is there.
 */
export async function createI18n({ choice, automatic, preferred, onTrouble }) {
  const wanted = computed(() => (choice.value === "auto" ? automatic : choice.value));
  const load = (language) => toolsFor(language, preferred.find((tag) => `${tag}-`.startsWith(`${language}-`)) ?? language);
  const tools = signal(await load(wanted.value));
  effect(() => {
    const language = wanted.value;
    if (language === tools.peek().language) return;
    load(language).then((found) => {
      if (language === wanted.value) tools.value = found;
    }, onTrouble);
  });

  return {
    language: computed(() => tools.value.language),
    has: (key) => key in tools.value.catalogue,
    /** The text of a key that the catalogue may not have, such as the name of a new tool. */
    known: (key, fallback) => (key in tools.value.catalogue ? translate(tools.value, key) : fallback),
    t: (key, params) => translate(tools.value, key, params),
    number: (value) => tools.value.grouped.format(value),
    seconds: (ms) => tools.value.short.format(ms / 1000),
    decimal: (value) => tools.value.decimal.format(value),
    /** A size in the unit that suits it, with its name. */
    bytes: (count) => tools.value.sizes[sizeUnit(count)].format(count / SIZE_UNITS[sizeUnit(count)]),
    megabytes: (bytes) => tools.value.precise.format(bytes / 1_048_576),
    dateTime: (iso) => tools.value.dateTime.format(new Date(iso)),
    /** A time as short as it can be: of today the hour, of this year the day, else the date. */
    when: (iso, now = new Date()) => tools.value[precision(new Date(iso), now)].format(new Date(iso)),
  };
}

const SIZE_UNITS = { gigabyte: 1e9, megabyte: 1e6, kilobyte: 1e3, byte: 1 };

const sizeUnit = (count) => Object.keys(SIZE_UNITS).find((unit) => count >= SIZE_UNITS[unit]) ?? "byte";

async function toolsFor(language, locale) {
  const { default: catalogue } = await import(`./i18n/${language}.js`);
  return {
    language,
    catalogue,
    plural: new Intl.PluralRules(language),
    grouped: new Intl.NumberFormat(locale, { useGrouping: "always" }),
    decimal: new Intl.NumberFormat(locale, { maximumFractionDigits: 1 }),
    short: new Intl.NumberFormat(locale, { maximumSignificantDigits: 2 }),
    precise: new Intl.NumberFormat(locale, { maximumFractionDigits: 2 }),
    sizes: Object.fromEntries(Object.keys(SIZE_UNITS).map((unit) => [unit, new Intl.NumberFormat(locale, { style: "unit", unit, maximumFractionDigits: 1 })])),
    dateTime: new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" }),
    time: new Intl.DateTimeFormat(locale, { timeStyle: "short" }),
    day: new Intl.DateTimeFormat(locale, { day: "numeric", month: "short" }),
    date: new Intl.DateTimeFormat(locale, { dateStyle: "medium" }),
  };
}

function precision(time, now) {
  if (time.toDateString() === now.toDateString()) return "time";
  return time.getFullYear() === now.getFullYear() ? "day" : "date";
}

/** An entry is a text or its plural forms, chosen by `params.count`; `{name}` is replaced by that parameter. */
function translate({ catalogue, plural, grouped }, key, params = {}) {
  const entry = catalogue[key] ?? key;
  const text = typeof entry === "string" ? entry : entry[plural.select(params.count)] ?? entry.other;
  return text.replace(/\{(\w+)\}/g, (whole, name) => {
    const value = params[name];
    if (value === undefined) return whole;
    return typeof value === "number" ? grouped.format(value) : String(value).replace(REORDERING, "");
  });
}

// Left in a name, these would turn the words of ours that stand behind it.
const REORDERING = /[\u202a-\u202e\u2066-\u2069]/g;
