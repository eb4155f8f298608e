// Whether a text fits into a message and its frame. Pure functions.

import { byteLength } from "./text.js";

// The command around the text: its type, ids and punctuation.
const FRAME_OVERHEAD_BYTES = 512;

/** Why a text can't be sent, as `{bytes, limit}`, or null. The frame that carries it has a limit of its own. */
export function sizeProblem(text, { max_message_bytes = Infinity, max_frame_bytes = Infinity }) {
  const bytes = byteLength(text);
  if (bytes > max_message_bytes) return { bytes, limit: max_message_bytes };
  const frameBytes = byteLength(JSON.stringify(text)) + FRAME_OVERHEAD_BYTES;
  return frameBytes > max_frame_bytes ? { bytes: frameBytes, limit: max_frame_bytes } : null;
}
