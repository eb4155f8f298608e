// Takes the chats of files in, one after the other. Given the way to send one; knows no DOM.

import { BadArchive, conversationsIn } from "./archives.js";
import { sizeProblem } from "./limits.js";

/**
 * Returns `{taken, known, failed, stopped}`: how many are new, how many were here already, and of the others the
 * title with `code`, and the `message` that the server gave. `onProgress` is told the same after each, with the share that was read.
 */
export async function takeIn(files, { send, limits, onProgress, isStopped }) {
  const outcome = { taken: 0, known: 0, failed: [], stopped: false };
  const total = files.reduce((bytes, file) => bytes + file.size, 0);
  let read = 0;
  const count = (bytes) => onProgress({ ...outcome, share: (read += bytes) / total });
  for (const file of files) {
    try {
      for await (const conversation of conversationsIn(piecesOf(file, count))) {
        if (isStopped()) return { ...outcome, stopped: true };
        await takeOne(conversation, outcome, { send, limits });
        count(0);
        if (outcome.failed.at(-1)?.code === "disconnected") return outcome;
      }
    } catch (error) {
      if (!(error instanceof BadArchive)) throw error;
      outcome.failed.push({ title: file.name, code: error.code });
    }
  }
  return outcome;
}

async function takeOne({ title, content }, outcome, { send, limits }) {
  if (sizeProblem(content, { max_frame_bytes: limits.max_frame_bytes })) {
    outcome.failed.push({ title, code: "too_large" });
    return;
  }
  try {
    const { chats, skipped } = await send(content);
    outcome.taken += chats.length;
    outcome.known += skipped;
  } catch (error) {
    if (!error.code) throw error;
    outcome.failed.push({ title, code: error.code, message: error.message });
  }
}

async function* piecesOf(file, count) {
  const reader = file.stream().getReader();
  const decoder = new TextDecoder();
  for (let part; !(part = await reader.read()).done; ) {
    yield decoder.decode(part.value, { stream: true });
    count(part.value.length);
  }
}
