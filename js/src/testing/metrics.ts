// Messages of metric values as the kernel writes them.

import { vi } from "vitest";
import type { Form } from "../core/metrics/data/payload";

export type EntryRow = [run: number, module: string, metric: string, call: number, phase: string, form: Form];

interface Message {
  content: Record<string, unknown>;
  buffers: DataView[];
}

export interface Parts {
  reset?: boolean;
  from?: number;
  entries?: EntryRow[];
  /** series → points as [step, value] */
  points?: [series: number, points: [number, number][]][];
  histograms?: [
    series: number,
    step: number,
    head: [low: number, high: number, total: number, sampled: number],
    counts: number[]
  ][];
  alerts?: [run: number, module: string, metric: string, step: number, text: string][];
  alertsFrom?: number;
  ended?: number[];
  waiting?: number[];
  saved?: boolean;
}

export function message(seq: number, parts: Parts = {}): Message {
  const { points = [], histograms = [] } = parts;
  const numbers = points.flatMap(([, own]) => [...own.map(([step]) => step), ...own.map(([, value]) => value)]);
  const counts = histograms.flatMap(([, , head, own]) => [...head, ...own]);
  return {
    content: {
      kind: "update",
      seq,
      reset: parts.reset ?? false,
      catalog: { from: parts.from ?? 0, entries: parts.entries ?? [] },
      points: { series: points.map(([series]) => series), counts: points.map(([, own]) => own.length) },
      histograms: {
        series: histograms.map(([series]) => series),
        steps: histograms.map(([, step]) => step),
        bins: histograms.map(([, , , own]) => own.length)
      },
      alerts: { from: parts.alertsFrom ?? 0, entries: parts.alerts ?? [] },
      ended: parts.ended ?? [],
      waiting: parts.waiting ?? [],
      saved: parts.saved ?? false
    },
    buffers: [bytes(numbers), bytes(counts)]
  };
}

/** The numbers as little-endian doubles that begin `offset` bytes into their buffer. */
export function bytes(numbers: readonly number[], offset = 0): DataView {
  const view = new DataView(new ArrayBuffer(offset + 8 * numbers.length), offset);
  numbers.forEach((number, i) => view.setFloat64(8 * i, number, true));
  return view;
}

export const panelPayload = (runs: readonly string[] = ["run"], limit = 2000) => ({
  schema_version: 1,
  kind: "metric_panel",
  runs,
  limit
});

/** So many points at steps 0, 1, 2 … */
export function series(length: number, value: (step: number) => number): [number, number][] {
  return Array.from({ length }, (_, step) => [step, value(step)]);
}

export const numbers = (metric: string, modules: readonly string[], run = 0, phase = "train"): EntryRow[] =>
  modules.map(module => [run, module, metric, 0, phase, "number"]);

/** Waits until `check` passes; long enough for a machine that has much else to do. */
export const until = (check: () => void): Promise<void> => vi.waitFor(check, { timeout: 4500, interval: 10 });
