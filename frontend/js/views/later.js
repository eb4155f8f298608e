// Views that the first load does without.

import { useEffect, useState } from "preact/hooks";
import { useApp } from "./context.js";

/** A hook that gives a module's exports, null until they have come; `load()` imports it when it is wanted. `failed()`: it did not come. */
export function later(load) {
  let found = null;
  return function useLater(wanted = true, failed = () => {}) {
    const { actions } = useApp();
    const [shown, show] = useState(found);
    useEffect(() => {
      // Also when it has come since this view was drawn: nothing else would draw it again.
      if (!wanted || shown) return;
      const arrived = (module) => show((found = module));
      load().then(arrived, () => {
        actions.problem.value = { code: "disconnected" };
        failed();
      });
    }, [wanted]);
    return wanted ? shown ?? found : null;
  };
}
