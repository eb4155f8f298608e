// Tells the person outside of the page that a chat has something for them: its title, never its text.
// Off until they want it; that it can be had is said once, when it would have been of use.

import { effect, untracked } from "@preact/signals";

/** `preferences` hold `notify` and `notifyOffer`: `later`, then `now` while the offer stands, then `done`. */
export function createNotifications({ preferences, onRefused, openChat }) {
  const { notify, notifyOffer } = preferences;
  const shown = new Map();

  // Taken back in the browser's settings meanwhile; asking again is for when the person wants it again.
  if (notify.value && Notification.permission !== "granted") notify.value = false;
  // The page in which the person switched it on asks, and not the others that hear of it.
  effect(() => {
    if (notify.value && navigator.userActivation.isActive) untracked(ask);
  });

  async function ask() {
    notifyOffer.value = "done";
    if ((await Notification.requestPermission()) !== "granted") refused();
  }

  function refused() {
    notify.value = false;
    onRefused();
  }

  function show(chatId, title, body) {
    // The tag makes one of the notifications that several pages show of the same chat.
    const notification = new Notification(title, { body, tag: chatId, icon: "/icon.svg" });
    notification.onclick = () => {
      window.focus();
      openChat(chatId);
      notification.close();
    };
    shown.set(chatId, notification);
  }

  return {
    tell(chatId, title, body) {
      if (!notify.value) {
        if (notifyOffer.value === "later") notifyOffer.value = "now";
      } else if (Notification.permission === "granted") show(chatId, title, body);
      else refused();
    },
    /** The person is back: what they see here needs no notification any more. */
    clear() {
      shown.forEach((notification) => notification.close());
      shown.clear();
    },
  };
}
