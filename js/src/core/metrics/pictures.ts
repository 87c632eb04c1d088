// The pictures of a panel as plain data, from the series and what is chosen, with remarks.

import * as words from "../words/metrics";
import type { ChartLine, ChartPicture } from "./lines/chart_picture";
import {
  chosenModules,
  heatRows,
  isLogarithmic,
  metricOf,
  modulesOf,
  runName,
  type SelectedSeries,
  selectedSeries,
  topDeviating
} from "./data/selection";
import { type HeatScale, type HeatLine, type HeatPicture, heatScale } from "./heat/heat_layout";
import { type HistogramCell, type HistogramPicture, MAX_CELLS } from "./histograms";
import { emptyExtent, measure, type Range, rangeOf, type ValueRange } from "./data/polyline";
import { type MetricData, MAX_SERIES, alertMessage } from "./data/metric_data";
import { type ChartTheme, type ColorBook, COLORS, runDash, sharingGrey } from "./base/chart_theme";
import { valueAxis, valueText } from "./base/value_axis";
import { isLoss } from "./data/logged_losses";
import type { PanelReader, Span } from "./base/state";

/** What all pictures are made from. */
export interface Source {
  readonly data: MetricData;
  readonly store: PanelReader;
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
  readonly choice: string; // why these series and no others; "" where all are drawn, or those that were chosen by hand
}

const MANY = 96; // series that are compared with each other
const WIDTH = 1.7;
const WIDTH_SELECTED = 2.6;
const EVAL_WIDTH = 1.3;

/** A series as it is drawn, or as it is saved where its line stands for others as well. */
export interface Shown extends SelectedSeries {
  readonly data: Line;
  readonly range: Range;
}

export interface LinesRendered extends Rendered<ChartPicture> {
  readonly shown: readonly Shown[];
  readonly colors: ReadonlyMap<string, string>; // of the drawn modules
  readonly comparedBy: string; // what the reasons of the choice are, or ""
}

/** The series of a chart in groups of one line each, and what the lines have their colors by. */
export interface ChosenLines extends Fitting<SelectedSeries[][]> {
  readonly isAlone: boolean; // all are of one call of one module
  readonly colorsBy: "run" | "module" | "metric"; // what the colors tell apart
  readonly keys: readonly string[]; // of the colors
}

export function chosenLines(source: Source): ChosenLines {
  const { data, store, runs } = source;
  const wanted = selectedSeries(data, store, runs).filter(({ series }) => data.line(series)?.length);
  const fitting = fittingLines(source, wanted);
  const firsts = fitting.groups.map(([first]) => first);
  const runKeys = firsts.map(({ entry }) => `${entry.run} ${entry.phase}`);
  const isAlone = countOf(firsts.map(callOf)) === 1;
  const isByRun = isAlone && (firsts[0].entry.module === "" || countOf(runKeys) > 1);
  const colorsBy = isByRun ? "run" : firsts.some(({ logged }) => logged) ? "metric" : "module";
  return { ...fitting, isAlone, colorsBy, keys: isByRun ? runKeys : firsts.map(callOf) };
}

/** The chart of a metric; `slots` are those of its lines. */
export function linePicture(
  source: Source,
  lines: ChosenLines = chosenLines(source),
  slots = source.colors.slotsOf(
    lines.keys,
    metricOf(source.data, source.store) + (lines.colorsBy === "run" ? "\nruns" : "")
  )
): LinesRendered {
  const { data, store, theme } = source;
  const { groups, reasons, choice, remarks, isAlone, colorsBy, keys } = lines;
  const { hasFactors, hasAlerts } = chosenModules(data, store);
  const all = groups.flat();
  const span = spanOf(source, all);
  const log = isLogarithmic(data, store);
  const extent = emptyExtent();
  const colors = new Map<string, string>();
  const drawn = groups.map((group, i) => {
    const color = theme.line(slots[i]);
    for (const { entry } of colorsBy === "module" ? group : [])
      if (!colors.has(entry.module)) colors.set(entry.module, color);
    const reason = reasons.get(group[0].entry.module) ?? "";
    return { ...chartLine(source, group, { span, log, extent, isAlone }), color, reason };
  });
  const grey = sharingGrey(keys, slots);
  const rest = isLoss(metricOf(data, store)) ? restOf(extent) : 0;
  const axis = valueAxis(extent.least - rest, extent.greatest + rest, log);
  const marks = lineMarks(source, all);
  const shown = all.flatMap(one => {
    const line = data.line(one.series);
    return line ? [{ ...one, data: line, range: clipped(source, one.entry.run, line, span) }] : [];
  });
  return {
    picture: { lines: drawn, span, axis, marks, theme, message: messageOf(drawn) },
    shown,
    colors,
    choice,
    comparedBy: choice && words.comparedBy(hasFactors, hasAlerts),
    remarks: [...remarks, ...greyRemark(grey), ...extentRemarks(extent), ...fullRemark(data)],
    held: pointCount(data, all),
    isEmpty: !drawn.some(({ range }) => range.end > range.start) && store.get("zoom") === null
  };
}

