// The lines of Python that commands run in a notebook's kernel, and which names may stand in them.

import { type ObjectKind } from "./kernel_list";

/** What a tab shows of one object of the kernel. */
export type TabKind = "graph" | "masks" | "panel" | "plan";

const FUNCTIONS: Readonly<Record<TabKind, string>> = {
  graph: "show_graph",
  masks: "show_masks",
  panel: "show_panel",
  plan: "show_plan"
};

/** What can be shown of an object; the first is what a double click does. */
export const OFFERED: Readonly<Record<ObjectKind, readonly TabKind[]>> = {
  model: ["graph", "masks"],
  plan: ["plan"],
  monitor: ["panel"],
  recording: ["panel"],
  graph: []
};

const LONGEST_NAME = 100;
const KEYWORDS = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally for from global " +
    "if import in is lambda nonlocal not or pass raise return try while with yield"
  ).split(" ")
);

/** Whether `name` is an identifier of Python and nothing else. */
export function isPlainName(name: unknown): name is string {
  return (
    typeof name === "string" &&
    name.length <= LONGEST_NAME &&
    /^[\p{ID_Start}_][\p{ID_Continue}]*$/u.test(name) &&
    !KEYWORDS.has(name.normalize("NFKC")) // as Python reads it
  );
}

export function isTabKind(kind: unknown): kind is TabKind {
  return typeof kind === "string" && Object.keys(FUNCTIONS).includes(kind);
}

export function isTabId(tab: unknown): tab is string {
  return typeof tab === "string" && /^[\w-]{1,80}$/.test(tab);
}

/** Shows the object `name` in the tab; `inputs` is an expression that somebody typed. Defines nothing in the notebook. */
export function lineFor(kind: TabKind, name: string, tab: string, inputs?: string): string {
  return called(FUNCTIONS[kind], name, tab, inputs);
}

/** Shows what the tab has shown of the object before the page was loaded anew. */
export function againLine(name: string, tab: string): string {
  return called("show_again", name, tab);
}

/** The class of the error that says that there is nothing to be shown again. */
export const NOTHING_SHOWN = "NothingShownError";

function called(what: string, name: string, tab: string, inputs?: string): string {
  if (!isPlainName(name) || !isTabId(tab)) {
    throw new Error("not a name"); // never with the text: errors may reach the page as HTML
  }
  const given = inputs === undefined ? "" : `, (\n${inputs}\n)`;
  return `__import__("modulekg_widgets.widgets.lab.tabs", fromlist=["tabs"]).${what}(${name}, "${tab}"${given})`;
}

/** Makes the kernel tell what it has. */
export const WAKE_LINE = '__import__("modulekg_widgets")';
