// What is shown, as a table of values separated by commas.

import type { Histogram } from "./histogram_data";
import type { LineData } from "./line_data";
import type { Range } from "./line_path";
import type { Entry } from "./metric_data";

export interface Named {
  readonly run: string;
  readonly entry: Entry;
}

export interface CsvLine extends Named {
  readonly data: LineData;
  readonly range: Range;
}

export interface CsvHistogram extends Named {
  readonly items: readonly Histogram[];
}

const WHO = ["run", "module", "metric", "call", "phase"];

export function linesToCsv(lines: readonly CsvLine[]): string {
  const rows = [[...WHO, "step", "value"].join(",")];
  for (const line of lines) {
    const head = who(line);
    const { steps, values } = line.data;
    for (let i = line.range.start; i < line.range.end; i += 1) rows.push(`${head},${steps[i]},${values[i]}`);
  }
  return rows.join("\r\n") + "\r\n";
}

/** One row for each bin. */
export function histogramsToCsv(histograms: readonly CsvHistogram[]): string {
  const rows = [[...WHO, "step", "low", "high", "count", "values", "sampled"].join(",")];
  for (const histogram of histograms) {
    const head = who(histogram);
    for (const { step, low, high, total, sampled, counts } of histogram.items) {
      const width = (high - low) / counts.length;
      counts.forEach((count, bin) => {
        const ends = [low + bin * width, bin === counts.length - 1 ? high : low + (bin + 1) * width];
        rows.push([head, step, ...ends, count, total, sampled].join(","));
      });
    }
  }
  return rows.join("\r\n") + "\r\n";
}

function who({ run, entry }: Named): string {
  return [textCell(run), textCell(entry.module), textCell(entry.metric), entry.call, textCell(entry.phase)].join(",");
}

/** A text that a spreadsheet would take for a formula gets an apostrophe before it, and quotes where it needs them. */
export function textCell(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}
