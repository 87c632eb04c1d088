// The views of a metric panel (all metrics, lines, heat map, histograms): drawing, and saving as a table or picture.

import { type Picture, pictureOf } from "../shared/base/canvas";
import { box, el, keyLine, nameSpan } from "../shared/ui/dom";
import { hasLayers, metricOf, runName, type SelectedSeries } from "./data/selection";
import * as words from "../words/metrics";
import { type ColorRamp, histogramsToCsv, type LegendEntry, linesToCsv, type Named } from "./downloads";
import { Heatmap } from "./heat/heatmap";
import { Histograms } from "./histograms";
import { ChartGrid, pointsIn, shownIn } from "./grid/chart_grid";
import { LineChart } from "./lines/line_chart";
import { HeatLegend, LineLegend } from "./legends";
import {
  type Rendered,
  callCount,
  heatPicture,
  pointCount,
  histogramPicture,
  linePicture,
  type LinesRendered,
  type Source,
  widened
} from "./pictures";
import { type ChartLine, readingsAt } from "./lines/chart_picture";
import { runDash } from "./base/chart_theme";
import { stepText, valueText } from "./base/value_axis";
import type { PanelStore, PanelView } from "./base/state";

export interface Outcome {
  readonly remarks: readonly string[];
  readonly held: number;
  readonly last: number | null; // the last drawn value of the first drawn series
  readonly isEmpty: boolean;
  readonly colors: ReadonlyMap<string, string>; // of the drawn modules
  readonly modules: ReadonlySet<string>; // the drawn ones
  readonly calls: number; // of the drawn modules
  readonly isLog: boolean;
  readonly label: string; // what is drawn, in words
}

export interface View {
  readonly kind: PanelView;
  /** All that is drawn, also what is scrolled away. */
  picture(source: Source): Picture | null | Promise<Picture | null>;
  draw(source: Source): Outcome;
  /** Points held of the series drawn last. */
  points(source: Source): number;
  /** After a change of what is pointed at only. */
  point(series: number | null): void;
  csv(source: Source): string;
  legend(): readonly LegendEntry[];
  ramp(): ColorRamp | null;
  dispose(): void;
}

interface ViewElements {
  readonly chart: HTMLElement;
  readonly legend: HTMLElement;
  say(text: string): void; // to those who do not see the picture
  redraw(): void;
}

export function createView(kind: PanelView, places: ViewElements, store: PanelStore): View {
  if (kind === "heatmap") return new HeatView(places, store);
  if (kind === "histogram") return new HistogramView(places, store);
  return kind === "grid" ? new GridView(places, store) : new LineView(places, store);
}

const SAID = 4; // values that are read out

/** Reads out what the keyboard is on. */
function readOut(places: ViewElements, chart: HTMLElement, lines: readonly ChartLine[], step: number | null): void {
  if (step === null || chart !== document.activeElement) return;
  const values = readingsAt(lines.slice(0, SAID), step).map(({ line, value }) => `${line.label} ${valueText(value)}`);
  places.say(`${words.stepAt(stepText(step))}: ${values.join(", ")}`);
}

/** The last drawn value of a line. */
function lastValue(line?: Pick<ChartLine, "data" | "range">): number | null {
  return line && line.range.end > line.range.start ? line.data.values[line.range.end - 1] : null;
}

class GridView implements View {
  readonly kind = "grid";
  private readonly grid: ChartGrid;
  private drawn: readonly LinesRendered[] = [];

  private runs: readonly LegendEntry[] = [];

  constructor(
    private readonly places: ViewElements,
    private readonly store: PanelStore
  ) {
    this.grid = new ChartGrid(places.chart, store, {
      open: metric => {
        store.set("metric", metric);
        store.set("view", "lines");
      },
      follow: (chart, { picture }, step) => readOut(places, chart, picture.lines, step),
      seen: () => places.redraw()
    });
  }

  picture(source: Source): Promise<Picture | null> {
    return this.grid.picture(source);
  }

