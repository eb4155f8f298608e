// The catalogues: the same keys in both languages, every key known and none unused.

import assert from "node:assert/strict";
import { test } from "node:test";
import { signal } from "@preact/signals-core";
import { createI18n } from "../../frontend/js/i18n.js";
import en from "../../frontend/js/i18n/en.js";
import ru from "../../frontend/js/i18n/ru.js";
import { filesIn, read } from "./sources.mjs";

const sources = filesIn("js", ".js").filter((path) => !path.includes("i18n/")).map(read).join("\n");

// Keys that the server names, or that are put together from a name of the wire.
const COMPOSED = [...sources.matchAll(/`([a-z]+\.)\$\{/g)].map((match) => match[1]).concat("card.");

test("both languages have the same keys", () => {
  assert.deepEqual(Object.keys(ru).sort(), Object.keys(en).sort());
});

test("both languages use the same parameters", () => {
  const names = (entry) => [...new Set(Object.values(typeof entry === "string" ? [entry] : entry).flatMap((text) => text.match(/\{\w+\}/g) ?? []))].sort();
  for (const key of Object.keys(en)) assert.deepEqual(names(ru[key]), names(en[key]), key);
});

test("every plural form that the language needs is there", () => {
  for (const [language, catalogue] of Object.entries({ en, ru })) {
    const needed = new Intl.PluralRules(language).resolvedOptions().pluralCategories.toSorted();
    for (const [key, entry] of Object.entries(catalogue)) {
      if (typeof entry !== "string") assert.deepEqual(Object.keys(entry).toSorted(), needed, `${language} ${key}`);
    }
  }
});

test("every key in the code exists", () => {
  const used = [...sources.matchAll(/\bt\(\s*"([^"]+)"/g)].map((match) => match[1]);
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

test("plural forms and numbers follow the language, which can change", () => {
  const choice = signal("ru");
  const { t, number } = createI18n(choice, ["de"]);
  const left = (count) => t("ttl.left", { count });
  assert.deepEqual([1, 3, 5].map(left), ["исчезнет через 1 постороннее сообщение", "исчезнет через 3 посторонних сообщения", "исчезнет через 5 посторонних сообщений"]);
  assert.match(number(1240), /^1\s240$/);
  choice.value = "en";
  assert.equal(left(1), "goes after 1 more unrelated message");
  choice.value = "auto";
  assert.equal(left(2), "goes after 2 more unrelated messages");
});

test("the browser's first known language is taken", () => {
  assert.equal(createI18n(signal("auto"), ["de-DE", "ru-RU", "en"]).language.value, "ru");
});

test("text in a parameter is not read as a pattern", () => {
  const { t } = createI18n(signal("en"), []);
  assert.match(t("delete.what", { title: "{title} $& $1" }), /“\{title\} \$& \$1”/);
});
