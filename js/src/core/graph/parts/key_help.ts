// The keys and gestures of a graph, and what its badges mean, in a box over it.

import "../../../../style/key_help.css";
import { button, Disposers, el, listen, setRole, iconButton } from "../../shared/ui/dom";
import { BLOCK, NOTE } from "../../shared/model/hierarchy";
import * as words from "../../words/graph";

const BADGES: readonly (readonly [string, string])[] = [
  ["×2", words.BADGE_FOLD],
  ["≈ ×2", words.BADGE_FAMILY],
  [BLOCK, words.BADGE_BLOCK],
  [NOTE, words.BADGE_NOTE],
  [words.TIED, words.BADGE_TIED]
];

export class KeyHelp {
  private readonly box = el("div", "mkg-key-help");
  private readonly close = iconButton("mkg-icon-button mkg-close", "close", words.CLOSE);
  private readonly disposers = new Disposers();
  private before: Element | null = null; // what had the focus

  constructor(private readonly host: HTMLElement) {
    this.box.hidden = true;
  }

  /** When it is first asked for. */
  private build(): void {
    setRole(this.box, "dialog", words.HELP);
    this.box.setAttribute("aria-modal", "true");
    const head = el("div", "mkg-key-help-head");
    head.append(el("strong", "", words.HELP), this.close);
    this.box.append(head, listOf(words.GESTURES, "kbd"), el("strong", "", words.BADGES), listOf(BADGES, "span"));
    this.host.append(this.box);
    this.disposers.add(
      listen(this.close, "click", () => this.hide()),
      listen(this.box, "keydown", event => this.key(event))
    );
  }

  dispose(): void {
    this.disposers.dispose();
    this.box.remove();
  }

  toggle(): void {
    if (!this.box.hidden) return this.hide();
    if (this.box.childElementCount === 0) this.build();
    this.before = document.activeElement;
    this.box.hidden = false;
    this.close.focus();
  }

  private hide(): void {
    this.box.hidden = true;
    if (this.before instanceof HTMLElement) this.before.focus({ preventScroll: true });
  }

  /** The close button is all that takes the focus. */
  private key(event: KeyboardEvent): void {
    event.stopPropagation();
    if (event.key === "Escape" || event.key === "?") this.hide();
    else if (event.key !== "Tab") return;
    event.preventDefault();
  }
}

function listOf(rows: readonly (readonly [string, string])[], tag: "kbd" | "span"): HTMLElement {
  const list = el("dl", "mkg-key-list");
  for (const [keys, what] of rows) {
    const term = el("dt");
    term.append(el(tag, tag === "span" ? "mkg-row-count" : "", keys));
    list.append(term, el("dd", "", what));
  }
  return list;
}

/** The button that opens it. */
export function helpButton(): HTMLButtonElement {
  const element = button("mkg-button mkg-help", "?", `${words.HELP} (?)`);
  element.setAttribute("aria-label", words.HELP);
  element.setAttribute("aria-keyshortcuts", "?");
  return element;
}
