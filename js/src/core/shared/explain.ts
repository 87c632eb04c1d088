// A sentence in a widget's place, when there is nothing that can be drawn.

import { el } from "./dom";
import { PayloadError } from "./schema";

export const NO_DATA = "There is nothing to show yet: run the cell.";

export function explain(host: HTMLElement, text: string): void {
  const message = el("div", "mkg-message", text);
  message.setAttribute("role", "alert");
  host.replaceChildren(message);
}

/** What `read` makes of the kernel's data; undefined, and a sentence on the page, when it cannot be read. */
export function readOrExplain<T>(host: HTMLElement, raw: unknown, read: (raw: unknown) => T): T | undefined {
  try {
    if (typeof raw === "object" && raw !== null && Object.keys(raw).length > 0) return read(raw);
    explain(host, NO_DATA);
  } catch (error) {
    explain(host, error instanceof PayloadError ? error.message : "This widget's data cannot be read.");
  }
  return undefined;
}