  draw(source: Source): Outcome {
    this.showRuns(source);
    const drawn = this.grid.draw(source);
    this.drawn = drawn;
    const shown = shownIn(drawn);
    const layered = shown.filter(({ entry }) => hasLayers(source.data, entry.metric));
    const rest = outcome({ shown: layered, remarks: [], held: pointsIn(source, drawn), isEmpty: shown.length === 0 });
    return {
      ...rest,
      isLog: drawn.length > 0 && drawn.every(({ picture }) => picture.axis.log),
      last: lastValue(drawn[0]?.picture.lines[0]),
      colors: moduleColors(drawn),
      label: words.chartsOf(drawn.length)
    };
  }

  points(source: Source): number {
    return pointsIn(source, this.drawn);
  }

  point(series: number | null): void {
    this.grid.point(series);
  }

  csv(source: Source): string {
    return linesToCsv(shownIn(this.grid.draw(source, true)).map(one => named(source, one, one)));
  }

  /** Names stand at the lines; those of runs below all. */
  private showRuns({ runs, theme }: Source): void {
    if (this.runs[0]?.color === theme.text) return;
    const { legend } = this.places;
    this.runs = runs.map((text, run) => ({ text, color: theme.text, dash: runDash(run) }));
    legend.hidden = runs.length < 2;
    legend.className = "mkg-metric-legend mkg-metric-plain-legend";
    legend.replaceChildren(
      ...this.runs.map(({ text, color, dash }) => {
        const key = box("mkg-legend-key", nameSpan("", text));
        key.prepend(keyLine(color, dash));
        return key;
      })
    );
  }

  legend(): readonly LegendEntry[] {
    return this.runs.length > 1 ? this.runs : [];
  }

  ramp(): null {
    return null;
  }

  dispose(): void {
    this.grid.dispose();
    this.store.set("pointed", null);
  }
}

/** The color of each module; of one that is on the line of another in some charts alone, that of its own line. */
function moduleColors(drawn: readonly LinesRendered[]): ReadonlyMap<string, string> {
  const byModule = drawn.filter(({ colors }) => colors.size > 0);
  const own = byModule.flatMap(({ picture }) => picture.lines.map(({ module, color }) => [module, color] as const));
  return new Map([...byModule.flatMap(({ colors }) => [...colors]), ...own]);
}

class LineView implements View {
  readonly kind = "lines";
  private readonly chart: LineChart;
  private readonly lines: LineLegend;
  private drawn?: ReturnType<typeof linePicture>;

  constructor(
    private readonly places: ViewElements,
    private readonly store: PanelStore
  ) {
    this.chart = new LineChart(places.chart, {
      zoom: span => store.set("zoom", span),
      hover: step => this.follow(step),
      pick: module => store.set("selected", module)
    });
    this.lines = new LineLegend(places.legend, store);
  }

  picture(): Picture | null {
    return pictureOf(this.chart.canvas);
  }

  draw(source: Source): Outcome {
    const drawn = linePicture(source);
    this.drawn = drawn;
    const { lines, span } = drawn.picture;
    this.chart.draw({ ...drawn.picture, span: widened(span) });
    this.lines.draw(lines, drawn.choice + drawn.comparedBy);
    const { axis } = drawn.picture;
    const label = words.lineChart(metricOf(source.data, source.store), lines.length);
    return { ...outcome(drawn), isLog: axis.log, last: lastValue(lines[0]), colors: drawn.colors, label };
  }

  points({ data }: Source): number {
    return pointCount(data, this.drawn?.shown ?? []);
  }

  point(series: number | null): void {
    this.chart.point(series);
  }

  csv(source: Source): string {
    return linesToCsv((this.drawn?.shown ?? []).map(one => named(source, one, one)));
  }

  legend(): readonly LegendEntry[] {
    const lines = this.drawn?.picture.lines ?? [];
    return lines.map(({ label, color, dash }) => ({ text: label, color, dash }));
  }

  ramp(): null {
    return null;
  }

  dispose(): void {
    this.chart.dispose();
    this.lines.dispose();
    this.store.set("pointed", null);
  }

  private follow(step: number | null): void {
    this.lines.follow(step);
    readOut(this.places, this.places.chart, this.drawn?.picture.lines ?? [], step);
  }
}

