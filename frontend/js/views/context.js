// Hands the app's parts to the views, so that no view imports them.

import { useComputed } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";

export const AppContext = createContext(null);

export const useApp = () => useContext(AppContext);

/** Whether a turn runs in the chat; drawn again when that changes, not for every delta. */
export function useRunning(chatId) {
  const { store } = useApp();
  return useComputed(() => store.chat(chatId).value.turn !== null).value;
}
