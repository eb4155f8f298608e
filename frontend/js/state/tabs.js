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

/** Without the tabs of chats that are gone. */
export const pruneTabs = (tabs, exists) => tabs.open.filter((id) => !exists(id)).reduce(closeTab, tabs);

/** What was stored, if it still has this shape. */
export function readTabs(stored) {
  if (!Array.isArray(stored?.open)) return noTabs;
  const open = [...new Set(stored.open.filter((id) => typeof id === "string"))];
  return { open, active: open.includes(stored.active) ? stored.active : open[0] ?? null };
}
