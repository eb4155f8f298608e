// The catalogues: the same keys in every language, every key known and none unused.

import assert from "node:assert/strict";
import { basename } from "node:path";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { signal } from "@preact/signals-core";
import { createI18n } from "../../frontend/js/i18n.js";
import en from "../../frontend/js/i18n/en.js";
import ru from "../../frontend/js/i18n/ru.js";
import { filesIn, read } from "./sources.mjs";

const scripts = [...filesIn("js", ".js"), ...filesIn("offline", ".js")].filter((path) => !path.includes("i18n/"));
const sources = [...scripts, "offline/page.html"].map(read).join("\n");

// Keys that the server names, or that are put together from a name of the wire.
const COMPOSED = [...sources.matchAll(/`((?:\w+\.)+)\$\{/g)].map((match) => match[1]).concat("card.");

const languages = filesIn("js/i18n", ".js").map((path) => basename(path, ".js"));
const catalogues = await Promise.all(languages.map(async (language) => [language, (await import(`../../frontend/js/i18n/${language}.js`)).default]));

const speak = (choice, preferred = []) => createI18n({ choice, automatic: "en", preferred, onTrouble: assert.fail });

test("every catalogue is named by a tag that Intl knows", () => {
  assert.ok(languages.includes("en") && languages.includes("ru"));
  for (const language of languages) assert.deepEqual([Intl.getCanonicalLocales(language), Intl.PluralRules.supportedLocalesOf(language)], [[language], [language]]);
});

test("all languages have the same keys", () => {
  for (const [language, catalogue] of catalogues) assert.deepEqual(Object.keys(catalogue).sort(), Object.keys(en).sort(), language);
});

test("all languages use the same parameters", () => {
  const names = (entry) => [...new Set(Object.values(typeof entry === "string" ? [entry] : entry).flatMap((text) => text.match(/\{\w+\}/g) ?? []))].sort();
  for (const [language, catalogue] of catalogues) for (const key of Object.keys(en)) assert.deepEqual(names(catalogue[key]), names(en[key]), `${language} ${key}`);
});

test("every plural form that the language needs is there", () => {
  for (const [language, catalogue] of catalogues) {
    const needed = new Intl.PluralRules(language).resolvedOptions().pluralCategories.toSorted();
    for (const [key, entry] of Object.entries(catalogue)) {
      if (typeof entry !== "string") assert.deepEqual(Object.keys(entry).toSorted(), needed, `${language} ${key}`);
    }
  }
});

test("a number before what it counts is worded for every number", () => {
  const counted = /\{\w+\} (?:token|message|chat|model|row|токен|сообщен|чат|модел|строк|символ)/;
  for (const [language, catalogue] of catalogues) {
    for (const [key, entry] of Object.entries(catalogue)) if (typeof entry === "string") assert.doesNotMatch(entry, counted, `${language} ${key}`);
  }
});

test("every key in the code exists", () => {
  const used = [...sources.matchAll(/(?:\bt\(\s*|\bwords\[|\bdata-text=)"([^"]+)"/g)].map((match) => match[1]);
  assert.ok(used.length > 50);
  for (const key of used) assert.ok(key in en, key);
});

test("no key is unused", () => {
  for (const key of Object.keys(en)) {
    const composed = COMPOSED.some((prefix) => key.startsWith(prefix));
    assert.ok(composed || sources.includes(`"${key}"`), key);
  }
});

test("the question and its answers are worded as agreed", () => {
  assert.deepEqual([ru["banner.question"], ru["banner.yes"], ru["banner.no"]], ["Желаемый результат получен?", "👍 Да, закрыть", "👎 Нет, продолжить"]);
  assert.deepEqual([en["banner.question"], en["banner.yes"], en["banner.no"]], ["Did you get the result you wanted?", "👍 Yes, close", "👎 No, continue"]);
});

test("plural forms and numbers follow the language, which can change", async () => {
  const choice = signal("ru");
  const { t, number, language } = await speak(choice);
  const left = (count) => t("ttl.left", { count });
  assert.deepEqual([1, 3, 5].map(left), ["исчезнет через 1 постороннее сообщение", "исчезнет через 3 посторонних сообщения", "исчезнет через 5 посторонних сообщений"]);
  assert.match(number(1240), /^1\s240$/);
  const turnsTo = (tag) => new Promise((resolve) => language.subscribe((now) => now === tag && resolve()));
  choice.value = "en";
  assert.equal(language.value, "ru", "the words stay until the other ones have come");
  await turnsTo("en");
  assert.equal(left(1), "goes after 1 more unrelated message");
  choice.value = "ru";
  choice.value = "auto";
  await new Promise(setImmediate);
  assert.equal(left(2), "goes after 2 more unrelated messages", "a language that is no longer wanted comes too late");
});

test("a language that can't be had leaves the one that is there", async () => {
  const choice = signal("en");
  const trouble = await new Promise((resolve) => {
    createI18n({ choice, automatic: "en", preferred: [], onTrouble: resolve }).then(({ t }) => {
      choice.value = "xx";
      assert.equal(t("editor.save"), "Save");
    });
  });
  assert.match(trouble.message, /xx\.js/);
});

test("a time is as short as it can be", async () => {
  const { when } = await speak(signal("en"));
  const russian = await speak(signal("ru"));
  const now = new Date(2026, 11, 2, 18);
  assert.match(when(new Date(2026, 11, 2, 9, 5).toISOString(), now), /^9:05/);
  assert.equal(russian.when(new Date(2026, 11, 2, 9, 5).toISOString(), now), "09:05");
  assert.equal(russian.when(new Date(2026, 11, 1, 23, 59).toISOString(), now), "1 дек.");
  assert.equal(when(new Date(2026, 0, 31).toISOString(), now), "Jan 31");
  const british = await speak(signal("en"), ["de-DE", "en-GB"]);
  assert.deepEqual([british.when(new Date(2026, 0, 31).toISOString(), now), british.when(now.toISOString(), now)], ["31 Jan", "18:00"]);
  assert.match(russian.when(new Date(2025, 11, 31).toISOString(), now), /^31 дек\. 2025/);
});

/** What js/early.js makes of a browser: `[html lang, the language that "as the browser" means, the script it preloads]`. */
function early(speaks, stored) {
  const page = { dataset: { languages: "en pt-BR ru" } };
  const preloaded = [];
  runInNewContext(read("js/early.js"), {
    document: { documentElement: page, head: { append: (link) => preloaded.push(link.href) }, createElement: () => ({}) },
    navigator: { languages: speaks },
    localStorage: { getItem: (key) => (key === "cleanroom.language" ? stored : null) },
  });
  return [page.lang, page.dataset.automatic, ...preloaded];
}

test("the browser's first known language is taken, unless the person chose one", () => {
  assert.deepEqual(early(["de-DE", "ru-RU", "en"], null), ["ru", "ru", "/js/i18n/ru.js"]);
  assert.deepEqual(early(["de"], null), ["en", "en", "/js/i18n/en.js"]);
  assert.deepEqual(early(["pt-BR"], '"auto"'), ["pt-BR", "pt-BR", "/js/i18n/pt-BR.js"]);
  assert.deepEqual(early(["ru"], '"en"'), ["en", "ru", "/js/i18n/en.js"]);
  for (const broken of ['"xx"', "{", "null", '["en"]']) assert.equal(early(["ru"], broken)[0], "ru", broken);
});

test("a name can't turn the words that stand behind it", async () => {
  const { t } = await speak(signal("en"));
  assert.equal(t("delete.what", { title: "\u202eabc\u2066" }), t("delete.what", { title: "abc" }));
});

test("text in a parameter is not read as a pattern", async () => {
  const { t } = await speak(signal("en"));
  assert.match(t("delete.what", { title: "{title} $& $1" }), /“\{title\} \$& \$1”/);
});
