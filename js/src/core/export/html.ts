// A page that opens without a network, a kernel or a server: the widgets as data, and one script that shows them.

import type { ModelPayload } from "../shared/payload";
import type { Store } from "../shared/store";
import { printable } from "./scene";
import { xml } from "./svg";

/** Ids that the page's script looks for. */
export const PAGE_ID = "mkg-page";
export const SCRIPT_ID = "mkg-script";
export const PAGE_VERSION = 1;

/** Bytes in base64, and where in the state they belong. */
export interface SavedBuffer {
  readonly path: readonly (string | number)[];
  readonly data: string;
}

/** A message as the kernel would send it, with its buffers in base64. */
export interface SavedMessage {
  readonly content: unknown;
  readonly buffers?: readonly string[];
}

/** What the page says to a message of a view in the kernel's place: the question, with this content over it. */
export interface SavedAnswer {
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
}

/** The page of one graph, as it is shown. */
export function graphPage(payload: ModelPayload, store: Store): SavedPage {
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
  // the nonce admits our one script and nothing that a name could smuggle in; the layout worker is a blob
  const policy = [
    "default-src 'none'",
    `script-src 'nonce-${nonce}'`,
    "style-src 'unsafe-inline'",
    "worker-src blob:",
    "img-src blob: data:",
    "base-uri 'none'",
    "form-action 'none'"
  ].join("; ");
  return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="modulekg-widgets">
<title>${xml(printable(title))}</title>
</head>
<body class="mkg-saved">
<noscript>This page is drawn with JavaScript: allow it for this file.</noscript>
<script type="application/json" id="${PAGE_ID}">${jsonForScript(page)}</script>
<script id="${SCRIPT_ID}" nonce="${nonce}">${scriptText(script)}</script>
</body>
</html>
`;
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
