// What a saved page can show: every widget of the package, and the boxes and links of ipywidgets.

import * as widgets from "../widgets/all";
import * as controls from "./controls";
import type { Kinds } from "./page";

export const KINDS: Kinds = { ...controls, ...widgets };
