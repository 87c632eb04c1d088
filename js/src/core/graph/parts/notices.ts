// Notices above the canvas: a forward pass that failed, warnings of a file, too many nodes to open a group.

import * as words from "../../words/graph";
import { button, Disposers, el, listen, nameSpan, Part, setRole, iconButton } from "../../shared/ui/dom";
import type { Hierarchy } from "../../shared/model/hierarchy";
import { collapseOthers, toggle } from "../../shared/model/expansion";
import type { GraphStore } from "../../shared/model/graph_store";

// Says above the canvas what is to be known of a file before it is loaded.

const MAX_WARNINGS = 5;
const LONG = 160; // characters, beyond which what a warning lists is folded up

const isDangerous = (warning: string) => warning.includes(words.DANGER);

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
    for (const warning of warnings.slice(0, MAX_WARNINGS)) text.append(lineOf(warning));
    if (warnings.length > MAX_WARNINGS)
      text.append(el("span", "mkg-dim", words.otherWarnings(warnings.length - MAX_WARNINGS)));
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

// What helps when a group cannot be opened because too much would be shown.

export class TooManyNodesNotice {
  private readonly bar = el("div", "mkg-offer");
  private readonly disposers = new Disposers();
  private node = 0;

  constructor(host: HTMLElement, h: Hierarchy, store: GraphStore) {
    const fold = button("mkg-button mkg-offer-fold", words.FOLD_OTHERS);
    const focus = button("mkg-button mkg-offer-focus", words.FOCUS_HERE);
    this.bar.hidden = true;
    setRole(this.bar, "group", words.TOO_MANY);
    this.bar.append(el("span", "", words.TOO_MANY_HERE), fold, focus);
    host.append(this.bar);
    this.disposers.add(
      listen(fold, "click", () => {
        collapseOthers(h, store, this.node);
        toggle(h, store, this.node);
        this.done(store);
      }),
      listen(focus, "click", () => {
        store.set("focus", this.node);
        this.done(store);
      })
    );
  }

  show(node: number): void {
    this.node = node;
    this.bar.hidden = false;
  }

  hide(): void {
    this.bar.hidden = true;
  }

  dispose(): void {
    this.disposers.dispose();
    this.bar.remove();
  }

  private done(store: GraphStore): void {
    this.hide();
    store.set("notice", "");
  }
}

export class TraceNotice extends Part {
  constructor(host: HTMLElement, h: Hierarchy) {
    super(host);
    const { error, traced } = h.payload;
    host.classList.add("mkg-trace-error");
    host.hidden = error === null;
    if (error === null) return;
    host.setAttribute("role", "alert");
    const close = iconButton("mkg-icon-button mkg-close", "close", words.DISMISS);
    const text = el("div", "mkg-trace-error-text");
    text.append(el("strong", "", traced ? words.STOPPED : words.FAILED), nameSpan("mkg-trace-error-reason", error));
    host.append(text, close);
    this.disposers.add(listen(close, "click", () => void (host.hidden = true)));
  }
}
