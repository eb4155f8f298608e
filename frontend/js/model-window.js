// The sizes that a model's window can be given. Pure functions.

const ROUND_SIZES = [2, 4, 8, 16, 32, 64, 128, 256].map((thousands) => thousands * 1024);

/** Round sizes up to the model's longest window, with that one and the one in use. */
export function windowsOf({ num_ctx: current, context_length: longest }) {
  const limit = longest ?? current;
  return [...new Set([...ROUND_SIZES.filter((size) => size < limit), limit, current])].sort((a, b) => a - b);
}

/** A window in thousands of tokens as people write it: 8k. */
export const inThousands = (tokens) => `${Math.round(tokens / 1024)}k`;
