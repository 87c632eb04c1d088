// Selection of the series to draw: of one metric and phase, for the ticked modules, else a few that differ most.

import type { Entry, Kind, MetricData } from "./metric_data";
import { linesOf, type PanelReader, type PanelView, type Phase } from "../base/state";
import { compareLosses, isLoss, lossesWith } from "./logged_losses";
import { layeredMetric, metricStats, type ModuleRank, type MetricStats } from "./metric_stats";
import { stepText, valueText } from "../base/value_axis";
import * as words from "../../words/metrics";

export interface SelectedSeries {
  readonly series: number; // index in the catalog
  readonly entry: Entry;
  readonly label: string;
  readonly suffix: string; // the end of the label: what tells the series of one module apart
  readonly logged: string; // its name, where it is drawn with other logged numbers; else ""
}

/** How many modules are drawn when none is ticked: as many as are seen at once. */
export const AUTO_COUNT = 8;
const AUTO_HISTOGRAMS = 6;

export function kindOf(view: PanelView): Kind {
  return view === "histogram" ? "histograms" : "numbers";
}

/** What a metric's place among the others depends on. */
function placeOf(data: MetricData, metric: string): number {
  const index = data.index("numbers", metric);
  if (!index?.series.some(series => data.line(series)?.length)) return 3;
  if (hasLayers(data, metric)) return 2;
  return isLoss(metric) ? 0 : 1;
}

/**
 * The metrics of numbers: first what is logged for the whole run, of this the losses, that of the training first; then
 * those of modules, in the order in which they came.
 */
export function orderedMetrics(data: MetricData): string[] {
  const places = data.metrics("numbers").map(metric => ({ metric, place: placeOf(data, metric) }));
  const compare = (a: (typeof places)[number], b: (typeof places)[number]) =>
    a.place - b.place || (a.place ? 0 : compareLosses(a.metric, b.metric));
  return places.sort(compare).map(({ metric }) => metric);
}

/** The metrics that one chart draws: the chosen one, and with a loss the others of its subject, as of validation. */
export function visibleMetrics(data: MetricData, store: PanelReader): readonly string[] {
  const metric = metricOf(data, store);
  return store.get("view") === "lines" ? lossesWith(data, metric) : [metric];
}

/** What a chart is called: by its metric, or by what the losses in it are. */
export function titleOf(data: MetricData, store: PanelReader): string {
  const drawn = visibleMetrics(data, store);
  return drawn.length > 1 ? words.LOSSES : (drawn[0] ?? "");
}

/** The metric that is drawn: the chosen one where the view can show it, else the view's own choice; "" is none, or all. */
export function metricOf(data: MetricData, store: PanelReader): string {
  const view = store.get("view");
  if (view === "grid") return "";
  const kind = kindOf(view);
  const chosen = store.get("metric");
  // a number of the whole run would be one stripe of a heat map
  const isStripe = view === "heatmap" && !hasLayers(data, chosen) && layeredMetric(data) !== "";
  if (chosen && data.index(kind, chosen) && !isStripe) return chosen;
  if (chosen && !data.index("numbers", chosen) && !data.index("histograms", chosen)) return chosen; // its values may still come
  return view === "heatmap"
    ? layeredMetric(data)
    : ((kind === "numbers" ? orderedMetrics(data) : data.metrics(kind))[0] ?? "");
}

/**
 * The phase that is drawn: the chosen one, or the other one where the metric has values in that alone. Somebody who
 * waits for the first values of eval is shown none of train.
 */
function phaseOf(data: MetricData, store: PanelReader): Phase {
  const phase = store.get("phase");
  if (phase === "both") return phase;
  const index = data.index(kindOf(store.get("view")), metricOf(data, store));
  const has = (wanted: Phase) => index?.series.some(series => data.entries[series]?.phase === wanted) ?? false;
  const other: Phase = phase === "train" ? "eval" : "train";
  if (has(phase) || !has(other)) return phase;
  return phase === "train" || data.entries.some(entry => entry?.phase === phase) ? other : phase;
}

/** Whether the metric has values of layers, and not of the whole run alone. */
export function hasLayers(data: MetricData, metric: string): boolean {
  return [...(data.index("numbers", metric)?.modules ?? [])].some(module => module !== "");
}

const DECADES = 2; // from here on a linear scale shows the greatest values alone

/**
 * Whether values are drawn on a logarithmic scale: as chosen, else where those of a loss or of several layers are positive
 * and span decades. Colors end at percentiles, so their core counts; lines are drawn up to the last value.
 */
