// The whole explorer as one file that opens without a network, a kernel or a server.

import type { ModelPayload } from "../payload";
import type { GraphState } from "../store";
import { printable } from "./scene";
import { xml } from "./svg";

/** Ids that the page's script looks for. */
export const PAYLOAD_ID = "mkg-payload";
export const STATE_ID = "mkg-state";
export const SCRIPT_ID = "mkg-script";

export type SavedState = Partial<Pick<GraphState, "selected" | "axis" | "expanded" | "colorBy" | "query" | "view" | "overlay">>;

export function standaloneHtml(payload: ModelPayload, state: SavedState, script: string, nonce: string): string {
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
<title>${xml(printable(payload.title))}</title>
</head>
<body class="mkg-standalone">
<noscript>This page draws the model with JavaScript: allow it for this file.</noscript>
<script type="application/json" id="${PAYLOAD_ID}">${jsonForScript(payload)}</script>
<script type="application/json" id="${STATE_ID}">${jsonForScript(state)}</script>
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
