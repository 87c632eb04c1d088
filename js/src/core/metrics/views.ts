// The three views of a metric panel (lines, heat map, histograms): drawing, and saving as a table or picture.

import { el } from "../shared/ui/dom";
import { metricOf, runName, type SelectedSeries } from "./data/selection";
import { type ColorRamp, histogramsToCsv, type LegendEntry, linesToCsv, type Named } from "./downloads";
import { Heatmap } from "./heat/heatmap";
import { Histograms } from "./histograms";
import { LineChart } from "./lines/line_chart";
import { HeatLegend, LineLegend } from "./legends";
import {
  type Rendered,
  heatPicture,
  pointCount,
  histogramPicture,
  linePicture,
  type Source,
  widened
} from "./pictures";
import { readingsAt } from "./lines/chart_picture";
import { stepText, valueText } from "./base/value_axis";
import type { PanelView } from "./base/state";

export interface Outcome {
  readonly remarks: readonly string[];
  readonly held: number;
  readonly last: number | null; // the last drawn value of the first drawn series
  readonly isEmpty: boolean;
  readonly colors: ReadonlyMap<string, string>; // of the drawn modules
  readonly modules: ReadonlySet<string>; // the drawn ones
  readonly isLog: boolean;
  readonly label: string; // what is drawn, in words
}

export interface View {
  readonly kind: PanelView;
  readonly canvas: HTMLCanvasElement | null;
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
}

export function createView(kind: PanelView, places: ViewElements, source: Pick<Source, "store">): View {
  if (kind === "heatmap") return new HeatView(places, source);
  return kind === "histogram" ? new HistogramView(places, source) : new LineView(places, source);
}

const HELP = "Arrow keys read values, plus and minus zoom, Escape shows all.";
const HEAT_HELP = "Arrow keys read cells, Enter selects the module.";
const SAID = 4; // values that are read out

class LineView implements View {
  readonly kind = "lines";
  private readonly chart: LineChart;
  private readonly lines: LineLegend;
  private drawn?: ReturnType<typeof linePicture>;

  constructor(
    private readonly places: ViewElements,
    private readonly source: Pick<Source, "store">
  ) {
    const { store } = source;
    this.chart = new LineChart(places.chart, {
      zoom: span => store.set("zoom", span),
      hover: step => this.follow(step),
      pick: module => store.set("selected", module)
    });
    this.lines = new LineLegend(places.legend, store);
  }

  get canvas(): HTMLCanvasElement | null {
    return this.chart.canvas;
  }

  draw(source: Source): Outcome {
    const drawn = linePicture(source);
    this.drawn = drawn;
    const { lines, span } = drawn.picture;
    this.chart.draw({ ...drawn.picture, span: widened(span) });
    this.lines.draw(lines, drawn.words);
    const [first] = lines;
    const last = first && first.range.end > first.range.start ? first.data.values[first.range.end - 1] : null;
    const colors = new Map(lines.map(({ module, color }) => [module, color]));
    const label = `Line chart of ${metricOf(source.data, source.store)}, ${lines.length} lines. ${HELP}`;
    return { ...outcome(drawn), isLog: drawn.picture.axis.log, last, colors, label };
  }

  points({ data }: Source): number {
    return pointCount(data, this.drawn?.shown ?? []);
  }

  point(series: number | null): void {
    this.chart.point(series);
  }

  csv(source: Source): string {
    const lines = this.drawn?.picture.lines ?? [];
    const who = this.drawn?.shown ?? [];
    return linesToCsv(lines.map(({ data, range }, i) => named(source, who[i], { data, range })));
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
    this.source.store.set("pointed", null);
  }

  private follow(step: number | null): void {
    this.lines.follow(step);
    const hasFocus = this.places.chart === document.activeElement;
    const lines = this.drawn?.picture.lines ?? [];
    if (step === null || !hasFocus) return;
    const values = readingsAt(lines.slice(0, SAID), step).map(({ line, value }) => `${line.label} ${valueText(value)}`);
    this.places.say(`step ${stepText(step)}: ${values.join(", ")}`);
  }
}

class HeatView implements View {
  readonly kind = "heatmap";
  private readonly map: Heatmap;
  private readonly colors: HeatLegend;
  private drawn?: ReturnType<typeof heatPicture>;

  constructor(places: ViewElements, { store }: Pick<Source, "store">) {
    this.map = new Heatmap(places.chart, {
      pick: module => store.set("selected", module),
      say: text => places.say(text)
    });
    this.colors = new HeatLegend(places.legend, store);
  }

  get canvas(): HTMLCanvasElement {
    return this.map.bitmap;
  }

  draw(source: Source): Outcome {
    const drawn = heatPicture(source);
    this.drawn = drawn;
    const { rows, scale } = drawn.picture;
    this.map.draw(drawn.picture);
    this.colors.draw(drawn.picture);
    const [first] = rows;
    const last = first && first.range.end > first.range.start ? first.data.values[first.range.end - 1] : null;
    const label = `Heat map of ${metricOf(source.data, source.store)}, ${rows.length} rows, ${scale.words}. ${HEAT_HELP}`;
    return { ...outcome(drawn), isLog: scale.log, last, colors: new Map(), label };
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
      ? ["row’s least", "row’s greatest"]
      : [valueText(scale.least), valueText(scale.greatest)];
    return { low, high, note: scale.words };
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

  constructor(places: ViewElements, { store }: Pick<Source, "store">) {
    this.histograms = new Histograms(places.chart, store);
    places.legend.append(this.note);
    places.legend.classList.add("mkg-metric-legend", "mkg-metric-plain-legend");
  }

  get canvas(): HTMLCanvasElement {
    return this.histograms.bitmap;
  }

  draw(source: Source): Outcome {
    const drawn = histogramPicture(source);
    this.drawn = drawn;
    this.histograms.draw(drawn.picture);
    const heights = drawn.picture.log ? "logarithms of counts" : "counts";
    const why = drawn.words ? ` ${drawn.words}, by how wide they are.` : "";
    this.note.textContent = `Heights are ${heights}; each histogram is as high as its highest bar.${why}`;
    const label = `Histograms of ${metricOf(source.data, source.store)}`;
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

function outcome<P>({
  remarks,
  held,
  isEmpty,
  shown
}: Rendered<P>): Pick<Outcome, "remarks" | "held" | "isEmpty" | "modules"> {
  return { remarks, held, isEmpty, modules: new Set(shown.map(({ entry }) => entry.module)) };
}

function named<T extends object>({ runs }: Source, { entry }: SelectedSeries, rest: T): T & Named {
  return { entry, run: runName(runs, entry.run), ...rest };
}