export function isLogarithmic(data: MetricData, store: PanelReader): boolean {
  const chosen = store.get("logScale");
  const view = store.get("view");
  if (chosen !== null || view === "histogram") return chosen ?? false;
  if (view !== "heatmap" && isLoss(metricOf(data, store)) && !hasLayers(data, metricOf(data, store)))
    return areOverDecades(data, store);
  if (modulesOf(data, store).length < 2) return false;
  const { decades } = metricStats(data, "numbers", metricOf(data, store), phaseOf(data, store), store.get("paused"));
  return decades !== null && decades[view === "heatmap" ? "core" : "all"] >= DECADES;
}

/** Whether losses that are drawn together are all positive, and the greatest is a hundred times the least. */
function areOverDecades(data: MetricData, store: PanelReader): boolean {
  const [phase, isPaused] = [phaseOf(data, store), store.get("paused")];
  const found = visibleMetrics(data, store)
    .filter(metric => data.index("numbers", metric)?.series.some(series => data.line(series)?.length))
    .map(metric => metricStats(data, "numbers", metric, phase, isPaused));
  const ends = found.flatMap(({ decades }) => (decades && !decades.hasZero ? [decades] : []));
  const [least, greatest] = [ends.map(one => one.least), ends.map(one => one.greatest)];
  const isPositive = ends.length === found.length && ends.length > 0;
  return isPositive && Math.log10(Math.max(...greatest)) - Math.log10(Math.min(...least)) > DECADES;
}

/** The modules that have the metric, in the order in which they came; of all metrics those that have one of layers. */
export function modulesOf(data: MetricData, store: PanelReader): string[] {
  if (store.get("view") === "grid") {
    const layered = data.metrics("numbers").filter(metric => hasLayers(data, metric));
    return [...new Set(layered.flatMap(metric => [...(data.index("numbers", metric)?.modules ?? [])]))];
  }
  const index = data.index(kindOf(store.get("view")), metricOf(data, store));
  return index ? [...index.modules] : [];
}

interface Chosen extends AutoSelection {
  readonly isOwn: boolean; // the panel's choice, as nothing is ticked that has the metric
  readonly isAuto: boolean; // and nothing is selected either
}

const NO_REASONS = { reasons: new Map<string, string>(), hasFactors: false, hasAlerts: false };

/** The modules whose series are drawn. */
export function chosenModules(data: MetricData, store: PanelReader): Chosen {
  const offered = modulesOf(data, store);
  const selected = store.get("selected");
  const ticked = new Set(store.get("modules"));
  const chosen = offered.filter(module => ticked.has(module));
  const isOffered = selected !== null && offered.includes(selected);
  const plain = { isOwn: chosen.length === 0, isAuto: false, ...NO_REASONS };
  if (chosen.length) {
    const isAdded = isOffered && !ticked.has(selected);
    return { modules: isAdded ? offered.filter(path => path === selected || ticked.has(path)) : chosen, ...plain };
  }
  const view = store.get("view");
  if (view === "heatmap") return { modules: offered, ...plain };
  if (isOffered) return { modules: [selected], ...plain };
  if (view !== "grid") return { ...plain, isAuto: true, ...topDeviating(data, store) };
  return { modules: sharedModules(data, store, offered), ...plain, isAuto: true };
}

const STAYS = 2; // places by which a module that is drawn already goes before the others, or lines would come and go
const shared = new WeakMap<MetricData, readonly string[]>();

/**
 * The modules that all charts draw, each in one color: of each metric the most unusual ones in turn, what is usual in the
 * first one, and the selected module.
 */
export function sharedModules(data: MetricData, store: PanelReader, offered: readonly string[]): readonly string[] {
  if (offered.length <= AUTO_COUNT) return offered;
  const among = new Set(offered);
  const before = shared.get(data) ?? [];
  const places = new Map<string, number>();
  const kept = new Set([store.get("selected") ?? ""].filter(module => among.has(module)));
  for (const metric of data.metrics("numbers").filter(one => hasLayers(data, one))) {
    const reader = linesOf(store, metric);
    const own = modulesOf(data, reader).filter(module => among.has(module));
    const { modules, reasons } = topDeviating(data, reader, own, AUTO_COUNT);
    const ranked = reasons.size ? [...reasons.keys()] : [...modules];
    const usual = reasons.size ? ranked.pop() : undefined;
    if (!places.size && usual) kept.add(usual);
    ranked.forEach((module, rank) => {
      const place = before.includes(module) ? rank - STAYS : rank;
      places.set(module, Math.min(place, places.get(module) ?? Infinity));
    });
  }
  const others = [...places.keys()].filter(module => !kept.has(module));
  others.sort((a, b) => (places.get(a) ?? 0) - (places.get(b) ?? 0));
  const drawn = new Set([...kept, ...others.slice(0, AUTO_COUNT - kept.size)]);
  const found = offered.filter(module => drawn.has(module));
  shared.set(data, found);
  return found;
}

