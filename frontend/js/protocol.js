// Reads the wire's frames and names its close codes. Knows no socket and no state.

export const CLOSE = { GOING_AWAY: 1001, POLICY: 1008, TOO_BIG: 1009, SERVICE_RESTART: 1012, SLOW: 4001 };

/** A frame as `{kind: "reply" | "welcome" | "event", …}`, or null for what this page does not know. */
export function decode(text) {
  let frame;
  try {
    frame = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof frame?.type !== "string") return null;
  if (frame.type === "ok" || frame.type === "error") return { kind: "reply", frame };
  if (frame.type === "welcome") return { kind: "welcome", frame };
  return { kind: "event", frame };
}

/** What a command ended with when it was not `ok`; `code` is one of the wire's, or `disconnected`. */
export class CommandError extends Error {
  constructor({ code, message, fields }) {
    super(message);
    this.code = code;
    this.fields = fields ?? {};
  }
}
