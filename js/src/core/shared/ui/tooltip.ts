// The box beside the pointer: a heading and lines of names and values.

import "../../../../style/tip.css";
import { el, keyLine, nameParts } from "./dom";

export interface TooltipRow {
  readonly name: string;
  readonly suffix?: string; // the end of the name, which is never cut off
  readonly value: string;
  readonly color?: string;
  readonly dash?: readonly number[];
  readonly isNearest?: boolean;
}

const GAP = 14;

export class Tooltip {
  private readonly box = el("div", "mkg-metric-tip");

  constructor(private readonly host: HTMLElement) {
    this.box.setAttribute("aria-hidden", "true"); // the legend says the same to those who do not see it
    this.box.hidden = true;
    host.append(this.box);
  }

  get isShown(): boolean {
    return !this.box.hidden;
  }

  /** At a place in the host, on the side where there is room. */
  show(
    x: number,
    y: number,
    heading: string | HTMLElement,
    rows: readonly TooltipRow[],
    notes: readonly string[] = []
  ): void {
    const head = el("div", "mkg-metric-tip-head");
    head.append(heading);
    this.box.replaceChildren(head, ...rows.map(tipRow));
    this.box.append(...notes.map(note => el("div", "mkg-metric-tip-note", note)));
    this.box.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const room = this.host.clientWidth;
    const left = x + GAP + width <= room ? x + GAP : Math.max(0, x - GAP - width);
    const top = Math.max(0, Math.min(y + GAP, this.host.clientHeight - height));
    this.box.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  hide(): void {
    this.box.hidden = true;
  }

  dispose(): void {
    this.box.remove();
  }
}

function tipRow({ name, suffix = "", value, color, dash, isNearest }: TooltipRow): HTMLElement {
  const row = el("div", "mkg-metric-tip-row");
  if (isNearest) row.classList.add("mkg-is-nearest");
  if (color) row.append(keyLine(color, dash ?? []));
  row.append(...nameParts({ label: name, suffix }), el("span", "mkg-metric-tip-value", value));
  return row;
}