/** How many modules a view draws of its own accord. */
export function autoCount(view: PanelView): number {
  return view === "heatmap" ? Infinity : view === "histogram" ? AUTO_HISTOGRAMS : AUTO_COUNT;
}

/** Of the modules so many as differ most, whatever is ticked. */
export function topDeviating(
  data: MetricData,
  store: PanelReader,
  modules: readonly string[] = modulesOf(data, store),
  most = Math.min(AUTO_COUNT, autoCount(store.get("view")))
): AutoSelection {
  const [phase, isPaused] = [phaseOf(data, store), store.get("paused")];
  const kind = kindOf(store.get("view"));
  return autoSelection(data, modules, most, { kind, metric: metricOf(data, store), phase, isPaused });
}

/** Whether what is searched for stands in a module's path. */
export function matchesQuery(module: string, query: string): boolean {
  const text = nameOf(module).toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every(term => text.includes(term));
}

/** The series of the lines or of the histograms that are drawn. */
export function selectedSeries(data: MetricData, store: PanelReader, runs: readonly string[]): SelectedSeries[] {
  const modules = new Set(chosenModules(data, store).modules);
  return seriesOf(data, store, runs, modules);
}

/** The rows of the heat map: the drawn modules that the search finds, one run after the other. */
export function heatRows(data: MetricData, store: PanelReader, runs: readonly string[]): SelectedSeries[] {
  const query = store.get("query");
  const modules = new Set(chosenModules(data, store).modules.filter(module => matchesQuery(module, query)));
  const rows = seriesOf(data, store, [], modules);
  return runs.length > 1 ? rows.sort((a, b) => a.entry.run - b.entry.run) : rows;
}

function seriesOf(
  data: MetricData,
  store: PanelReader,
  runs: readonly string[],
  modules: ReadonlySet<string>
): SelectedSeries[] {
  const metrics = visibleMetrics(data, store);
  const phase = phaseOf(data, store);
  const found: { series: number; entry: Entry }[] = [];
  for (const series of metrics.flatMap(metric => data.index(kindOf(store.get("view")), metric)?.series ?? [])) {
    const entry = data.entries[series];
    if (entry && modules.has(entry.module) && (phase === "both" || entry.phase === phase)) {
      found.push({ series, entry });
    }
  }
  const reused = new Set(found.filter(({ entry }) => entry.call > 0).map(({ entry }) => entry.module));
  const isOther = phase !== store.get("phase"); // than the one that was chosen: the names say it
  const phases = isOther || new Set(found.map(({ entry }) => entry.phase)).size > 1;
  return found.map(({ series, entry }) => {
    const suffix = suffixOf(entry, runs, reused, phases);
    const isLogged = entry.module === "" && !hasLayers(data, entry.metric);
    const logged = metrics.length > 1 ? entry.metric : "";
    return { series, entry, label: (isLogged ? entry.metric : nameOf(entry.module)) + suffix, suffix, logged };
  });
}

/** Only as much as tells the series apart. */
function suffixOf(entry: Entry, runs: readonly string[], reused: ReadonlySet<string>, phases: boolean): string {
  const parts: string[] = [];
  if (reused.has(entry.module)) parts.push(words.callNumber(entry.call));
  if (phases) parts.push(entry.phase);
  if (runs.length > 1) parts.push(runName(runs, entry.run));
  return parts.map(part => ` · ${part}`).join("");
}

export function nameOf(module: string): string {
  return module === "" ? words.WHOLE_MODEL : module;
}

export function runName(runs: readonly string[], run: number): string {
  return runs[run] ?? words.runNumber(run);
}

// The modules that a panel draws of its own accord: those that differ most, each with the reason.

interface AutoSelection {
  readonly modules: readonly string[]; // in the order of the model
  readonly reasons: ReadonlyMap<string, string>; // empty where all are drawn
  readonly hasFactors: boolean; // reasons are factors of the median, else differences from it
  readonly hasAlerts: boolean; // some are drawn for their alerts
}

