// Draws of a long list only the rows near the view, in their order, and holds still what the person reads.
// The browser's own search finds what is drawn; for the rest there is the search over the chats, whose hits come by `show`.

import { useEffect, useLayoutEffect, useReducer, useRef } from "preact/hooks";
import { arrange, offsetsOf, rowAt, rowsBetween } from "../viewport.js";

// Within this distance of the end the person counts as being there.
const END_PX = 48;

// Drawn beyond the view at each side, so that quick scrolling meets rows and a screen reader the next ones.
const SPARE_PX = 1000;

// A row that was never drawn.
const GUESS_PX = 120;

// Where a row that was looked for comes to stand below the top of the view.
const SHOWN_PX = 72;

// What would be lost with its row: something typed or opened.
const KEPT = "textarea, details[open], [aria-expanded='true'], [data-kept]";

// Parts of a row that neither scroll by themselves nor are drawn again.
const STEADY_PARTS = ".block, .piece";

/** `frame` goes to the scrolling element, which holds one column, in which `[data-rows]` holds the rows by `data-row`. */
export function useRowList(keys) {
  const frame = useRef(null);
  const [, redraw] = useReducer((count) => count + 1, 0);
  const held = useRef(null);
  const rows = (held.current ??= new RowList(frame, redraw));
  const parts = rows.arrange(keys);

  useLayoutEffect(() => rows.settle());
  useEffect(() => {
    // A redraw within the observer's own round would be one that it can't deliver any more.
    const observer = new ResizeObserver(() => rows.settle(requestAnimationFrame));
    observer.observe(frame.current);
    observer.observe(frame.current.firstElementChild);
    return () => observer.disconnect();
  }, []);
  return { frame, parts, atEnd: rows.atEnd, onScroll: () => rows.scrolled(), toEnd: () => rows.toEnd(), show: (key, shown) => rows.show(key, shown) };
}

class RowList {
  atEnd = true;
  #keys = [];
  #heights = new Map();
  #offsets = new Float64Array(1);
  #drawn = { first: 0, last: 0 };
  #following = true;
  #anchor = null;
  #lastTop = 0;
  #wanted = null;

  constructor(frame, redraw) {
    this.frame = frame;
    this.redraw = redraw;
  }

  arrange(keys) {
    this.#keys = keys;
    this.#measureOffsets();
    this.#drawn = this.#rowsWithin(SPARE_PX);
    return arrange(this.#offsets, this.#drawn, this.#kept());
  }

  /** After each change of what is drawn: learn the heights, put the view back, and draw again what it now lacks. */
  settle(soon = (act) => act()) {
    if (!this.#list) return;
    for (const row of this.#list.children) if (row.dataset.row) this.#heights.set(row.dataset.row, row.getBoundingClientRect().height);
    this.#measureOffsets();
    this.#place();
    const { first, last } = this.#rowsWithin(SPARE_PX / 2);
    if (first < this.#drawn.first || last > this.#drawn.last) soon(this.redraw);
    else this.#tellShown();
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.frame.current;
    const atEnd = scrollHeight - scrollTop - clientHeight < END_PX;
    // What grew since the last frame leaves the end further away; only who scrolls up leaves it.
    this.#following = atEnd || (this.#following && scrollTop >= this.#lastTop);
    this.#lastTop = scrollTop;
    this.#hold();
    const { first, last } = this.#rowsWithin(SPARE_PX / 2);
    const lacking = first < this.#drawn.first || last > this.#drawn.last;
    const changed = this.atEnd !== this.#following;
    this.atEnd = this.#following;
    if (lacking || changed) this.redraw();
  }

  toEnd() {
    this.#following = this.atEnd = true;
    this.redraw();
  }

  /** Bring a row into view, if it is there; `shown(element)` is called when it has come. */
  show(key, shown) {
    if (!this.#keys.includes(key)) return;
    this.#following = this.atEnd = false;
    this.#anchor = { key, offset: SHOWN_PX };
    this.#wanted = { key, shown };
    this.redraw();
  }

  get #list() {
    return this.frame.current?.querySelector("[data-rows]");
  }

  #row(key) {
    return this.#list.querySelector(`:scope > [data-row="${key}"]`);
  }

  #measureOffsets() {
    this.#offsets = offsetsOf(this.#keys, (key) => this.#heights.get(key) ?? GUESS_PX);
  }

  #rowsWithin(sparePx) {
    const viewPx = this.frame.current?.clientHeight ?? innerHeight;
    const top = this.#following ? this.#offsets.at(-1) - viewPx : this.#viewTop();
    return rowsBetween(this.#offsets, top - sparePx, top + viewPx + sparePx);
  }

  /** Where the view begins, by the row that is held: the others may have changed above it. */
  #viewTop() {
    const index = this.#keys.indexOf(this.#anchor?.key);
    return index < 0 ? this.#scrolledPast() : this.#offsets[index] - this.#anchor.offset;
  }

  #scrolledPast() {
    return this.#list ? this.frame.current.getBoundingClientRect().top - this.#list.getBoundingClientRect().top : 0;
  }

  #hold() {
    const past = this.#scrolledPast();
    const index = rowAt(this.#offsets, past);
    this.#anchor = { key: this.#keys[index], offset: this.#offsets[index] - past, ...this.#steadyPart() };
  }

  #steadyPart() {
    const { left, width, top } = this.frame.current.getBoundingClientRect();
    const part = document.elementFromPoint(left + width / 2, top + 1)?.closest(STEADY_PARTS);
    return this.frame.current.contains(part ?? null) ? { part, partOffset: part.getBoundingClientRect().top - top } : {};
  }

  #place() {
    const frame = this.frame.current;
    if (this.#following) frame.scrollTop = frame.scrollHeight;
    else if (this.#anchor) this.#placeAnchor(frame, this.#anchor);
    this.#lastTop = frame.scrollTop;
  }

  #placeAnchor(frame, { key, offset, part, partOffset }) {
    const [element, wanted] = part?.isConnected ? [part, partOffset] : [this.#row(key), offset];
    const moved = element ? element.getBoundingClientRect().top - frame.getBoundingClientRect().top - wanted : 0;
    // Less than that is rounding.
    if (Math.abs(moved) >= 1) frame.scrollTop += moved;
  }

  #tellShown() {
    const element = this.#wanted && this.#row(this.#wanted.key);
    if (!element) return;
    const { shown } = this.#wanted;
    this.#wanted = null;
    // Near an end the row can't come to stand where it was meant to.
    this.#hold();
    shown(element);
  }

  /** Rows to leave where they are: those with the focus, with something open, and all while the person selects text. */
  #kept() {
    const drawn = [...(this.#list?.children ?? [])].filter((row) => row.dataset.row);
    const selection = getSelection();
    const selecting = drawn.length > 0 && !selection.isCollapsed && this.#list.contains(selection.anchorNode);
    const kept = drawn.filter((row) => selecting || row.contains(document.activeElement) || row.querySelector(KEPT));
    return kept.map((row) => this.#keys.indexOf(row.dataset.row)).filter((index) => index >= 0);
  }
}
