// The open chats, their order and the one in front. Pure functions over `{open: [id…], active}`.

export const noTabs = { open: [], active: null };

export const openTab = (tabs, id) => ({ open: tabs.open.includes(id) ? tabs.open : [...tabs.open, id], active: id });

/** Closing the tab in front brings its neighbour forward. */
export function closeTab(tabs, id) {
  const index = tabs.open.indexOf(id);
  if (index < 0) return tabs;
  const open = tabs.open.toSpliced(index, 1);
  return { open, active: tabs.active === id ? open[Math.min(index, open.length - 1)] ?? null : tabs.active };
}

/** The tab `step` places further on, but not beyond an end. */
export function moveTab(tabs, id, step) {
  const index = tabs.open.indexOf(id);
  const place = Math.max(0, Math.min(index + step, tabs.open.length - 1));
  return { ...tabs, open: tabs.open.toSpliced(index, 1).toSpliced(place, 0, id) };
}

/** What was stored, if it still has this shape. */
export function readTabs(stored) {
  if (!Array.isArray(stored?.open)) return noTabs;
  const open = [...new Set(stored.open.filter((id) => typeof id === "string"))];
  return { open, active: open.includes(stored.active) ? stored.active : open[0] ?? null };
}
