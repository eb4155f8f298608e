// Hands the app's parts to the views, so that no view imports them.

import { useComputed } from "@preact/signals";
import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";

export const AppContext = createContext(null);

export const useApp = () => useContext(AppContext);

/** Whether a turn runs in the chat; drawn again when that changes, not for every delta. */
export function useRunning(chatId) {
  const { store } = useApp();
  return useComputed(() => store.chat(chatId).value.turn !== null).value;
}

/** The last reply to `ask()`, which is asked again after each change of `causes`; null before the first. */
export function useReply(ask, ready, causes) {
  const [reply, setReply] = useState(null);
  useEffect(() => {
    if (!ready) return undefined;
    let current = true;
    ask().then((fresh) => current && setReply(fresh)).catch((error) => {
      if (!error.code) throw error;
    });
    return () => (current = false);
  }, [ready, ...causes]);
  return reply;
}
