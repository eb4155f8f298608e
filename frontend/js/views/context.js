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

/**
 * The last reply to `ask()`, null before the first, and the error of the newest try, if it failed. Asked after each
 * change of `causes`, and by `again()`; a lost connection is no error, since it comes back.
 */
export function useAnswer(ask, ready, causes) {
  const [answer, setAnswer] = useState({ reply: null, error: null });
  const [tries, setTries] = useState(0);
  useEffect(() => {
    if (!ready) return undefined;
    let current = true;
    ask()
      .then((reply) => current && setAnswer({ reply, error: null }))
      .catch((error) => {
        if (!error.code) throw error;
        if (current && error.code !== "disconnected") setAnswer(({ reply }) => ({ reply, error }));
      });
    return () => (current = false);
  }, [ready, tries, ...causes]);
  return { ...answer, again: () => setTries((count) => count + 1) };
}
