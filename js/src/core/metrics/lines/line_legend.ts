// The legend of lines: their strokes, names and values, and why they are drawn.

import { button, Disposers, el, listen, setAttribute } from "../../shared/ui/dom";
import { type ChartLine, readingAt } from "./chart_picture";
import { keyLine, nameParts } from "../../shared/ui/icons";
import { stepText, valueText } from "../base/value_axis";
import type { PanelStore } from "../base/state";

interface Item {
  readonly element: HTMLButtonElement;
  readonly value: HTMLElement;
}

export class LineLegend {
  private readonly disposers = new Disposers();
  private readonly head = el("div", "mkg-metric-legend-head");
  private readonly list = el("ul", "mkg-metric-legend-list");
  private items: Item[] = [];
  private lines: readonly ChartLine[] = [];
  private built = "";
  private step: number | null = null;

  constructor(
    host: HTMLElement,
    private readonly store: PanelStore
  ) {
    host.classList.add("mkg-metric-legend");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Lines and their values");
    host.append(this.head, this.list);
    const leave = () => store.set("pointed", null);
    this.disposers.add(listen(host, "mouseleave", leave), listen(host, "focusout", leave), () =>
      host.replaceChildren()
    );
  }

  dispose(): void {
    this.disposers.dispose();
  }

  /** `words` say why these lines and no others. */
  draw(lines: readonly ChartLine[], words: string): void {
    this.lines = lines;
    if (this.head.textContent !== words) this.head.textContent = words;
    this.head.hidden = words === "";
    const built = JSON.stringify(
      lines.map(({ label, color, dash, width, reason }) => [label, color, dash, width, reason])
    );
    if (built !== this.built) {
      this.built = built;
      this.build();
    }
    this.showValues();
  }

  /** The values at a step; without one the latest. */
  follow(step: number | null): void {
    if (step === this.step) return;
    this.step = step;
    this.showValues();
  }

  private build(): void {
    const { store } = this;
    this.items = this.lines.map(line => {
      const element = button("mkg-metric-legend-item", "");
      const value = el("span", "mkg-metric-legend-value");
      const isSelected = line.module === store.get("selected");
      const reason = line.reason ? [el("span", "mkg-metric-legend-reason", `(${line.reason})`)] : [];
      element.append(keyLine(line.color, line.dash, isSelected), ...nameParts(line), ...reason, value);
      element.title = [`${line.label}: click to select the module`, line.reason].filter(Boolean).join("\n");
      setAttribute(element, "aria-pressed", String(isSelected));
      const point = () => store.set("pointed", line.series);
      element.addEventListener("mouseenter", point);
      element.addEventListener("focus", point);
      element.addEventListener("click", () => store.set("selected", line.module));
      return { element, value };
    });
    this.list.replaceChildren(
      ...this.items.map(({ element }) => {
        const entry = el("li");
        entry.append(element);
        return entry;
      })
    );
  }

  private showValues(): void {
    this.items.forEach(({ value }, i) => {
      const line = this.lines[i];
      const { data, range } = line;
      const last = range.end > range.start ? range.end - 1 : -1;
      const reading = this.step === null ? null : readingAt(line, this.step);
      const shown = reading ? reading.value : last < 0 ? null : data.values[last];
      const text = shown === null ? "–" : valueText(shown);
      if (value.textContent !== text) value.textContent = text;
      const at = reading ? reading.step : last < 0 ? Number.NaN : data.steps[last];
      value.title = `at step ${stepText(at)}`;
    });
  }
}
