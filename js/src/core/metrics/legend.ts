// The legends: of lines their strokes, names and values; of a heat map its colors.

import { NOT_FINITE_COLOR, sample } from "../shared/color";
import { button, Disposers, el, listen, setAttribute, svg } from "../shared/dom";
import { type ChartLine, readingAt } from "./chart_picture";
import type { HeatScale } from "./heat_cells";
import { keyLine, nameParts } from "../shared/key_line";
import { stepText, valueText } from "./value_axis";
import type { PanelStore } from "./state";

const RAMP_STEPS = 48;

interface Item {
  readonly element: HTMLButtonElement;
  readonly value: HTMLElement;
}

export class LineLegend {
  private readonly disposers = new Disposers();
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
    host.append(this.list);
    const leave = () => store.set("pointed", null);
    this.disposers.add(listen(host, "mouseleave", leave), listen(host, "focusout", leave), () =>
      host.replaceChildren()
    );
  }

  dispose(): void {
    this.disposers.dispose();
  }

  draw(lines: readonly ChartLine[]): void {
    this.lines = lines;
    const built = JSON.stringify(lines.map(({ label, color, dash, width }) => [label, color, dash, width]));
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
      element.append(keyLine(line.color, line.dash, isSelected), ...nameParts(line), value);
      element.title = `${line.label}: click to select the module`;
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

/** The colors of a heat map with the ends of its scale. */
export class HeatLegend {
  private readonly low = el("span", "mkg-legend-end");
  private readonly high = el("span", "mkg-legend-end");
  private readonly note = el("span", "mkg-legend-note");
  private readonly ramp = el("span", "mkg-legend-ramp");
  private readonly keys = [key(NOT_FINITE_COLOR, "NaN or infinite"), key("transparent", "no value")];

  constructor(private readonly host: HTMLElement) {
    host.classList.add("mkg-metric-legend", "mkg-metric-heat-legend");
    host.setAttribute("role", "group");
    host.setAttribute("aria-label", "Color legend");
    this.ramp.append(rampPicture());
    host.append(this.low, this.ramp, this.high, this.note, ...this.keys);
  }

  dispose(): void {
    this.host.replaceChildren();
  }

  draw({ least, greatest, log }: HeatScale, hasBroken: boolean, empty: string): void {
    const isKnown = least <= greatest;
    this.low.textContent = isKnown ? valueText(least) : "–";
    this.high.textContent = isKnown ? valueText(greatest) : "–";
    this.note.textContent = log ? "logarithmic" : "linear";
    this.keys[0].hidden = !hasBroken;
    this.keys[1].querySelector<HTMLElement>(".mkg-metric-swatch")?.style.setProperty("background-color", empty);
  }
}

function rampPicture(): SVGElement {
  const picture = svg("svg", { viewBox: `0 0 ${RAMP_STEPS} 1`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (let step = 0; step < RAMP_STEPS; step += 1) {
    // each reaches to the end, under the next ones, or hairlines show between them
    const place = { x: step, y: 0, width: RAMP_STEPS - step, height: 1 };
    picture.append(svg("rect", { ...place, fill: sample(step / (RAMP_STEPS - 1)) }));
  }
  return picture;
}

function key(color: string, text: string): HTMLElement {
  const line = el("span", "mkg-legend-key");
  const swatch = el("span", "mkg-metric-swatch");
  swatch.style.backgroundColor = color;
  line.append(swatch, el("span", "", text));
  return line;
}
