// What a page without a host can show: every widget of the package, and the boxes and links of ipywidgets.

import * as widgets from "../widgets/all";
import * as controls from "./controls";
import type { Kinds } from "./models";

export const KINDS: Kinds = { ...controls, ...widgets };
