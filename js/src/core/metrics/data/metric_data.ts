// Metric data of one model: the series that the kernel has sent, shared by all of its views.

import { decodeUpdate, type Form, HISTOGRAM_HEAD, type RawAlert, type Update } from "./payload";
import { HistogramData, LineData } from "./series";

export interface Entry {
  readonly run: number;
  readonly module: string; // dotted path; "" is the whole model
  readonly metric: string;
  readonly call: number;
  readonly phase: string;
  readonly form: Form;
}

export interface AlertMark {
  readonly run: number;
  readonly module: string;
  readonly metric: string;
  readonly step: number;
  readonly text: string;
}

/** The alert's text; the module goes before it where it is not named in it. */
export function alertMessage({ module, text }: AlertMark): string {
  return module === "" || text.includes(module) ? text : `${module}: ${text}`;
}

/** The series of one metric, and its modules in the order in which they came. */
interface MetricIndex {
  readonly series: number[];
  readonly modules: Set<string>;
  revision: number; // of the data, at the last change of it
}

export type Kind = "numbers" | "histograms";

export const MAX_SERIES = 4000;
export const MAX_ALERTS = 1000;
const MAX_BINS = 4_000_000; // of all histograms together, 32 MB

export class MetricData {
  readonly entries: (Entry | undefined)[] = [];
  readonly alerts: AlertMark[] = [];
  readonly ended = new Set<number>();
  readonly waiting = new Set<number>(); // runs that have begun and have no value yet
  isSaved = false; // on a page: nothing more will come
  structure = 0; // counts the changes of the catalog
  revision = 0; // counts all changes
  taken = 0; // counts all values
  alertCount = 0; // those that are no longer held included
  private readonly lines = new Map<number, LineData>();
  private readonly histograms = new Map<number, HistogramData>();
  private readonly indices: Record<Kind, Map<string, MetricIndex>> = { numbers: new Map(), histograms: new Map() };
  private readonly steps: number[] = []; // the latest of each run
  private readonly listeners = new Set<() => void>();
  private bins = 0;

  constructor(private limit: number) {}

  /** Nothing has come yet. */
  get isEmpty(): boolean {
    return this.entries.length === 0 && this.alertCount === 0;
  }

  get isFull(): boolean {
    return this.entries.length >= MAX_SERIES;
  }

  /** Points that a series may hold; those that are there keep their own limit. */
  setLimit(limit: number): void {
    this.limit = limit;
  }

  line(series: number): LineData | undefined {
    return this.lines.get(series);
  }

  histogram(series: number): HistogramData | undefined {
    return this.histograms.get(series);
  }

  metrics(kind: Kind): string[] {
    return [...this.indices[kind].keys()];
  }

  index(kind: Kind, metric: string): MetricIndex | undefined {
    return this.indices[kind].get(metric);
  }

  /** The latest step of a run; NaN before its first value. */
  lastStep(run: number): number {
    return this.steps[run] ?? Number.NaN;
  }

  /** Called after every change; returns the disposer. */
  onChange(listener: () => void): () => void {
    const entry = () => listener(); // a wrapper, so that one function may listen twice
    this.listeners.add(entry);
    return () => void this.listeners.delete(entry);
  }

  apply(update: Update): void {
    this.revision += 1;
    if (update.reset) this.clear();
    this.isSaved = update.saved;
    this.addEntries(update.catalog);
    this.addPoints(update.points);
    for (const series of update.points.series) this.ended.delete(this.entries[series]?.run ?? -1); // it was started again
    this.addHistograms(update.histograms);
    this.addAlerts(update.alerts);
    for (const run of update.waiting) {
      this.waiting.add(run);
      this.ended.delete(run);
    }
    update.ended.forEach(run => this.ended.add(run));
    for (const listener of [...this.listeners]) listener();
  }

  private clear(): void {
    this.entries.length = 0;
    this.alerts.length = 0;
    this.steps.length = 0;
    this.alertCount = 0;
    this.bins = 0;
    this.structure += 1;
    const held = [this.lines, this.histograms, this.ended, this.waiting, this.indices.numbers, this.indices.histograms];
    held.forEach(collection => collection.clear());
  }

  private addEntries({ from, entries }: Update["catalog"]): void {
    entries.forEach(([run, module, metric, call, phase, form], i) => {
      const at = from + i;
      // a place that was missed stays empty until everything is sent again
      if (at >= MAX_SERIES || this.entries[at]) return;
      this.entries[at] = { run, module, metric, call, phase, form };
      this.addToIndex(form === "histogram" ? "histograms" : "numbers", metric, module, at);
      this.structure += 1;
    });
  }

