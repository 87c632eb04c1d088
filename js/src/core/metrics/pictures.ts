// The pictures of a panel as plain data, from the series and what is chosen, with remarks.

import { counted, exactNumber } from "../shared/base/format";
import type { ChartLine, ChartPicture } from "./lines/chart_picture";
import {
  chosenModules,
  heatRows,
  isLogarithmic,
  metricOf,
  MAX_LINES,
  runName,
  type SelectedSeries,
  selectedSeries,
  topDeviating
} from "./data/selection";
import { type HeatScale, type HeatLine, type HeatPicture, heatScale } from "./heat/heat_layout";
import { type HistogramCell, type HistogramPicture, MAX_CELLS } from "./histograms";
import { emptyExtent, measure, type Range, rangeOf, type ValueRange } from "./data/polyline";
import { type MetricData, MAX_SERIES, alertMessage } from "./data/metric_data";
import { type ChartTheme, type ColorBook, runDash } from "./base/chart_theme";
import { valueAxis } from "./base/value_axis";
import type { PanelStore, Span } from "./base/state";

/** What all pictures are made from. */
export interface Source {
  readonly data: MetricData;
  readonly store: PanelStore;
  readonly runs: readonly string[];
  readonly colors: ColorBook;
  readonly theme: ChartTheme;
  /** The last step of each run that may be drawn: those after a pause wait. */
  until(run: number): number;
}

export interface Rendered<P> {
  readonly picture: P;
  readonly shown: readonly SelectedSeries[];
  readonly remarks: readonly string[];
  readonly held: number; // points of the drawn series
  readonly isEmpty: boolean; // nothing of it can be drawn
  readonly words: string; // why these series and no others; "" where all are drawn, or those that were chosen by hand
}

const WIDTH = 1.7;
const WIDTH_SELECTED = 2.6;
const EVAL_WIDTH = 1.3;

export function linePicture(source: Source): Rendered<ChartPicture> {
  const { data, store, runs, theme } = source;
  const wanted = selectedSeries(data, store, runs).filter(({ series }) => data.line(series)?.length);
  const { shown, remarks } = fitting(source, wanted, MAX_LINES, "line");
  const { reasons, words, told } = chosenModules(data, store);
  const span = spanOf(source, shown);
  const log = isLogarithmic(data, store);
  const extent = emptyExtent();
  const slots = source.colors.slotsOf(shown.map(({ entry }) => `${entry.module}\n${entry.call}`));
  const lines = shown.map((one, i) => {
    const reason = reasons.get(one.entry.module) ?? "";
    return { ...chartLine(source, one, slots[i], { span, log, extent }), reason };
  });
  const axis = valueAxis(extent.least, extent.greatest, log);
  const marks = lineMarks(source, shown);
  return {
    picture: { lines, span, axis, marks, theme },
    shown,
    words: told && `${words} (in brackets ${told})`,
    remarks: [...remarks, ...extentRemarks(extent), ...fullRemark(data)],
    held: pointCount(data, shown),
    isEmpty: !lines.some(({ range }) => range.end > range.start) && store.get("zoom") === null
  };
}

/** As many of the series as can be drawn, and what is to say where these are not all. */
function fitting(
  { data, store }: Source,
  wanted: readonly SelectedSeries[],
  most: number,
  noun: string
): { shown: readonly SelectedSeries[]; remarks: string[] } {
  if (wanted.length <= most) return { shown: wanted, remarks: [] };
  const modules = [...new Set(wanted.map(({ entry }) => entry.module))];
  const each = Math.ceil(wanted.length / modules.length);
  const drawn = new Set(topDeviating(data, store, modules, Math.max(1, Math.floor(most / each))).modules);
  const shown = wanted.filter(({ entry }) => drawn.has(entry.module)).slice(0, most);
  const others = noun === "line" ? " The heat map shows all." : "";
  const text = `${shown.length} of ${counted(wanted.length, noun)} that are ticked are drawn: of those that differ most from the median.${others}`;
  return { shown, remarks: [text] };
}

