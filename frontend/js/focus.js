// Focus never falls to nowhere: when the element that had it goes or is hidden, what stands around it takes over.

const FOCUSABLE = 'button:not(:disabled, [tabindex="-1"]), a[href]:not(.skip), input, select, summary, [tabindex="0"]';

export function keepFocus(page) {
  let way = [];

  // Who points doesn't miss the focus, and a screen's keyboard that opens by itself is in the way.
  page.addEventListener("focusin", ({ target }) => {
    way = target.matches(":focus-visible") ? withAncestors(target) : [];
  });

  function pickUp() {
    if (page.activeElement !== page.body || !way.length || isThere(way[0])) return;
    for (const element of way.filter(isThere)) {
      // Where one can write is where one most likely goes on.
      const next = [...element.querySelectorAll("textarea"), ...element.querySelectorAll(FOCUSABLE)].find(isThere);
      if (next) return next.focus({ preventScroll: true });
    }
  }

  // A view that moves the focus by itself does so after its next frame at the latest.
  const later = () => requestAnimationFrame(() => requestAnimationFrame(pickUp));
  page.addEventListener("focusout", later);
  // Not every browser says that what it removed had the focus.
  new MutationObserver(later).observe(page.body, { childList: true, subtree: true });
}

function withAncestors(element) {
  const found = [];
  for (let next = element; next; next = next.parentElement) found.push(next);
  return found;
}

const isThere = (element) => element.isConnected && element.checkVisibility({ visibilityProperty: true });
