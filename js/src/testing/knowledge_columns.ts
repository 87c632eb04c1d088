// The cells of an explorer's tables by table, column and row.

import {
  communityColumns,
  jobColumns,
  modelColumns,
  moduleColumns,
  typeColumns
} from "../core/knowledge/tables/table_view";
import type { Knowledge } from "../core/knowledge/data/knowledge";
import type { Column } from "../core/knowledge/tables/table";

type Cells = Record<string, (row: number) => string>;

const cells = (columns: readonly Column[]): Cells =>
  Object.fromEntries(columns.map(({ name, cell }) => [name, (row: number) => cell(row).text]));

export function columnsOf(data: Knowledge): Record<"modules" | "models" | "communities" | "types" | "jobs", Cells> {
  return {
    modules: cells(moduleColumns(data, "all")),
    models: cells(modelColumns(data)),
    communities: cells(communityColumns(data)),
    types: cells(typeColumns(data, 1)),
    jobs: cells(jobColumns(data))
  };
}
