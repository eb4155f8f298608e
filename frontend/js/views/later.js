// Views that the first load does without.

import { useEffect, useState } from "preact/hooks";
import { useApp } from "./context.js";

/** A hook that gives a module's exports, null until they have come; `load()` imports it when it is first wanted. */
export function later(load) {
  let found = null;
  return function useLater(wanted = true) {
    const { actions } = useApp();
    const [, draw] = useState(false);
    useEffect(() => {
      if (!wanted || found) return;
      const arrived = (module) => {
        found = module;
        draw(true);
      };
      load().then(arrived, () => (actions.problem.value = { code: "disconnected" }));
    }, [wanted]);
    return wanted ? found : null;
  };
}
