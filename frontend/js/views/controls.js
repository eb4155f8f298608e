// Small parts that many views use: copying, folding, menus, revealed text.

import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isComposing } from "../keys.js";
import { revealUnseen } from "../text.js";
import { useApp } from "./context.js";
import { html } from "./html.js";
import { Icon, IconButton } from "./icons.js";

const COPIED_MS = 1600;

/** Returns `[copied, copy(text)]`; `copied` stays true for a moment. */
export function useCopy() {
  const { t, ui } = useApp();
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return undefined;
    const timer = setTimeout(() => setCopied(false), COPIED_MS);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = async (text) => {
    await writeClipboard(text);
    setCopied(true);
    ui.announce(t("copy.done"));
  };
  return [copied, copy];
}

// navigator.clipboard exists only on https and loopback; a workspace opened over the local network has neither.
async function writeClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = Object.assign(document.createElement("textarea"), { value: text, className: "visually-hidden" });
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  return field.remove();
}

export function CopyButton({ text, label }) {
  const { t } = useApp();
  const [copied, copy] = useCopy();
  return html`<${IconButton}
    name=${copied ? "check" : "copy"}
    label=${copied ? t("copy.done") : label ?? t("copy.copy")}
    onClick=${() => copy(text)}
  />`;
}

export function Command({ text }) {
  return html`<div class="command"><code>${text}</code><${CopyButton} text=${text} /></div>`;
}

/** A key handler for single-line fields: the Enter that ends an input method's word sends no form. */
export function keepsComposing(event) {
  if (event.key === "Enter" && isComposing(event)) event.preventDefault();
}

/**
 * Shows the first lines of a long body and a button for the rest; the height is the style sheet's. `children` may be a
 * function that is given whether it is open, for a body that is long to draw.
 */
export function Fold({ class: extra = "", children }) {
  const { t } = useApp();
  const body = useRef(null);
  const [long, setLong] = useState(false);
  const [open, setOpen] = useState(false);
  const id = useId();
  useLayoutEffect(() => {
    if (!open) setLong(body.current.scrollHeight > body.current.clientHeight + 4);
  });
  const folded = long && !open;
  return html`<div class=${`fold ${extra}`} data-folded=${folded}>
    <div class=${open ? "fold-body open" : "fold-body"} id=${id} ref=${body}>${typeof children === "function" ? children(open) : children}</div>
    ${(long || open) &&
    html`<button type="button" class="fold-toggle" aria-expanded=${open} aria-controls=${id} onClick=${() => setOpen(!open)}>
      ${open ? t("fold.less") : t("fold.more")}<${Icon} name="chevron" />
    </button>`}
  </div>`;
}

/** Text as it is, with characters that would not be seen shown by their code. */
export function Revealed({ text }) {
  const { t } = useApp();
  return revealUnseen(text).map((segment) =>
    segment.code ? html`<span class="unseen" title=${t("unseen.title", { code: segment.code })}>${segment.code}</span>` : segment.text,
  );
}

/** A button that opens a menu; `items` are `{label, id?, icon?, danger?, checked?, act}`, a `toggle` is checked by itself. */
export function MenuButton({ label, icon, text, items, align = "end", class: extra = "" }) {
  const button = useRef(null);
  const menu = useRef(null);
  const id = useId();
  const [open, setOpen] = useState(false);

  const focusItem = (index) => menu.current.querySelectorAll("button").item(index)?.focus();
  // Items are drawn for an open menu only: a long list has a menu for every row.
  const onBeforeToggle = ({ newState }) => newState === "open" && setOpen(true);
  const onToggle = ({ newState }) => {
    if (newState !== "open") {
      setOpen(false);
      return;
    }
    place(menu.current, button.current, align);
    focusItem(Math.max(0, items.findIndex((item) => item.checked && !item.toggle)));
  };
  const onKeyDown = (event) => {
    const buttons = [...menu.current.querySelectorAll("button")];
    const current = buttons.indexOf(document.activeElement);
    const target = { ArrowDown: current + 1, ArrowUp: current - 1 + buttons.length, Home: 0, End: buttons.length - 1 }[event.key];
    if (event.key === "Tab") menu.current.hidePopover();
    if (event.key === "Escape") event.stopPropagation();
    if (target === undefined) return;
    event.preventDefault();
    focusItem(target % buttons.length);
  };
  const choose = (item) => {
    menu.current.hidePopover();
    item.act();
  };

  const name = text ? `${label}: ${text}` : label;
  return html`<button type="button" ref=${button} class=${`icon-button ${extra}`} aria-label=${name} title=${name}
      aria-haspopup="menu" aria-expanded=${open} popovertarget=${id}>
      ${text ? html`<span class="icon-text">${text}</span>` : html`<${Icon} name=${icon} />`}
    </button>
    <div id=${id} ref=${menu} popover="auto" role="menu" aria-label=${label} class="menu" onBeforeToggle=${onBeforeToggle} onToggle=${onToggle} onKeyDown=${onKeyDown}>
      ${open && items.map(
        (item) => html`<button type="button" key=${item.id ?? item.label} class=${item.danger ? "danger" : ""} onClick=${() => choose(item)}
          role=${item.toggle ? "menuitemcheckbox" : item.checked === undefined ? "menuitem" : "menuitemradio"} aria-checked=${item.checked}>
          <span class="menu-icon">${item.checked ? html`<${Icon} name="check" />` : item.icon && html`<${Icon} name=${item.icon} />`}</span>
          ${item.label}
        </button>`,
      )}
    </div>`;
}

/** Put an open popover below its button, or above where there is no room. */
export function place(menu, button, align) {
  const gap = 4;
  const { left, right, bottom, top } = button.getBoundingClientRect();
  const { offsetWidth, offsetHeight } = menu;
  const wanted = align === "end" ? right - offsetWidth : left;
  const below = bottom + gap + offsetHeight <= innerHeight;
  menu.style.left = `${Math.max(gap, Math.min(wanted, innerWidth - offsetWidth - gap))}px`;
  menu.style.top = `${below ? bottom + gap : Math.max(gap, top - gap - offsetHeight)}px`;
}
