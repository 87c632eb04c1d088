// The box beside the pointer: what a cell is.

import { el } from "../../shared/ui/dom";

const GAP = 14;

export class CellTooltip {
  private readonly box = el("div", "mkg-mask-tip");

  constructor(private readonly host: HTMLElement) {
    this.box.setAttribute("aria-hidden", "true"); // the strip says the same to those who do not see it
    this.box.hidden = true;
    host.append(this.box);
  }

  /** At a place in the window, on the side where there is room. */
  show(clientX: number, clientY: number, text: string): void {
    if (this.box.textContent !== text) this.box.textContent = text;
    this.box.style.maxWidth = "";
    this.place(clientX, clientY);
  }

  private place(clientX: number, clientY: number): void {
    this.box.hidden = false;
    const { left, top, width, height } = this.host.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.box;
    const [x, y] = [clientX - left, clientY - top];
    const across = x + GAP + offsetWidth <= width ? x + GAP : Math.max(0, x - GAP - offsetWidth);
    const down = y + GAP + offsetHeight <= height ? y + GAP : Math.max(0, y - GAP - offsetHeight);
    this.box.style.transform = `translate(${Math.round(across)}px, ${Math.round(down)}px)`;
  }

  /** Below a control, whatever else stands beside it. */
  showBelow(control: Element, text: string): void {
    const { left, bottom, width } = control.getBoundingClientRect();
    if (this.box.textContent !== text) this.box.textContent = text;
    this.box.style.maxWidth = `${width - 16}px`; // without its padding
    this.place(left - GAP, bottom - GAP + 2);
  }

  hide(): void {
    this.box.hidden = true;
  }

  dispose(): void {
    this.box.remove();
  }
}
