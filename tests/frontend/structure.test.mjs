// What must hold for the page's files: modules, layers of imports, colours, no inline script or style.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join, normalize } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { FRONTEND, filesIn, read, ROOT } from "./sources.mjs";

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

// One of them is part of the first load: js/early.js knows which, and preloads it.
const catalogues = filesIn("js/i18n", ".js");

// Modules that are imported when they are wanted, as `import(NAME)` of a path in a constant.
const LATER = scripts.flatMap((path) =>
  [...read(path).matchAll(/^const (\w+) = "(\.[^"]+\.js)";$/gm)].filter(([, name]) => read(path).includes(`import(${name})`)).map(([, , target]) => normalize(join(dirname(path), target))),
);

// A name of the import map that ends with a slash stands for a folder: its modules come later, one by one.
const folders = Object.keys(imports).filter((name) => name.endsWith("/"));

// What only a later script imports comes with it.
const reached = firstLoad.flatMap(importsOf);
const isLater = (name) => folders.includes(name) || (!reached.includes(name) && scripts.some((path) => importsOf(path).includes(name)));
const firstModules = Object.entries(imports).filter(([name]) => !isLater(name)).map(([, url]) => url);

test("every module of the import map is served and installed", () => {
  for (const [name, url] of Object.entries(imports)) assert.ok(folders.includes(name) || url.replace("/modules/", "") in modules, url);
  for (const name of folders) assert.ok(Object.keys(modules).some((path) => `/modules/${path}`.startsWith(imports[name])), name);
  for (const path of Object.values(modules)) assert.ok(existsSync(join(ROOT, "node_modules", path)), path);
});

const isServed = (name) => folders.some((folder) => name.startsWith(folder) && name.replace(folder, imports[folder]).replace("/modules/", "") in modules);

test("every import is a file of ours or in the import map", () => {
  for (const path of scripts) {
    for (const name of importsOf(path)) {
      const known = name.startsWith(".") ? scripts.includes(normalize(join(dirname(path), name))) : name in imports || isServed(name);
      assert.ok(known, `${path} imports ${name}`);
    }
  }
});

test("what the first load needs is preloaded and nothing else, so that loading is no waterfall", () => {
  const preloaded = [...page.matchAll(/modulepreload" href="([^"]+)"/g)].map((match) => match[1]);
  const needed = firstLoad.map((path) => `/${path}`).filter((path) => path !== "/js/app.js");
  assert.deepEqual(preloaded.toSorted(), [...needed, ...firstModules].toSorted());
});

test("every other script is loaded by one that needs it later", () => {
  const later = LATER.flatMap((path) => closure(path)).filter((path) => !firstLoad.includes(path));
  assert.deepEqual([...new Set([...firstLoad, ...later, ...catalogues, "js/early.js"])].toSorted(), scripts);
  for (const path of LATER) assert.ok(!firstLoad.includes(path), path);
});

test("every style sheet is linked", () => {
  const linked = [...page.matchAll(/stylesheet" href="\/([^"]+)"/g)].map((match) => match[1]);
  assert.deepEqual(linked.toSorted(), styles);
});

test("the page for when the server is gone needs only what its worker keeps", () => {
  const kept = JSON.parse(read("sw.js").match(/FILES = \[PAGE, ([^\]]+)\]/)[1].replace(/^/, "[").replace(/$/, "]"));
  const needed = [...read("offline/page.html").matchAll(/(?:src|href)="([^"]+)"/g)].map((match) => match[1]);
  assert.deepEqual([...new Set(needed)].toSorted(), kept.toSorted());
  assert.deepEqual(importsOf("offline/page.js"), []);
  for (const path of kept) assert.ok(existsSync(join(FRONTEND, path)), path);
});

test("what an installed app needs is there", () => {
  const { icons, start_url } = JSON.parse(read("manifest.webmanifest"));
  for (const { src } of icons) assert.ok(existsSync(join(FRONTEND, src)), src);
  assert.equal(start_url, "/");
  assert.match(page, /<link rel="manifest" href="\/manifest.webmanifest">/);
});

// But for names: the product, a model.
test("no view has words of its own: all come from the catalogues", () => {
  for (const path of filesIn("js/views", ".js")) {
    const templates = read(path).replace(/^\s*\/\/.*$/gm, "");
    const texts = [...templates.matchAll(/(?<!=)>([^<>$`{}"=;|&?]*\p{L}{2}[^<>$`{}"=;|&?]*)<\//gu)].map((match) => match[1]);
    const attributes = [...templates.matchAll(/\s(?:title|aria-label|placeholder|alt|label)="([^"]*\p{L}[^"]*)"/gu)].map((match) => match[1]);
    assert.deepEqual([...texts, ...attributes].filter((text) => !/^(Cleanroom|[\w.]+:\w+)$/.test(text)), [], path);
  }
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
  const theirs = firstModules.map((url) => gzipSync(readFileSync(join(ROOT, "node_modules", modules[url.replace("/modules/", "")]))).length);
  const words = Math.max(...catalogues.map((path) => gzipSync(read(path)).length));
  const total = [...ours, ...theirs, words].reduce((sum, size) => sum + size, 0);
  assert.ok(total < 120_000, `${total} bytes`);
});

test("the window around the page has the colour of its bar", () => {
  const [, light, dark] = read("css/tokens.css").match(/--sunken: light-dark\((#\w+), (#\w+)\)/);
  assert.deepEqual([...page.matchAll(/"theme-color" content="(#\w+)"/g)].map((match) => match[1]), [light, dark]);
  assert.equal(JSON.parse(read("manifest.webmanifest")).theme_color, light);
});
