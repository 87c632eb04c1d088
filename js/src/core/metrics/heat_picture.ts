// What a heat map shows, as plain data.

import type { HeatRow, HeatScale } from "./heat_cells";
import type { HeatGroup } from "./heat_layout";
import type { Span } from "./state";
import type { ChartTheme } from "./chart_theme";

export interface HeatLine extends HeatRow {
  readonly module: string;
  readonly label: string;
  readonly run: number;
}

export interface HeatPicture {
  readonly rows: readonly HeatLine[]; // those of one run one after the other
  readonly headings: ReadonlyMap<number, string>; // names of the runs; empty where there is only one
  readonly span: Span;
  readonly scale: HeatScale;
  readonly selected: string | null;
  readonly named: ReadonlySet<string>; // modules whose names come first where not all have room
  readonly marks: readonly { readonly row: number; readonly step: number; readonly text: string }[];
  readonly theme: ChartTheme;
}

/** The rows of each run, under its name. */
export function groupsOf({ rows, headings }: HeatPicture): HeatGroup[] {
  if (!headings.size) return [{ heading: "", rows: rows.length }];
  const counts = new Map<number, number>();
  for (const { run } of rows) counts.set(run, (counts.get(run) ?? 0) + 1);
  return [...counts].map(([run, count]) => ({ heading: headings.get(run) ?? "", rows: count }));
}
