// The frontend's own files, for tests that look at the source.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const FRONTEND = fileURLToPath(new URL("../../frontend/", import.meta.url));
export const ROOT = fileURLToPath(new URL("../../", import.meta.url));

export const read = (path) => readFileSync(join(FRONTEND, path), "utf8");

/** Paths below `folder` that end with `ending`, relative to frontend/. */
export const filesIn = (folder, ending) =>
  readdirSync(join(FRONTEND, folder), { recursive: true }).filter((path) => path.endsWith(ending)).map((path) => join(folder, path)).sort();
