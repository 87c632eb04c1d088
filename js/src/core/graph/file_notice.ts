// Says above the canvas what is to be known of a file before it is loaded.

import { el, nameSpan } from "../shared/dom";
import { counted } from "../shared/format";
import type { Hierarchy } from "../shared/hierarchy";

const MOST = 5;
const LONG = 160; // characters, beyond which what a warning lists is folded up
const DANGER = "do not load it"; // as the readers end a warning of code that may do anything

const isDangerous = (warning: string) => warning.includes(DANGER);

export class FileNotice {
  constructor(
    private readonly host: HTMLElement,
    h: Hierarchy
  ) {
    const given = h.payload.file?.warnings ?? [];
    const warnings = [...given.filter(isDangerous), ...given.filter(each => !isDangerous(each))];
    host.classList.add("mkg-file-notice");
    host.hidden = warnings.length === 0;
    if (warnings.length === 0) return;
    const isDanger = isDangerous(warnings[0]);
    host.classList.toggle("mkg-is-danger", isDanger);
    host.setAttribute("role", isDanger ? "alert" : "note");
    const text = el("div", "mkg-trace-error-text");
    for (const warning of warnings.slice(0, MOST)) text.append(lineOf(warning));
    if (warnings.length > MOST)
      text.append(el("span", "mkg-dim", `and ${counted(warnings.length - MOST, "other warning")}`));
    host.append(el("span", "mkg-row-mark", isDanger ? "!" : "i"), text);
  }

  dispose(): void {
    this.host.replaceChildren();
  }
}

/** A warning as a line; of a long one what it lists is folded up, unless it is what makes it dangerous. */
function lineOf(warning: string): HTMLElement {
  const parts = /^(.*?): (.*?)(?:\. ([A-Z][^.]*))?$/s.exec(warning);
  if (warning.length <= LONG || isDangerous(warning) || !parts) return nameSpan("", sentence(warning));
  const [, claim, listed, advice = ""] = parts;
  const line = el("details", "mkg-file-warning");
  const summary = el("summary");
  summary.append(nameSpan("", sentence(advice === "" ? claim : `${claim}. ${advice}`)));
  const inside = el("div", "mkg-file-warned");
  inside.append(nameSpan("", listed));
  line.append(summary, inside);
  return line;
}

/** With a capital where it begins with a word; code stays as it is written. */
function sentence(text: string): string {
  return /^[a-z]+(?=[ ,]|$)/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}
