// Cuts code into runs of one colour. Imported when the first finished block of code stands in the page; makes no HTML.

import hljs from "@highlightjs/cdn-assets/es/core.min.js";

const GRAMMARS = "@highlightjs/cdn-assets/es/languages/";

// What models write after the fence, by the grammar that reads it. A grammar is loaded when its first block comes.
const LANGUAGES = {
  bash: ["bash", "sh", "shell", "zsh", "console"],
  c: ["c", "h"],
  cpp: ["cpp", "c++", "cc", "hpp"],
  csharp: ["csharp", "cs", "c#"],
  css: ["css"],
  diff: ["diff", "patch"],
  dockerfile: ["dockerfile", "docker"],
  go: ["go", "golang"],
  ini: ["ini", "toml", "conf"],
  java: ["java"],
  javascript: ["javascript", "js", "jsx", "mjs"],
  json: ["json", "jsonc", "json5"],
  kotlin: ["kotlin", "kt"],
  php: ["php"],
  python: ["python", "py", "python3"],
  ruby: ["ruby", "rb"],
  rust: ["rust", "rs"],
  sql: ["sql", "sqlite", "postgresql"],
  typescript: ["typescript", "ts", "tsx"],
  xml: ["xml", "html", "svg", "vue"],
  yaml: ["yaml", "yml"],
};
const GRAMMAR_OF = new Map(Object.entries(LANGUAGES).flatMap(([grammar, names]) => names.map((name) => [name, grammar])));

// The grammars' many scopes by the colours that the page has; a part that is named here only wins over its whole.
const COLOURS = {
  addition: "added",
  attr: "attribute",
  attribute: "attribute",
  built_in: "name",
  class: "name",
  comment: "comment",
  deletion: "removed",
  doctag: "comment",
  keyword: "keyword",
  literal: "number",
  meta: "comment",
  name: "keyword",
  number: "number",
  property: "attribute",
  quote: "comment",
  regexp: "string",
  section: "name",
  "selector-class": "attribute",
  "selector-id": "attribute",
  "selector-tag": "keyword",
  string: "string",
  subst: null,
  symbol: "number",
  title: "name",
  type: "name",
  variable: "attribute",
};

/** Collects what the grammar finds as runs, in the place of the library's own writer of HTML. */
class Runs {
  runs = [];
  #colours = [null];

  addText(text) {
    if (!text) return;
    const colour = this.#colours.at(-1);
    const last = this.runs.at(-1);
    if (last?.colour === colour) last.text += text;
    else this.runs.push({ text, colour });
  }

  startScope(scope) {
    const [kind] = scope.split(".");
    this.#colours.push(kind in COLOURS ? COLOURS[kind] : this.#colours.at(-1));
  }

  endScope() {
    this.#colours.pop();
  }

  openNode(scope) {
    this.startScope(scope);
  }

  closeNode() {
    this.endScope();
  }

  __addSublanguage({ runs }) {
    for (const { text, colour } of runs) {
      this.#colours.push(colour ?? this.#colours.at(-1));
      this.addText(text);
      this.endScope();
    }
  }

  finalize() {}
  toHTML() {
    return "";
  }
}

hljs.configure({ __emitter: Runs });

let turn = Promise.resolve();

/** The code as runs `{text, colour}`, where colour may be null; null when the language is not known. */
export function highlight(code, language) {
  const runs = turn.then(() => runsOf(code, language));
  // One block a task, so that a page full of code answers in between.
  turn = runs.then(nextTask, nextTask);
  return runs;
}

const nextTask = () => new Promise((done) => setTimeout(done));

async function runsOf(code, language) {
  const grammar = GRAMMAR_OF.get(language.toLowerCase());
  if (!grammar) return null;
  if (!hljs.getLanguage(grammar)) hljs.registerLanguage(grammar, (await import(`${GRAMMARS}${grammar}.min.js`)).default);
  return hljs.highlight(code, { language: grammar })._emitter.runs;
}
