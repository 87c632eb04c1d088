// The modules that a panel draws of its own accord: those that differ most, each with the reason.

import { counted } from "../../shared/base/format";
import type { Kind, MetricData } from "./metric_data";
import { type ModuleRank, type MetricStats, metricStats } from "./metric_stats";
import { stepText, valueText } from "../base/value_axis";

export interface AutoSelection {
  readonly modules: readonly string[]; // in the order of the model
  readonly reasons: ReadonlyMap<string, string>; // empty where all are drawn
  readonly words: string; // the choice in one sentence; "" where all are drawn
  readonly told: string; // what the reasons are
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
export function autoSelection(
  data: MetricData,
  offered: readonly string[],
  most: number,
  asked: Question
): AutoSelection {
  if (offered.length <= most) return { modules: offered, reasons: new Map(), words: "", told: "" };
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
  const far = ranked.slice(0, most - 1);
  // without an example of the others nobody sees how far away the far ones are
  const near = ranked.slice(most - 1).reduce((best, one) => (isMoreUsual(one, best, standings) ? one : best));
  const reasons = new Map(far.map(one => [one.module, reasonOf(one, hasFactors)]));
  reasons.set(near.module, "nearest");
  const hasAlert = far.some(({ alert }) => alert < Infinity);
  const first = hasAlert ? "first those with alerts, then " : "";
  const told = hasFactors ? "how many times the median" : "the difference from it";
  const words = `${most} of ${counted(offered.length, "module")}: ${first}those that differ most from the median, and the one nearest to it`;
  return {
    modules: offered.filter(module => reasons.has(module)),
    reasons,
    words,
    told: `${told}, where that is most`
  };
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
  if (alert < Infinity) return `alert at step ${stepText(alert)}`;
  if (brokenFrom < Infinity) return `not finite from step ${stepText(brokenFrom)}`;
  if (!Number.isFinite(shift)) return "";
  return hasFactors ? `${short(shift)} ×` : `${shift > 0 ? "+" : ""}${short(shift)}`;
}

/** Two digits are enough to compare with. */
function short(value: number): string {
  return valueText(Number(value.toPrecision(2))).replace(/\.?0+(?=e)/, "");
}
