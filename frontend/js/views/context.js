// Hands the app's parts to the views, so that no view imports them.

import { createContext } from "preact";
import { useContext } from "preact/hooks";

export const AppContext = createContext(null);

export const useApp = () => useContext(AppContext);