/** Alerts of the metric, of the drawn modules, and of the whole model. */
function lineMarks({ data, store, until }: Source, shown: readonly SelectedSeries[]): ChartPicture["marks"] {
  const metric = metricOf(data, store);
  const modules = new Set(["", ...shown.map(({ entry }) => entry.module)]);
  return data.alerts
    .filter(alert => (alert.metric === metric || modules.has(alert.module)) && alert.step <= until(alert.run))
    .map(alert => ({ step: alert.step, text: alertMessage(alert) }));
}

function chartLine(
  source: Source,
  { series, entry, label, suffix }: SelectedSeries,
  slot: number,
  { span, log, extent }: { span: Span; log: boolean; extent: ValueRange }
): Omit<ChartLine, "reason"> {
  const { data, store, theme } = source;
  const line = data.line(series);
  if (!line) throw new Error("a series without points is not drawn");
  const range = clipped(source, entry.run, line, span);
  const before = extent.broken;
  measure(line.values, range, log, extent);
  const isEval = entry.phase === "eval" && store.get("phase") === "both";
  const isSelected = entry.module === store.get("selected");
  return {
    series,
    module: entry.module,
    label,
    suffix,
    data: line,
    range,
    color: theme.line(slot),
    dash: runDash(entry.run),
    width: isSelected ? WIDTH_SELECTED : isEval ? EVAL_WIDTH : WIDTH,
    hasDots: isEval,
    broken: extent.broken - before
  };
}

type Line = NonNullable<ReturnType<MetricData["line"]>>;

function clipped(source: Source, run: number, line: Line, [first, last]: Span): Range {
  return rangeOf(line, first, Math.min(last, source.until(run)));
}

/** The zoomed span, or the last steps of the window, or all steps that the series have. */
function spanOf(source: Source, shown: readonly SelectedSeries[]): Span {
  const { data, store } = source;
  const zoom = store.get("zoom");
  if (zoom) return zoom;
  let first = Infinity;
  let last = -Infinity;
  for (const { series, entry } of shown) {
    const line = data.line(series);
    if (!line?.length || line.steps[0] > source.until(entry.run)) continue;
    first = Math.min(first, line.steps[0]);
    last = Math.max(last, Math.min(line.lastStep, source.until(entry.run)));
  }
  if (!(first <= last)) return [0, 1];
  const window = store.get("window");
  if (window !== null) first = Math.max(first, last - window + 1);
  return [first, last];
}

/** A span that a chart can draw: one step alone has a place in the middle. */
export function widened([first, last]: Span): Span {
  return last > first ? [first, last] : [first - 1, last + 1];
}

function extentRemarks({ leftOut, broken }: ValueRange): string[] {
  const remarks = [];
  if (leftOut) {
    const [have, are] = leftOut === 1 ? ["has", "is"] : ["have", "are"];
    const place = `${have} no place on the logarithmic scale and ${are} left out.`;
    remarks.push(`${counted(leftOut, "value")} ≤ 0 ${place}`);
  }
  if (broken) {
    const marks = "a gap in the line, marked × (NaN), ∧ (∞) or ∨ (−∞) at the edge.";
    remarks.push(`${counted(broken, "value")} ${broken === 1 ? "is" : "are"} NaN or infinite: ${marks}`);
  }
  return remarks;
}

function fullRemark(data: MetricData): string[] {
  return data.isFull ? [`This panel holds at most ${exactNumber(MAX_SERIES)} series: further ones are left out.`] : [];
}

export function pointCount(data: MetricData, shown: readonly SelectedSeries[]): number {
  return shown.reduce((sum, { series }) => sum + (data.line(series)?.length ?? data.histogram(series)?.length ?? 0), 0);
}

