// Keys that work everywhere on the page. Keys of one control stay with that control.

/** Whether the key belongs to an input method that is at work; browsers say so in two ways. */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

export function listenToKeys(target, { store, actions, ui }) {
  target.addEventListener("keydown", (event) => {
    if (isComposing(event) || event.defaultPrevented || ui.dialog.value) return;
    const act = shortcut(event, { store, actions, ui });
    if (!act) return;
    event.preventDefault();
    act();
  });
}

function shortcut(event, { store, actions, ui }) {
  const { open, active } = store.tabs.value;
  if (event.altKey && !event.ctrlKey && !event.metaKey) {
    if (event.code === "KeyN") return () => actions.createChat({ temporary: event.shiftKey });
    const index = /^Digit[1-9]$/.test(event.code) ? Number(event.code.at(-1)) - 1 : -1;
    if (index in open) return () => actions.openChat(open[index]);
  }
  if ((event.ctrlKey || event.metaKey) && event.code === "KeyK") return ui.openSearch;
  if (event.key === "?" && !isTyping(event.target)) return () => ui.openDialog("help");
  if (event.key === "Escape") {
    if (ui.drawer.value) return ui.closeDrawer;
    if (active && store.chatNow(active).turn) return () => actions.stop(active);
  }
  return null;
}

const isTyping = (element) => element.matches("input, textarea, select, [contenteditable]");
