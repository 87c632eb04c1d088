// Legends of heat maps and lines.

import { NOT_FINITE_COLOR, sample } from "../shared/stage/color";
import {
  Disposers,
  el,
  listen,
  option,
  svg,
  button,
  setAttribute,
  keyLine,
  nameParts,
  setRole,
  setText
} from "../shared/ui/dom";
import { ABOVE, BELOW, type HeatPicture } from "./heat/heat_layout";
import { valueText, stepText } from "./base/value_axis";
import * as words from "../words/metrics";
import type { ColorRule, PanelStore } from "./base/state";
import { type ChartLine, readingAt } from "./lines/chart_picture";

const RAMP_STEPS = 48;
const RULES: readonly [ColorRule, string][] = [
  ["robust", words.WITHOUT_OUTLIERS],
  ["full", words.ALL_VALUES],
  ["row", words.PER_ROW]
];

export class HeatLegend {
  private readonly disposers = new Disposers();
  private readonly rule = el("select", "mkg-metric-colors");
  private readonly low = el("span", "mkg-legend-end");
  private readonly high = el("span", "mkg-legend-end");
  private readonly words = el("span", "mkg-legend-note mkg-metric-legend-words");
  private readonly lower = cap("M6 0 6 10 0 5Z", sample(0));
  private readonly upper = cap("M0 0 0 10 6 5Z", sample(1));
  private readonly ramp = el("span", "mkg-legend-ramp");
  private readonly broken = key(swatch(NOT_FINITE_COLOR), words.NAN_KEY);
  private readonly empty = key(swatch("transparent"), words.NO_VALUE);
  private readonly above = key(el("span", "mkg-metric-beyond", "▲"), words.ABOVE_KEY);
  private readonly below = key(el("span", "mkg-metric-beyond", "▼"), words.BELOW_KEY);
  private readonly named = key(el("b", "", words.NAME_KEY), words.UNUSUAL_KEY);

  constructor(
    host: HTMLElement,
    private readonly store: PanelStore
  ) {
    host.classList.add("mkg-metric-legend", "mkg-metric-heat-legend");
    setRole(host, "group", words.COLOR_LEGEND);
    this.rule.append(...RULES.map(([value, text]) => option(value, text)));
    this.rule.setAttribute("aria-label", words.COLORS);
    this.ramp.append(rampPicture());
    const scale = el("span", "mkg-metric-scale");
    scale.append(this.low, this.lower, this.ramp, this.upper, this.high);
    host.append(this.rule, scale, this.words, this.above, this.below, this.broken, this.empty, this.named);
    this.disposers.add(
      listen(this.rule, "change", () => store.set("colors", this.rule.value as ColorRule)),
      () => host.replaceChildren()
    );
  }

  dispose(): void {
    this.disposers.dispose();
  }

  draw({ scale, named, theme }: HeatPicture): void {
    const { least, greatest, text, beyond, byRow, broken } = scale;
    const isKnown = least <= greatest;
    const has = (flag: number) => beyond.some(flags => (flags & flag) !== 0);
    setText(this.low, !isKnown ? "–" : byRow ? words.ROW_LOW : valueText(least));
    setText(this.high, !isKnown ? "–" : byRow ? words.ROW_HIGH : valueText(greatest));
    setText(this.words, text);
    this.rule.value = this.store.get("colors");
    this.above.hidden = !has(ABOVE);
    this.below.hidden = !has(BELOW);
    this.upper.toggleAttribute("hidden", this.above.hidden);
    this.lower.toggleAttribute("hidden", this.below.hidden);
    this.broken.hidden = broken === 0;
    this.named.hidden = named.size === 0;
    this.empty.querySelector<HTMLElement>(".mkg-metric-swatch")?.style.setProperty("background-color", theme.empty);
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

/** The tip of the scale: values lie beyond it. */
function cap(d: string, color: string): SVGSVGElement {
  const picture = svg("svg", {
    viewBox: "0 0 6 10",
    width: 6,
    height: 10,
    class: "mkg-metric-cap",
    "aria-hidden": "true"
  });
  picture.append(svg("path", { d, fill: color }));
  return picture;
}

function swatch(color: string): HTMLElement {
  const element = el("span", "mkg-metric-swatch");
  element.style.backgroundColor = color;
  return element;
}

function key(sign: HTMLElement, text: string): HTMLElement {
  const line = el("span", "mkg-legend-key");
  sign.setAttribute("aria-hidden", "true");
  line.append(sign, el("span", "", text));
  return line;
}

// The legend of lines: their strokes, names and values, and why they are drawn.

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
    setRole(host, "group", words.LEGEND);
    host.append(this.head, this.list);
    const leave = () => store.set("pointed", null);
    this.disposers.add(listen(host, "mouseleave", leave), listen(host, "focusout", leave), () =>
      host.replaceChildren()
    );
  }

  dispose(): void {
    this.disposers.dispose();
  }

  /** `text` says why these lines and no others. */
  draw(lines: readonly ChartLine[], text: string): void {
    this.lines = lines;
    setText(this.head, text);
    this.head.hidden = text === "";
    const built = JSON.stringify(
      lines.map(({ label, color, dash, isSelected, reason }) => [label, color, dash, isSelected, reason])
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
      const { isSelected } = line;
      const reason = line.reason ? [el("span", "mkg-metric-legend-reason", `(${line.reason})`)] : [];
      element.append(keyLine(line.color, line.dash, isSelected), ...nameParts(line), ...reason, value);
      element.title = [words.pick(line.names.join("\n")), line.reason].filter(Boolean).join("\n");
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
      setText(value, text);
      const at = reading ? reading.step : last < 0 ? Number.NaN : data.steps[last];
      value.title = words.atStep(stepText(at));
    });
  }
}