const LEAST_CHANGE = 0.05; // of a loss: one that changes less is to look flat

/** What an axis has above and below a loss that hardly changes. */
const restOf = ({ least, greatest }: ValueRange): number =>
  Math.max(0, (LEAST_CHANGE * Math.abs(greatest) - (greatest - least)) / 2) || 0;

/** What has one color in all runs and phases; where it is alone, it has one in each. */
const callOf = ({ entry, logged }: SelectedSeries) => `${entry.module}\n${entry.call}${logged && `\n${logged}`}`;

const countOf = (keys: readonly string[]) => new Set(keys).size;
const modulesIn = (shown: readonly SelectedSeries[]) => [...new Set(shown.map(({ entry }) => entry.module))];

/** How many calls of modules there are: the series of one in several runs are one. */
export const callCount = (shown: readonly SelectedSeries[]) => countOf(shown.map(callOf));

interface Fitting<T> {
  readonly groups: T;
  readonly reasons: ReadonlyMap<string, string>;
  readonly choice: string; // the panel's, in words, or ""
  readonly remarks: string[]; // where not all can be drawn that are ticked
}

/** Series of the same values in one group; no more groups than there are colors, those of the most unusual modules. */
function fittingLines(source: Source, wanted: readonly SelectedSeries[]): Fitting<SelectedSeries[][]> {
  const { data, store } = source;
  let { reasons } = chosenModules(data, store);
  let groups = wanted.length > MANY ? null : joined(source, wanted);
  if (!groups || countOf(groups.map(([first]) => callOf(first))) > COLORS) {
    const fewer = mostUnusual(source, wanted, COLORS);
    ({ reasons } = fewer);
    groups = joined(source, fewer.shown);
    const keys = [...new Set(groups.map(([first]) => callOf(first)))].slice(0, COLORS);
    groups = groups.filter(([first]) => keys.includes(callOf(first)));
  }
  const shown = groups.flat();
  const choice = choiceText(source, shown);
  const isFewer = callCount(shown) < callCount(wanted);
  return {
    groups,
    reasons,
    choice,
    remarks:
      isFewer && !choice ? [words.someOf(callCount(shown), callCount(wanted), words.LINE) + words.SEE_HEAT_MAP] : []
  };
}

/** What the panel has chosen of its own accord, where that is not all. */
function choiceText({ data, store }: Source, shown: readonly SelectedSeries[]): string {
  const { isAuto } = chosenModules(data, store);
  const [count, total] = [modulesIn(shown).length, modulesOf(data, store).length];
  return isAuto && count && count < total ? words.unusual(count, total, callCount(shown)) : "";
}

/** The series of as many modules as can be drawn, the selected one among them. */
function mostUnusual(
  { data, store }: Source,
  wanted: readonly SelectedSeries[],
  most: number
): { shown: SelectedSeries[]; reasons: ReadonlyMap<string, string> } {
  const modules = modulesIn(wanted);
  const selected = store.get("selected") ?? "";
  const isWanted = modules.includes(selected);
  for (let count = most; ; count -= 1) {
    const { modules: top, reasons } = topDeviating(data, store, modules, count);
    const drawn = isWanted && !top.includes(selected) ? [...top.slice(0, count - 1), selected] : top;
    const shown = wanted.filter(({ entry }) => drawn.includes(entry.module));
    if (count === 1 || callCount(shown) <= most) return { shown, reasons };
  }
}