export function heatPicture(source: Source): Rendered<HeatPicture> {
  const { data, store, runs, theme } = source;
  const shown = heatRows(data, store, runs).filter(({ series }) => data.line(series)?.length);
  const span = spanOf(source, shown);
  const rows: HeatLine[] = [];
  for (const { series, entry, label } of shown) {
    const line = data.line(series);
    if (!line) continue;
    const range = clipped(source, entry.run, line, span);
    rows.push({ module: entry.module, label, run: entry.run, data: line, range });
  }
  const scale = heatScale(rows, isLogarithmic(data, store), store.get("colors"));
  return {
    picture: {
      rows,
      headings: headingsOf(rows, runs),
      span,
      scale,
      selected: store.get("selected"),
      named: namedRows(source, rows),
      marks: heatMarks(source, rows),
      theme
    },
    shown,
    words: "",
    remarks: [...heatRemarks(scale), ...fullRemark(data)],
    held: pointCount(data, shown),
    isEmpty: !rows.some(({ range }) => range.end > range.start) && store.get("zoom") === null
  };
}

function heatRemarks({ broken, leftOut }: HeatScale): string[] {
  const remarks = [];
  const [is, has] = [
    (count: number) => (count === 1 ? "is" : "are"),
    (count: number) => (count === 1 ? "has" : "have")
  ];
  if (leftOut)
    remarks.push(
      `${counted(leftOut, "value")} < 0 ${has(leftOut)} no place on the logarithmic scale: the empty cells.`
    );
  if (broken) remarks.push(`${counted(broken, "value")} ${is(broken)} NaN or infinite: the pink cells.`);
  return remarks;
}

/** The modules whose names are to be read where not all have room: those that differ most. */
function namedRows({ data, store }: Source, rows: readonly HeatLine[]): ReadonlySet<string> {
  const { reasons } = topDeviating(data, store, [...new Set(rows.map(({ module }) => module))]);
  return new Set([...reasons.keys()].slice(0, -1)); // the last one is the one nearest to the median
}

function headingsOf(rows: readonly HeatLine[], runs: readonly string[]): Map<number, string> {
  const present = new Set(rows.map(({ run }) => run));
  return present.size > 1 ? new Map([...present].map(run => [run, runName(runs, run)])) : new Map();
}

function heatMarks(source: Source, rows: readonly HeatLine[]): HeatPicture["marks"] {
  const { data, store } = source;
  const metric = metricOf(data, store);
  const rowOf = new Map(rows.map(({ module, run }, row) => [`${run} ${module}`, row]));
  return data.alerts
    .filter(alert => alert.metric === metric && alert.step <= source.until(alert.run))
    .flatMap(alert => {
      const row = rowOf.get(`${alert.run} ${alert.module}`);
      return row === undefined ? [] : [{ row, step: alert.step, text: alertMessage(alert) }];
    });
}

export function histogramPicture(source: Source): Rendered<HistogramPicture> {
  const { data, store, runs, theme } = source;
  const window = store.get("window");
  const wanted = selectedSeries(data, store, runs).filter(({ series }) => data.histogram(series)?.length);
  const { shown, remarks } = fitting(source, wanted, MAX_CELLS, "histogram");
  const slots = source.colors.slotsOf(shown.map(({ entry }) => `${entry.module}\n${entry.call}`));
  const cells: HistogramCell[] = shown.flatMap(({ series, entry, label }, i) => {
    const histograms = data.histogram(series);
    if (!histograms) return [];
    const last = Math.min(source.until(entry.run), histograms.items[histograms.length - 1].step);
    const first = window === null ? -Infinity : last - window + 1;
    return [{ label, data: histograms, first, last, color: theme.line(slots[i]) }];
  });
  return {
    picture: { cells, log: isLogarithmic(data, store), theme },
    shown,
    words: chosenModules(data, store).words,
    remarks: [...remarks, ...fullRemark(data)],
    held: pointCount(data, shown),
    isEmpty: cells.length === 0
  };
}
