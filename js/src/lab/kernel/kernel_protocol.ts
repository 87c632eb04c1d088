// The protocol with a kernel: lines of Python that run in it, the names that may stand in them, and the list that it answers.

import { isArrayOf, isObject, isValue } from "../../core/shared/base/schema";

// The list that the kernel sends: its types and its checks.

export const OBJECT_KINDS = ["model", "plan", "monitor", "recording", "graph"] as const;
export type ObjectKind = (typeof OBJECT_KINDS)[number];

export interface KernelObject {
  readonly name: string;
  readonly kind: ObjectKind;
  readonly className: string;
  readonly size: readonly number[] | null;
}

export interface KernelList {
  readonly objects: readonly KernelObject[];
  readonly leftOut: number;
}

export const SCHEMA_VERSION = 1;
export const OTHER_VERSION = "other-version";

const MAX_LENGTH = 200;
const MAX_OBJECTS = 1000;

/** The list, without the entries that are none; null for something else altogether. */
export function readKernelList(
  raw: unknown,
  isName: (name: unknown) => boolean
): KernelList | typeof OTHER_VERSION | null {
  if (!isObject(raw) || !Array.isArray(raw.objects)) {
    return null;
  }
  if (raw.schema_version !== SCHEMA_VERSION) {
    return OTHER_VERSION;
  }
  const leftOut = typeof raw.left_out === "number" && raw.left_out > 0 ? Math.floor(raw.left_out) : 0;
  const objects = raw.objects.slice(0, MAX_OBJECTS).map(entry => readObject(entry, isName));
  return { objects: objects.filter(entry => entry !== null), leftOut };
}

function readObject(raw: unknown, isName: (name: unknown) => boolean): KernelObject | null {
  if (!isObject(raw) || !isName(raw.name) || !OBJECT_KINDS.some(kind => kind === raw.kind)) {
    return null;
  }
  return {
    name: raw.name as string,
    kind: raw.kind as ObjectKind,
    className: typeof raw.class === "string" ? raw.class.slice(0, MAX_LENGTH) : "",
    size: isArrayOf(raw.size, isValue) ? raw.size.map(Number) : null // large ones come as text
  };
}

/** What a tab shows of one object of the kernel. */
export type TabKind = "graph" | "masks" | "panel" | "plan";

const FUNCTIONS: Readonly<Record<TabKind, string>> = {
  graph: "show_graph",
  masks: "show_masks",
  panel: "show_panel",
  plan: "show_plan"
};

/** What can be shown of an object; the first is what a double click does. */
export const TAB_KINDS: Readonly<Record<ObjectKind, readonly TabKind[]>> = {
  model: ["graph", "masks"],
  plan: ["plan"],
  monitor: ["panel"],
  recording: ["panel"],
  graph: []
};

const MAX_NAME_LENGTH = 100;
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
    name.length <= MAX_NAME_LENGTH &&
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
export function restoreLine(name: string, tab: string): string {
  return called("show_again", name, tab);
}

/** The class of the error that says that there is nothing to be shown again. */
export const NO_OUTPUT = "NothingShownError";

function called(what: string, name: string, tab: string, inputs?: string): string {
  if (!isPlainName(name) || !isTabId(tab)) {
    throw new Error("not a name"); // never with the text: errors may reach the page as HTML
  }
  const given = inputs === undefined ? "" : `, (\n${inputs}\n)`;
  return `__import__("modulekg_widgets.widgets.lab.tabs", fromlist=["tabs"]).${what}(${name}, "${tab}"${given})`;
}

/** Makes the kernel tell what it has. */
export const WAKE_LINE = '__import__("modulekg_widgets")';