const LOYAL = 1.25; // what is drawn already counts as so many times as far away, or lines would come and go

interface CachedSelection {
  readonly survey: MetricStats;
  readonly alerts: number;
  readonly offered: readonly string[];
  readonly choice: AutoSelection;
}

const cache = new WeakMap<MetricData, Map<string, CachedSelection>>();

interface Question {
  readonly kind: Kind;
  readonly metric: string;
  readonly phase: string;
  readonly isPaused: boolean;
}

/** At most so many of the modules: those with alerts first, then those furthest from the median, and one near it. */
function autoSelection(data: MetricData, offered: readonly string[], most: number, asked: Question): AutoSelection {
  if (offered.length <= most) return { modules: offered, ...NO_REASONS };
  const { kind, metric, phase, isPaused } = asked;
  const survey = metricStats(data, kind, metric, phase, isPaused);
  const all = cache.get(data) ?? new Map<string, CachedSelection>();
  cache.set(data, all);
  const key = `${kind} ${phase} ${most} ${metric}`;
  const known = all.get(key);
  const isKnown = known?.survey === survey && known.alerts === data.alertCount && isSameList(known.offered, offered);
  if (known && isKnown) return known.choice;
  const before = new Set(known?.choice.modules);
  const choice = chosen(offered, most, survey, alertSteps(data, metric), before);
  all.set(key, { survey, alerts: data.alertCount, offered, choice });
  return choice;
}

const isSameList = (a: readonly string[], b: readonly string[]) =>
  a.length === b.length && a.every((one, i) => one === b[i]);

/** The step of each module's first alert: of this metric, else of any. */
function alertSteps(data: MetricData, metric: string): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  const own = data.alerts.filter(alert => alert.metric === metric);
  for (const { module, step } of own.length ? own : data.alerts)
    if (!(step >= (found.get(module) ?? Infinity))) found.set(module, step);
  return found;
}

const UNKNOWN: ModuleRank = { distance: 0, shift: Number.NaN, brokenFrom: Infinity };

function chosen(
  offered: readonly string[],
  most: number,
  { standings, hasFactors }: MetricStats,
  alerts: ReadonlyMap<string, number>,
  before: ReadonlySet<string>
): AutoSelection {
  const ranked = offered.map(module => {
    const { distance, shift, brokenFrom } = standings.get(module) ?? UNKNOWN;
    const own = before.has(module) ? LOYAL * distance : distance;
    return { module, shift, brokenFrom, distance: own, alert: alerts.get(module) ?? Infinity };
  });
  ranked.sort(
    (a, b) => order(a.alert, b.alert) || order(a.brokenFrom, b.brokenFrom) || order(b.distance, a.distance) // sorting is stable
  );
  const far = ranked.slice(0, Math.max(1, most - 1));
  const reasons = new Map(far.map(one => [one.module, reasonOf(one, hasFactors)]));
  // without an example of the others nobody sees how far away the far ones are
  const near = ranked.slice(far.length).reduce((best, one) => (isMoreUsual(one, best, standings) ? one : best));
  if (most > 1) reasons.set(near.module, words.TYPICAL);
  const modules = offered.filter(module => reasons.has(module));
  return { modules, reasons, hasFactors, hasAlerts: far.some(({ alert }) => alert < Infinity) };
}

/** Which of two is the better example: one that has values and does not break, and then the one nearer to the median. */
function isMoreUsual(
  { module }: { module: string },
  other: { module: string },
  standings: MetricStats["standings"]
): boolean {
  const [one, best] = [standings.get(module), standings.get(other.module)];
  if (!one || !best) return one !== undefined;
  return (
    order(best.brokenFrom, one.brokenFrom) < 0 || (best.brokenFrom === one.brokenFrom && one.distance < best.distance)
  );
}

function order(a: number, b: number): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function reasonOf(
  { alert, brokenFrom, shift }: { alert: number; brokenFrom: number; shift: number },
  hasFactors: boolean
): string {
  if (alert < Infinity) return words.alertAt(stepText(alert));
  if (brokenFrom < Infinity) return words.brokenFrom(stepText(brokenFrom));
  if (!Number.isFinite(shift)) return "";
  return hasFactors ? `${short(shift)} ×` : `${shift > 0 ? "+" : ""}${short(shift)}`;
}

/** Two digits are enough to compare with. */
function short(value: number): string {
  return valueText(Number(value.toPrecision(2))).replace(/\.?0+(?=e)/, "");
}
