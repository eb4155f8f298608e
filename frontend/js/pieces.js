// Cuts long text into pieces of whole lines that a browser lays out one by one. Knows no DOM.

// About two screens: short enough to lay out at once, long enough that a book has few.
const PIECE_LINES = 100;

// More than a folded message shows at any width, and little enough to lay out at once.
const HEAD_CHARACTERS = 10_000;

/** As much of the beginning as a folded message can show: the whole text when it is short. */
export function headOf(text) {
  if (text.length <= HEAD_CHARACTERS) return text;
  const [first] = piecesOf(text.slice(0, HEAD_CHARACTERS));
  return first.replace(/[\ud800-\udbff]$/, "");
}

/** The text in pieces, which joined are the text. A text that grows changes its last piece only. */
export function piecesOf(text) {
  const pieces = [];
  let start = 0;
  let lines = 0;
  for (let end = text.indexOf("\n") + 1; end > 0; end = text.indexOf("\n", end) + 1) {
    if (++lines < PIECE_LINES) continue;
    pieces.push(text.slice(start, end));
    start = end;
    lines = 0;
  }
  if (start < text.length || pieces.length === 0) pieces.push(text.slice(start));
  return pieces;
}
