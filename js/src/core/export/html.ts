// A page that opens without a network, a kernel or a server: the widgets as data, and one script that shows them.

import { PAGE_TEMPLATE } from "../../generated/page_template";
import type { ModelPayload } from "../shared/payload/payload";
import type { GraphStore } from "../shared/model/graph_store";
import { printable, xml } from "./graph_picture";

/** The element with the data of the page, whoever wrote it. */
export const PAGE_ID = "mkg-page";
/** What the page's script calls its element, so that the export menu finds it. */
export const SCRIPT_ID = "mkg-script";
export const PAGE_VERSION = 1;

/** Bytes in base64, and where in the state they belong. */
export interface SavedBuffer {
  readonly path: readonly (string | number)[];
  readonly data: string;
}

/** A message as the kernel would send it, with its buffers in base64. */
interface SavedMessage {
  readonly content: unknown;
  readonly buffers?: readonly string[];
}

/** What the page says to a message of a view in the kernel's place: the question, with this content over it. */
interface SavedAnswer {
  readonly question: Readonly<Record<string, unknown>>; // what the message must have; the first answer that fits counts
  readonly content: Readonly<Record<string, unknown>>;
  readonly buffers?: readonly string[]; // else those of the question go back
}

export interface SavedWidget {
  readonly kind: string; // "ModelGraph", "VBox", "Link", …
  readonly id: string;
  readonly state: Record<string, unknown>; // the traits, by the names that they have in Python
  readonly buffers?: readonly SavedBuffer[];
  readonly messages?: readonly SavedMessage[];
  readonly answers?: readonly SavedAnswer[];
}

export interface SavedPage {
  readonly schema_version: typeof PAGE_VERSION;
  readonly views: readonly string[]; // ids of the widgets that are shown
  readonly widgets: readonly SavedWidget[];
  readonly live?: boolean; // there are none yet: the page around this one has them, and the way to their kernel
}

/** The page of one graph, as it is shown. */
export function graphPage(payload: ModelPayload, store: GraphStore): SavedPage {
  const state = {
    _view_name: "ModelGraphView",
    payload,
    selected: store.get("selected"),
    axis: store.get("axis"),
    expanded: store.get("expanded"),
    color_by: store.get("colorBy"),
    query: store.get("query"),
    view: store.get("view"),
    overlay: store.get("overlay"),
    pruned: store.get("pruned")
  };
  return { schema_version: PAGE_VERSION, views: ["graph"], widgets: [{ kind: "ModelGraph", id: "graph", state }] };
}

export function standaloneHtml(title: string, page: SavedPage, script: string, nonce: string): string {
  const parts = new Map([
    ["source", `nonce-${nonce}`], // admits our one script and nothing that a name could smuggle in
    ["title", xml(printable(title))],
    ["id", PAGE_ID],
    ["data", jsonForScript(page)],
    ["attributes", ` nonce="${nonce}"`],
    ["code", scriptText(script)]
  ]);
  return PAGE_TEMPLATE.replace(/\{\{(\w+)\}\}/g, (_, name: string) => parts.get(name) ?? "");
}

/** JSON that cannot end, or open a comment in, the script element it stands in. */
export function jsonForScript(value: unknown): string {
  return JSON.stringify(value).replace(/[<>&\u2028\u2029]/g, character => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

/** A script whose string literals cannot end the element it stands in. */
function scriptText(script: string): string {
  return script.replace(/<\/(?=script)/gi, "<\\/").replace(/<!--/g, "\\x3c!--");
}

export function newNonce(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("");
}
