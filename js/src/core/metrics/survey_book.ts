// The surveys of a panel's metrics, kept: what is chosen by them shall stay, and cost nothing, while values stream.

import type { Kind, MetricData } from "./metric_data";
import { type Survey, survey, type Surveyed } from "./survey";

const GROWN = 1.25; // so many times as many values as before are surveyed anew,
const OLD = 10_000; // ms; and after so long a time any that have come

interface Kept {
  readonly survey: Survey;
  readonly structure: number;
  readonly taken: number;
  readonly at: number;
}

interface Book {
  readonly surveys: Map<string, Kept>;
  layered: { readonly built: string; readonly metric: string };
}

const books = new WeakMap<MetricData, Book>();

function bookOf(data: MetricData): Book {
  const book = books.get(data) ?? { surveys: new Map<string, Kept>(), layered: { built: "", metric: "" } };
  books.set(data, book);
  return book;
}

/** What the metric's series of a phase ("both" for all) have in common; the same object until it is made anew. */
export function surveyOf(data: MetricData, kind: Kind, metric: string, phase: string, isPaused = false): Survey {
  const { surveys } = bookOf(data);
  const key = `${kind} ${phase} ${metric}`;
  const kept = surveys.get(key);
  const now = performance.now();
  if (kept && (isPaused || isFresh(kept, data, now))) return kept.survey;
  const made = { survey: survey(surveyedOf(data, kind, metric, phase)), structure: data.structure };
  surveys.set(key, { ...made, taken: data.taken, at: now });
  return made.survey;
}

function isFresh({ structure, taken, at }: Kept, data: MetricData, now: number): boolean {
  if (structure !== data.structure) return false;
  return data.taken === taken || (data.taken < GROWN * taken && now - at < OLD);
}

function surveyedOf(data: MetricData, kind: Kind, metric: string, phase: string): Surveyed[] {
  const found: Surveyed[] = [];
  for (const series of data.index(kind, metric)?.series ?? []) {
    const entry = data.entries[series];
    if (!entry || (phase !== "both" && entry.phase !== phase)) continue;
    const points = kind === "numbers" ? data.line(series) : data.histogram(series)?.widths();
    if (points) {
      const { steps, values } = points;
      found.push({ module: entry.module, group: `${entry.run} ${entry.phase}`, steps, values });
    }
  }
  return found;
}

/**
 * The metric that a heat map opens on: of those with a row for each of several layers the one that the first alert
 * names, else the one whose layers lie furthest apart. "" where no layer has been measured: a number of the whole run,
 * such as a loss, is one stripe and no map. It changes only with the catalog and with the first alert, so that nobody's
 * picture is exchanged while values stream.
 */
export function layeredMetric(data: MetricData): string {
  const book = bookOf(data);
  const built = `${data.structure} ${data.alertCount > 0}`;
  if (book.layered.built !== built) book.layered = { built, metric: chosenMetric(data) };
  return book.layered.metric;
}

function chosenMetric(data: MetricData): string {
  const layers = (metric: string) => [...(data.index("numbers", metric)?.modules ?? [])].filter(Boolean).length;
  const metrics = data.metrics("numbers").filter(metric => layers(metric) > 0);
  const several = metrics.filter(metric => layers(metric) > 1);
  const alert = data.alerts.find(({ metric }) => several.includes(metric));
  if (alert) return alert.metric;
  let found = several[0] ?? metrics[0] ?? "";
  let most = 0;
  for (const metric of several) {
    const { spread } = surveyOf(data, "numbers", metric, "both");
    if (spread > most) [found, most] = [metric, spread];
  }
  return found;
}