class HeatView implements View {
  readonly kind = "heatmap";
  private readonly map: Heatmap;
  private readonly colors: HeatLegend;
  private drawn?: ReturnType<typeof heatPicture>;

  constructor(places: ViewElements, store: PanelStore) {
    this.map = new Heatmap(places.chart, {
      pick: module => store.set("selected", module),
      say: text => places.say(text)
    });
    this.colors = new HeatLegend(places.legend, store);
  }

  picture(): Picture | null {
    return pictureOf(this.map.bitmap);
  }

  draw(source: Source): Outcome {
    const drawn = heatPicture(source);
    this.drawn = drawn;
    const { rows, scale } = drawn.picture;
    this.map.draw(drawn.picture);
    this.colors.draw(drawn.picture);
    const label = words.heatMap(metricOf(source.data, source.store), rows.length, scale.text);
    return { ...outcome(drawn), isLog: scale.log, last: lastValue(rows[0]), colors: new Map(), label };
  }

  points({ data }: Source): number {
    return pointCount(data, this.drawn?.shown ?? []);
  }

  point(): void {}

  csv(source: Source): string {
    const rows = this.drawn?.picture.rows ?? [];
    const who = this.drawn?.shown ?? [];
    return linesToCsv(rows.map(({ data, range }, i) => named(source, who[i], { data, range })));
  }

  legend(): readonly LegendEntry[] {
    return [];
  }

  ramp(): ColorRamp | null {
    const scale = this.drawn?.picture.scale;
    if (!scale || Number.isNaN(scale.least)) return null;
    const [low, high] = scale.byRow
      ? [words.ROW_LOW, words.ROW_HIGH]
      : [valueText(scale.least), valueText(scale.greatest)];
    return { low, high, note: scale.text };
  }

  dispose(): void {
    this.map.dispose();
    this.colors.dispose();
  }
}

class HistogramView implements View {
  readonly kind = "histogram";
  private readonly histograms: Histograms;
  private readonly note = el("span", "mkg-dim");
  private drawn?: ReturnType<typeof histogramPicture>;

  constructor(places: ViewElements, store: PanelStore) {
    this.histograms = new Histograms(places.chart, store);
    places.legend.append(this.note);
    places.legend.classList.add("mkg-metric-legend", "mkg-metric-plain-legend");
  }

  picture(): Picture | null {
    return pictureOf(this.histograms.bitmap);
  }

  draw(source: Source): Outcome {
    const drawn = histogramPicture(source);
    this.drawn = drawn;
    this.histograms.draw(drawn.picture);
    this.note.textContent = words.heights(drawn.picture.log, drawn.choice);
    const label = words.histogramsOf(metricOf(source.data, source.store));
    const colors = new Map(drawn.shown.map(({ entry }, i) => [entry.module, drawn.picture.cells[i].color]));
    return { ...outcome(drawn), isLog: drawn.picture.log, last: null, colors, label };
  }

  points({ data }: Source): number {
    return pointCount(data, this.drawn?.shown ?? []);
  }

  point(): void {}

  csv(source: Source): string {
    const who = this.drawn?.shown ?? [];
    const shown = this.histograms.shown();
    return histogramsToCsv(shown.map(({ items }, i) => named(source, who[i], { items })));
  }

  legend(): readonly LegendEntry[] {
    return [];
  }

  ramp(): null {
    return null;
  }

  dispose(): void {
    this.histograms.dispose();
  }
}

type Counted = Pick<Rendered<unknown>, "remarks" | "held" | "isEmpty" | "shown">;

function outcome({
  remarks,
  held,
  isEmpty,
  shown
}: Counted): Pick<Outcome, (keyof Counted & keyof Outcome) | "modules" | "calls"> {
  return { remarks, held, isEmpty, modules: new Set(shown.map(({ entry }) => entry.module)), calls: callCount(shown) };
}

function named<T extends object>({ runs }: Source, { entry }: SelectedSeries, rest: T): T & Named {
  return { ...rest, entry, run: runName(runs, entry.run) };
}
