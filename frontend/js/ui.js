// What is open on the page at this moment: dialogs, drawers, the line read out by screen readers. Nothing is stored.

import { signal } from "@preact/signals";

/** `isWide()` says whether the list and the inspector stand beside the conversation; else they are drawers over it. */
export function createUi({ isWide }) {
  const dialog = signal(null);
  const drawer = signal(null);
  const announcement = signal("");
  const filterFocus = signal(0);
  const followed = signal(0);

  return {
    isWide,
    dialog,
    drawer,
    announcement,
    filterFocus,
    followed,
    /** The person sent something: what comes of it is what they want to see. */
    followEnd: () => followed.value++,
    /** `kind` names one of the dialogs of views/dialogs.js; `fields` are its props. */
    openDialog: (kind, fields = {}) => (dialog.value = { kind, ...fields }),
    closeDialog: () => (dialog.value = null),
    toggleDrawer: (name) => (drawer.value = drawer.value === name ? null : name),
    closeDrawer: () => (drawer.value = null),
    focusFilter() {
      if (!isWide()) drawer.value = "list";
      filterFocus.value++;
    },
    announce: (text) => (announcement.value = text),
  };
}
