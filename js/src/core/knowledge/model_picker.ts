// A list of models to choose one from, by typing, arrow keys or a click: those most like a given one first.

import { el, listen, nameSpan, setAttribute } from "../shared/dom";
import { oneLine } from "../shared/canvas";
import { highlight } from "../shared/search";
import type { Knowledge } from "./data";

const MOST = 100; // rows; a list of more is narrowed by typing
let created = 0;

export interface PickerEvents {
  choose(model: number): void;
  cancel(): void;
}

export class ModelPicker {
  readonly element = el("div", "mkg-kg-picker");
  private readonly input = el("input");
  private readonly list = el("div", "mkg-kg-picker-list");
  private readonly note = el("p", "mkg-dim");
  private readonly others: readonly number[];
  private shown: readonly number[] = [];
  private at = 0;

  constructor(
    private readonly data: Knowledge,
    model: number,
    private readonly events: PickerEvents
  ) {
    const { input, list, element } = this;
    const others = Array.from({ length: data.modelCount }, (_, i) => i).filter(i => i !== model);
    this.others = others.sort((a, b) => data.overlap(model, b) - data.overlap(model, a) || a - b);
    list.id = `mkg-kg-picker-${++created}`;
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Models, those with most in common first");
    input.type = "text";
    input.placeholder = "Name of a model";
    input.spellcheck = false;
    input.autocomplete = "off";
    for (const [name, value] of Object.entries({
      role: "combobox",
      "aria-label": "Model to compare with",
      "aria-expanded": "true",
      "aria-autocomplete": "list",
      "aria-controls": list.id
    }))
      input.setAttribute(name, value);
    this.note.setAttribute("role", "status");
    element.append(input, list, this.note);
    // they go with the elements that they listen to
    listen(input, "input", () => this.draw());
    listen(input, "keydown", event => this.key(event));
    listen(list, "mousedown", event => event.preventDefault()); // the field keeps the focus
    listen(list, "click", event => this.clicked(event));
    this.draw();
  }

  focus(): void {
    this.input.focus({ preventScroll: true });
  }

  private draw(): void {
    const { name } = this.data.payload.models;
    const needles = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.others.filter(model => needles.every(needle => name[model].toLowerCase().includes(needle)));
    const typed = this.input.value.trim().toLowerCase();
    const nearness = (model: number) => {
      const own = name[model].toLowerCase();
      return typed === "" ? 0 : own === typed ? 2 : Number(own.startsWith(typed));
    };
    this.shown = found.sort((a, b) => nearness(b) - nearness(a)).slice(0, MOST); // else those with most in common
    this.at = 0;
    this.list.replaceChildren(...this.shown.map((model, i) => this.row(name[model], i, needles)));
    this.list.hidden = this.shown.length === 0;
    this.note.textContent =
      found.length === 0 ? "No other model is called so." : found.length > MOST ? "Type to narrow the list." : "";
    this.mark();
  }

  private row(name: string, i: number, needles: readonly string[]): HTMLElement {
    const row = el("div", "mkg-kg-picker-row");
    row.id = `${this.list.id}-${i}`;
    row.setAttribute("role", "option");
    row.dataset.mkgPick = String(i);
    const text = nameSpan("", "");
    highlight(oneLine(name), needles).forEach((part, k) => {
      if (part) text.append(k % 2 ? el("mark", "mkg-hit", part) : part);
    });
    row.append(text);
    return row;
  }

  private mark(): void {
    const rows = Array.from(this.list.children) as HTMLElement[];
    rows.forEach((row, i) => setAttribute(row, "aria-selected", String(i === this.at)));
    const row = rows[this.at] as HTMLElement | undefined;
    setAttribute(this.input, "aria-activedescendant", row?.id ?? null);
    if (!row) return;
    const [top, bottom] = [row.offsetTop, row.offsetTop + row.offsetHeight];
    if (top < this.list.scrollTop) this.list.scrollTop = top;
    else if (bottom > this.list.scrollTop + this.list.clientHeight)
      this.list.scrollTop = bottom - this.list.clientHeight;
  }

  private clicked(event: MouseEvent): void {
    const row = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-mkg-pick]") : null;
    if (row) this.choose(Number(row.dataset.mkgPick));
  }

  private choose(i: number): void {
    const model = this.shown[i] as number | undefined;
    if (model !== undefined) this.events.choose(model);
  }

  private key(event: KeyboardEvent): void {
    if (event.isComposing) return;
    event.stopPropagation(); // letters are text here, not shortcuts of the widget
    const last = this.shown.length - 1;
    const steps: Record<string, number> = { ArrowDown: Math.min(last, this.at + 1), ArrowUp: Math.max(0, this.at - 1) };
    if (event.key in steps) {
      this.at = steps[event.key];
      this.mark();
    } else if (event.key === "Enter") this.choose(this.at);
    else if (event.key === "Escape") this.events.cancel();
    else return;
    event.preventDefault();
  }
}