/** Series that have the same values at the same steps, as far as they are drawn, together. */
function joined({ data, until }: Source, series: readonly SelectedSeries[]): SelectedSeries[][] {
  const groups: SelectedSeries[][] = [];
  const lineOf = (one: SelectedSeries) => data.line(one.series);
  for (const one of series) {
    const [line, end] = [lineOf(one), until(one.entry.run)];
    const same = groups.find(
      ([first]) =>
        line && first.entry.phase === one.entry.phase && until(first.entry.run) === end && areSame(line, lineOf(first))
    );
    if (same) same.push(one);
    else groups.push([one]);
  }
  return groups;
}

function areSame(a: Line, b: Line | undefined): boolean {
  if (!b || a.length !== b.length || !Object.is(a.lastValue, b.lastValue)) return false;
  const [steps, values, otherSteps, others] = [a.steps, a.values, b.steps, b.values];
  return values.every((value, i) => Object.is(value, others[i]) && steps[i] === otherSteps[i]);
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
  group: readonly SelectedSeries[],
  { span, log, extent, isAlone }: { span: Span; log: boolean; extent: ValueRange; isAlone: boolean }
): Omit<ChartLine, "reason" | "color"> {
  const { data, store, runs } = source;
  const [{ series, entry, label, suffix, logged }] = group;
  const line = data.line(series);
  if (!line) throw new Error("a series without points is not drawn");
  const range = clipped(source, entry.run, line, span);
  const before = extent.broken;
  measure(line.values, range, log, extent);
  const isEval = entry.phase === "eval" && store.get("phase") === "both";
  const isSelected = group.some(one => one.entry.module === store.get("selected"));
  const run = runs.length > 1 ? ` · ${runName(runs, entry.run)}` : "";
  const names = group.map(one => (isAlone ? one.label : one.label.slice(0, one.label.length - run.length)));
  const more = words.more(group.length - 1);
  return {
    series,
    module: entry.module,
    label: label + more,
    suffix: suffix + more,
    names: group.map(one => one.label),
    ends: logged ? [""] : isAlone && entry.module === "" ? [suffix.slice(3)] : [...new Set(names)],
    isSelected,
    data: line,
    range,
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

/** What stands in place of a line that would have one point, or none: an axis would be invented. */
function messageOf(lines: readonly Pick<ChartLine, "data" | "range" | "module">[]): string {
  const values = lines.flatMap(({ data, range }) => [...data.values.subarray(range.start, range.end)]);
  if (!values.length) return "";
  if (!values.some(Number.isFinite)) return values.every(Number.isNaN) ? words.ONLY_NAN : words.ONLY_NOT_FINITE;
  const isShort = lines.every(({ module, range }) => module === "" && range.end - range.start <= 1);
  return isShort ? words.oneValue(values.map(valueText)) : "";
}

/** A span that a chart can draw: one step alone has a place in the middle. */
export function widened([first, last]: Span): Span {
  return last > first ? [first, last] : [first - 1, last + 1];
}

const greyRemark = (count: number) => (count ? [words.greyLines(count)] : []);

function extentRemarks({ leftOut, broken }: ValueRange): string[] {
  return [...(leftOut ? [words.leftOut(leftOut)] : []), ...(broken ? [words.broken(broken)] : [])];
}

function fullRemark(data: MetricData): string[] {
  return data.isFull ? [words.full(MAX_SERIES)] : [];
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
    choice: "",
    remarks: [...heatRemarks(scale), ...fullRemark(data)],
    held: pointCount(data, shown),
    isEmpty: !rows.some(({ range }) => range.end > range.start) && store.get("zoom") === null
  };
}

function heatRemarks({ broken, leftOut }: HeatScale): string[] {
  return [...(leftOut ? [words.leftOutOfColors(leftOut)] : []), ...(broken ? [words.brokenColors(broken)] : [])];
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
  const shown = wanted.length > MAX_CELLS ? mostUnusual(source, wanted, MAX_CELLS).shown.slice(0, MAX_CELLS) : wanted;
  const isFewer = shown.length < wanted.length;
  const remarks = isFewer ? [words.someOf(shown.length, wanted.length, words.HISTOGRAM)] : [];
  const keys = shown.map(callOf);
  const slots = source.colors.slotsOf(keys, `${metricOf(data, store)}\n`);
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
    choice: choiceText(source, shown),
    remarks: [...remarks, ...greyRemark(sharingGrey(keys, slots)), ...fullRemark(data)],
    held: pointCount(data, shown),
    isEmpty: cells.length === 0
  };
}
