// The frozen axes in one line: how many there are, and how many for which reason. It opens on all of them.

import { button, Disposers, el, listen, nameSpan } from "../shared/dom";
import { exactNumber } from "../shared/format";
import type { PlanData } from "./plan_data";
import { axesText } from "./words";

const MOST_REASONS = 4;
let folds = 0;

export class FrozenFold {
  readonly heading = el("div", "mkg-mask-heading mkg-mask-fold");
  private readonly disposers = new Disposers();
  private readonly toggle = button("mkg-mask-fold-toggle", "");
  private isOpen = false; // by hand, or to show an axis
  private isSought = false; // a search has found some of them

  constructor(
    private readonly list: HTMLElement,
    data: PlanData,
    axes: readonly number[],
    private readonly changed: () => void
  ) {
    const counts = countsByReason(data, axes);
    this.heading.setAttribute("role", "heading");
    this.heading.setAttribute("aria-level", "3");
    list.id = `mkg-mask-frozen-${++folds}`;
    this.toggle.setAttribute("aria-controls", list.id);
    this.toggle.append(el("strong", "", `${axesText(axes.length).replace(" ", " frozen ")}:`), " ", reasons(counts));
    this.toggle.title = counts.map(([reason, count]) => `${exactNumber(count)} × ${reason}`).join("\n");
    this.heading.append(this.toggle);
    this.disposers.add(listen(this.toggle, "click", () => this.open(!this.isShown)));
    this.draw();
  }

  get isShown(): boolean {
    return this.isOpen || this.isSought;
  }

  dispose(): void {
    this.disposers.dispose();
  }

  open(isOpen: boolean): void {
    this.isOpen = isOpen;
    this.isSought = false;
    this.draw();
    this.changed();
  }

  /** While a search finds some of them, they are shown. */
  seek(isFound: boolean): void {
    this.isSought = isFound;
    this.draw();
  }

  private draw(): void {
    this.list.hidden = !this.isShown;
    this.toggle.setAttribute("aria-expanded", String(this.isShown));
  }
}

function reasons(counts: readonly (readonly [string, number])[]): HTMLElement {
  const line = el("span", "mkg-mask-fold-reasons");
  counts.slice(0, MOST_REASONS).forEach(([reason, count], at) => {
    line.append(at ? ", " : "", `${exactNumber(count)} × `, nameSpan("", reason));
  });
  const rest = counts.length - MOST_REASONS;
  if (rest > 0) line.append(`, ${exactNumber(rest)} more reasons`);
  return line;
}

/** The kinds of reasons, the most frequent first. */
export function countsByReason(data: PlanData, axes: readonly number[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const axis of axes) {
    const kind = kindOf(data.reason(axis) ?? "", data.axes.members[axis]);
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return [...counts].sort(([, a], [, b]) => b - a);
}

/** A reason without the place where it arises, which is behind a colon, and without the names of the axis' own tensors. */
function kindOf(reason: string, members: readonly (readonly [string, number])[]): string {
  const [kind] = reason.split(": ", 1);
  const names = [...new Set(members.map(([tensor]) => tensor))].sort((a, b) => b.length - a.length);
  return names.reduce((text, name) => (name ? text.replaceAll(name, "…") : text), kind);
}