  private addToIndex(kind: Kind, metric: string, module: string, at: number): void {
    const index = this.indices[kind].get(metric) ?? { series: [], modules: new Set<string>(), revision: 0 };
    this.indices[kind].set(metric, index);
    index.series.push(at);
    index.modules.add(module);
  }

  private addPoints({ series, counts, numbers }: Update["points"]): void {
    let at = 0;
    series.forEach((index, i) => {
      const count = counts[i];
      const entry = this.entries[index];
      if (entry && entry.form !== "histogram") {
        const line = this.lines.get(index) ?? new LineData(this.limit);
        this.lines.set(index, line);
        line.append(numbers, at, count);
        const own = this.indices.numbers.get(entry.metric);
        if (own) own.revision = this.revision;
        this.taken += count;
        this.reach(entry.run, line.lastStep);
      }
      at += 2 * count;
    });
  }

  private addHistograms({ series, steps, bins, numbers }: Update["histograms"]): void {
    let at = 0;
    series.forEach((index, i) => {
      const entry = this.entries[index];
      const end = at + HISTOGRAM_HEAD + bins[i];
      if (entry?.form === "histogram") {
        const data = this.histograms.get(index) ?? new HistogramData(this.limit);
        this.histograms.set(index, data);
        const [low, high, total, sampled] = numbers.subarray(at, at + HISTOGRAM_HEAD);
        const counts = numbers.slice(at + HISTOGRAM_HEAD, end);
        this.bins -= data.bins;
        data.add({ step: steps[i], low, high, total, sampled, counts });
        this.bins += data.bins;
        this.taken += 1;
        this.reach(entry.run, steps[i]);
      }
      at = end;
    });
    while (this.bins > MAX_BINS && [...this.histograms.values()].some(({ length }) => length > 2)) this.halve();
  }

  private halve(): void {
    this.bins = 0;
    for (const data of this.histograms.values()) {
      data.halve();
      this.bins += data.bins;
    }
  }

  private reach(run: number, step: number): void {
    if (!(this.steps[run] >= step)) this.steps[run] = step;
  }

  private addAlerts({ from, entries }: { from: number; entries: readonly RawAlert[] }): void {
    entries.forEach(([run, module, metric, step, text], i) => {
      if (from + i < this.alertCount) return;
      this.alertCount = from + i + 1;
      this.alerts.push({ run, module, metric, step, text });
    });
    if (this.alerts.length > MAX_ALERTS) this.alerts.splice(0, this.alerts.length - MAX_ALERTS);
  }
}

// From messages to series: applies what comes, confirms it, and asks for everything when something was missed.

// ms; not every kernel tells when it has dealt with a message
const MAX_WAIT = 10_000;

/** The way to the kernel. */
interface Channel {
  readonly isLive: boolean;
  /** `taken` is called once the kernel has dealt with the message. */
  send(content: { kind: "ack"; seq: number } | { kind: "resync" }, taken?: () => void): void;
}

export class Feed {
  private seq = 0;
  private waiting = false; // everything is needed and has not come yet
  private hasBegun = false; // the first message came, or one with everything
  private acked = 0; // the last message that was confirmed
  private ackedAt: number | null = null; // when, while the kernel has not dealt with it

  constructor(
    readonly data: MetricData,
    private readonly channel: Channel
  ) {}

  receive(content: unknown, buffers: unknown): void {
    const update = decodeUpdate(content, buffers);
    if (!update) return;
    if (update.reset) this.waiting = false;
    else if (update.seq !== this.seq + 1) this.ask();
    if (!update.reset && update.seq <= this.seq) return; // was applied already
    this.seq = update.seq;
    this.hasBegun ||= update.reset || update.seq === 1;
    this.data.apply(update);
    this.confirm();
  }

  /** One confirmation at a time: a busy kernel would find thousands of them before its next cell. */
  private confirm(): void {
    if (!this.hasBegun) return; // a page that came late: the kernel would think that it has what came before
    const isOpen = this.ackedAt !== null && performance.now() - this.ackedAt < MAX_WAIT;
    if (isOpen || this.acked === this.seq || !this.channel.isLive) return;
    const began = performance.now();
    this.acked = this.seq;
    this.ackedAt = began;
    this.channel.send({ kind: "ack", seq: this.seq }, () => {
      if (this.ackedAt !== began) return;
      this.ackedAt = null;
      this.confirm();
    });
  }

  /** A view is there to show the values: without any, they are asked for. */
  wake(): void {
    if (this.data.isEmpty) this.ask();
  }

  /** The kernel answers (again): what was asked for in vain, or could not be asked, is asked for now. */
  revive(): void {
    this.ackedAt = null;
    if (!this.waiting) return;
    this.waiting = false;
    this.ask();
  }

  private ask(): void {
    if (this.waiting) return;
    this.waiting = true;
    if (this.channel.isLive) this.channel.send({ kind: "resync" });
  }
}
