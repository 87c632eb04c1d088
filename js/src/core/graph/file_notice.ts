// Says above the canvas what is to be known of a file before it is loaded.

import { el, nameSpan } from "../shared/dom";
import { counted } from "../shared/format";
import type { Hierarchy } from "../shared/hierarchy";

const MOST = 5;

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

export class FileNotice {
  constructor(
    private readonly host: HTMLElement,
    h: Hierarchy
  ) {
    const warnings = h.payload.file?.warnings ?? [];
    host.classList.add("mkg-file-notice");
    host.hidden = warnings.length === 0;
    if (warnings.length === 0) return;
    host.setAttribute("role", "alert");
    const text = el("div", "mkg-trace-error-text");
    for (const warning of warnings.slice(0, MOST)) text.append(nameSpan("", capital(warning)));
    if (warnings.length > MOST)
      text.append(el("span", "mkg-dim", `and ${counted(warnings.length - MOST, "other warning")}`));
    host.append(el("span", "mkg-row-mark", "!"), text);
  }

  dispose(): void {
    this.host.replaceChildren();
  }
}
