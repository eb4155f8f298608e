// Which rows of a long list stand near the view, and how much room the others take. Arithmetic in pixels, no DOM.

/** Where each row begins; the last entry is where the list ends. */
export function offsetsOf(keys, heightOf) {
  const offsets = new Float64Array(keys.length + 1);
  keys.forEach((key, i) => (offsets[i + 1] = offsets[i] + heightOf(key)));
  return offsets;
}

/** The row that covers `y`; the first or last one beyond the ends. */
export function rowAt(offsets, y) {
  let low = 0;
  let high = offsets.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= y) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
}

/** Rows that touch the stretch from `top` to `bottom`, as `{first, last}`; `last` is not among them. */
export function rowsBetween(offsets, top, bottom) {
  const count = offsets.length - 1;
  return count === 0 ? { first: 0, last: 0 } : { first: rowAt(offsets, top), last: rowAt(offsets, bottom) + 1 };
}

/** What to draw, in order: `{index}` for a row, `{room}` for rows that are left out. `kept` are rows to draw wherever they are. */
export function arrange(offsets, { first, last }, kept = []) {
  const inside = Array.from({ length: last - first }, (_, i) => first + i);
  const outside = kept.filter((index) => index < first || index >= last);
  const parts = [];
  let next = 0;
  for (const index of [...outside, ...inside].sort((a, b) => a - b)) {
    if (index > next) parts.push({ room: offsets[index] - offsets[next] });
    parts.push({ index });
    next = index + 1;
  }
  const end = offsets.length - 1;
  if (next < end) parts.push({ room: offsets[end] - offsets[next] });
  return parts;
}
