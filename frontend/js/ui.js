// What is open on the page at this moment: dialogs, drawers, the line read out by screen readers. Nothing is stored.

import { signal } from "@preact/signals";

/** `isWide()` says whether the list and the inspector stand beside the conversation; else they are drawers over it. */
export function createUi({ isWide }) {
  const dialog = signal(null);
  const drawer = signal(null);
  const announcement = signal("");
  const renaming = signal(null);
  const followed = signal(0);
  const target = signal(null);

  return {
    isWide,
    dialog,
    drawer,
    announcement,
    renaming,
    followed,
    target,
    /** The person sent something: what comes of it is what they want to see. */
    followEnd: () => followed.value++,
    /** `{chatId, messageId}` of a message that the person looks for; the conversation brings it into view and clears it. */
    showTarget: (wanted) => (target.value = wanted),
    clearTarget: () => (target.value = null),
    /** `kind` names one of the dialogs of views/dialogs.js; `fields` are its props. */
    openDialog: (kind, fields = {}) => (dialog.value = { kind, ...fields }),
    closeDialog: () => (dialog.value = null),
    openSearch: () => (dialog.value = { kind: "search" }),
    /** The title of a chat becomes a field in its tab or in the list: `place` is `tab` or `list`. */
    startRenaming: (chatId, place) => (renaming.value = { chatId, place }),
    stopRenaming: () => (renaming.value = null),
    toggleDrawer: (name) => (drawer.value = drawer.value === name ? null : name),
    closeDrawer: () => (drawer.value = null),
    announce: (text) => (announcement.value = text),
  };
}
