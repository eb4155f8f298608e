// What must hold for the page's files: modules, layers of imports, colours, no inline script or style.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { filesIn, read, ROOT } from "./sources.mjs";

const page = read("index.html");
const modules = JSON.parse(read("modules.json"));
const { imports } = JSON.parse(page.match(/<script type="importmap">([\s\S]*?)<\/script>/)[1]);
const scripts = filesIn("js", ".js");
const styles = filesIn("css", ".css");

const importsOf = (path) => [...read(path).matchAll(/^import [^;]*?"([^"]+)";/gm)].map((match) => match[1]);

/** A script and all that it imports, at once or by way of others. */
function closure(path, found = new Set()) {
  if (found.has(path)) return [...found];
  found.add(path);
  for (const name of importsOf(path)) if (name.startsWith(".")) closure(normalize(join(dirname(path), name)), found);
  return [...found];
}

const firstLoad = closure("js/app.js");

// Modules that are imported when they are wanted, as `import(NAME)` of a path in a constant.
const LATER = scripts.flatMap((path) =>
  [...read(path).matchAll(/^const (\w+) = "(\.[^"]+\.js)";$/gm)].filter(([, name]) => read(path).includes(`import(${name})`)).map(([, , target]) => normalize(join(dirname(path), target))),
);

test("every module of the import map is served and installed", () => {
  for (const url of Object.values(imports)) assert.ok(url.replace("/modules/", "") in modules, url);
  for (const path of Object.values(modules)) assert.ok(existsSync(join(ROOT, "node_modules", path)), path);
});

test("every import is a file of ours or in the import map", () => {
  for (const path of scripts) {
    for (const name of importsOf(path)) {
      const known = name.startsWith(".") ? scripts.includes(normalize(join(dirname(path), name))) : name in imports;
      assert.ok(known, `${path} imports ${name}`);
    }
  }
});

test("what the first load needs is preloaded and nothing else, so that loading is no waterfall", () => {
  const preloaded = [...page.matchAll(/modulepreload" href="([^"]+)"/g)].map((match) => match[1]);
  const needed = firstLoad.map((path) => `/${path}`).filter((path) => path !== "/js/app.js");
  assert.deepEqual(preloaded.toSorted(), [...needed, ...Object.values(imports)].toSorted());
});

test("every other script is loaded by one that needs it later", () => {
  const later = LATER.flatMap((path) => closure(path)).filter((path) => !firstLoad.includes(path));
  assert.deepEqual([...new Set([...firstLoad, ...later, "js/early.js"])].toSorted(), scripts);
  for (const path of LATER) assert.ok(!firstLoad.includes(path), path);
});

test("every style sheet is linked", () => {
  const linked = [...page.matchAll(/stylesheet" href="\/([^"]+)"/g)].map((match) => match[1]);
  assert.deepEqual(linked.toSorted(), styles);
});

test("views know neither the socket nor the reducers", () => {
  for (const path of filesIn("js/views", ".js")) {
    for (const name of importsOf(path)) assert.doesNotMatch(name, /state\/|client\.js|connection\.js|protocol\.js|store\.js|actions\.js/, `${path} imports ${name}`);
  }
});

test("the reducers touch no clock, no page and no socket", () => {
  for (const path of filesIn("js/state", ".js")) assert.doesNotMatch(read(path), /\b(Date\.now|new Date|document|window|WebSocket|localStorage|setTimeout)\b/, path);
});

test("HTML is made in one place only", () => {
  for (const path of scripts.filter((path) => path !== "js/markdown.js")) {
    assert.doesNotMatch(read(path), /innerHTML|insertAdjacentHTML|DOMParser|document\.write/, path);
    assert.ok(!importsOf(path).includes("dompurify"), path);
  }
});

test("the page has one inline script, the import map, and no inline style or handler", () => {
  assert.equal(page.match(/<script(?![^>]*\bsrc=)/g).length, 1);
  assert.doesNotMatch(page, /\sstyle=|<style|\son[a-z]+=/);
});

test("colours are written in the tokens only, and nothing is forced", () => {
  for (const path of styles) {
    if (path !== "css/tokens.css") assert.doesNotMatch(read(path), /#[0-9a-f]{3,8}\b|\brgba?\(|\bhsla?\(|\boklch\(/i, path);
    assert.doesNotMatch(read(path), /!important/, path);
  }
});

test("every token that is used is defined", () => {
  const defined = new Set(styles.flatMap((path) => [...read(path).matchAll(/^\s*(--[\w-]+):/gm)].map((match) => match[1])));
  for (const path of styles) for (const [, name] of read(path).matchAll(/var\((--[\w-]+)/g)) assert.ok(defined.has(name), `${path} uses ${name}`);
});

test("the first load stays under 120 kB compressed", () => {
  const ours = [...firstLoad, "js/early.js", ...styles, "index.html", "icon.svg"].map((path) => gzipSync(read(path)).length);
  const theirs = Object.values(modules).map((path) => gzipSync(readFileSync(join(ROOT, "node_modules", path))).length);
  const total = [...ours, ...theirs].reduce((sum, size) => sum + size, 0);
  assert.ok(total < 120_000, `${total} bytes`);
});
