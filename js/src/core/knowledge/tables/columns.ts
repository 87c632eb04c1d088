// The columns of the tables.

import { hyperLine } from "../../shared/model/hyperparameters";
import { exactNumber, shortBytes, shortNumber } from "../../shared/base/format";
import { toNumber } from "../../shared/payload/payload";
import { type Value } from "../../shared/base/schema";
import type { Knowledge, EntityKind } from "../data/knowledge";
import { day, percent } from "../side/model_sections";
import { LEVELS } from "../data/payload";
import type { Level } from "../data/payload";
import type { Cell, Column } from "./table";
import { measureLabel } from "../data/descriptions";
import { oneLine } from "../../shared/base/canvas";

export type TableKind = "modules" | "models" | "communities" | "types" | "jobs";

/** A column of numbers is as wide as its head, with the arrow. */
const narrow = (label: string) => ({ least: 26 + 6.6 * label.length, share: 0.6 });

function count(name: string, label: string, value: (row: number) => number | null, help?: string): Column {
  const cell = (row: number): Cell => {
    const found = value(row);
    return { text: found === null ? "" : exactNumber(found) };
  };
  return { name, label, help, isNumber: true, ...narrow(label), value, cell };
}

function amount(
  name: string,
  label: string,
  value: (row: number) => number | null,
  short = shortNumber,
  help?: string
): Column {
  const cell = (row: number): Cell => {
    const found = value(row);
    return found === null ? { text: "" } : { text: short(found), title: exactNumber(found) };
  };
  return { name, label, help, isNumber: true, ...narrow(label), value, cell };
}

function words(name: string, label: string, least: number, share: number, value: (row: number) => string): Column {
  return { name, label, isNumber: false, least, share, value, cell: row => ({ text: oneLine(value(row)) }) };
}

const TOP_1 = "acc@1"; // the target that the accuracy of a job is

const HELP = new Map([
  ["pagerank", "What much else is built of ranks high"],
  ["in_degree", "Structures that contain it directly"],
  ["closeness", "How near it is to what contains it"]
]);

/** How many of what was found a group has. */
export function hitsColumn(found: ReadonlySet<number>, members: (row: number) => readonly number[]): Column {
  const value = memo(row => members(row).reduce((sum, entity) => sum + Number(found.has(entity)), 0));
  return count("found", "Found", value, "Structures in it that the search found");
}

/** How often structures occur in the models that were found. */
export function usesColumn(data: Knowledge, models: ReadonlySet<number>): Column {
  const value = memo(row =>
    data.modelsOf[row].reduce((sum, { index, count: own }) => sum + (models.has(index) ? own : 0), 0)
  );
  return count("there", "Uses there", value, "Occurrences in the models that the search found");
}

export function moduleColumns(data: Knowledge, level: Level | "all"): Column[] {
  const uses = level === "all" ? data.uses : data.levelUses[LEVELS.indexOf(level)];
  const measures = data.measures.map(measure => {
    const column = data.column(measure) ?? [];
    return amount(measure, measureLabel(measure), row => column[row], shortNumber, HELP.get(measure));
  });
  return [
    words("name", "Name", 140, 1.5, row => data.payload.entities.name[row]),
    words("settings", "Settings", 90, 1.2, row => hyperLine(data.hyper(row))),
    count("uses", "Uses", row => uses[row], "Occurrences over all models"),
    count("models", "Models", row => data.modelsOf[row].length, "Models in which it occurs"),
    amount("params", "Parameters", row => data.params[row]),
    ...measures
  ];
}

export function modelColumns(data: Knowledge): Column[] {
  const { models, families, jobs } = data.payload;
  const most = new Map<string | null, number>();
  jobs.model.forEach((name, job) => {
    const value = toNumber(jobs.accuracy[job]);
    if (value !== null && !Number.isNaN(value)) most.set(name, Math.max(value, most.get(name) ?? -Infinity));
  });
  const best = models.name.map(name => most.get(name) ?? null);
  const columns = [
    words("name", "Name", 150, 1.8, row => models.name[row]),
    words("family", "Family", 110, 1.2, row => families[models.family[row]]),
    amount("params", "Parameters", row => toNumber(models.params[row])),
    amount("bytes", "Memory", row => toNumber(models.bytes[row]), shortBytes),
    count("modules", "Modules", row => models.modules[row]),
    count("structures", "Structures", row => models.structures[row]),
    amount("flops", "FLOPs", row => toNumber(models.flops[row])),
    amount(
      "accuracy",
      "Best accuracy",
      row => best[row],
      value => percent(value)
    )
  ];
  return columns.filter(({ name, value }) => {
    const isOptional = name === "flops" || name === "accuracy";
    return !isOptional || models.name.some((_, row) => value(row) !== null);
  });
}

export function communityColumns(data: Knowledge): Column[] {
  const members = (row: number) => data.members({ kind: "community", index: row, level: 0 });
  const models = memo(row => data.modelsWith(members(row)).length);
  const uses = memo(row => members(row).reduce((sum, entity) => sum + data.uses[entity], 0));
  return [
    { ...words("name", "Name", 150, 1.8, row => data.communityName(row)), value: row => row },
    words("families", "Mostly in", 110, 1.2, row => data.familiesOf(row).join(", ")),
    words("top", "Most used", 110, 1.2, row => data.payload.entities.name[members(row)[0]] ?? ""),
    count("size", "Structures", row => members(row).length),
    count("uses", "Uses", uses),
    count("models", "Models", models)
  ];
}

export function typeColumns(data: Knowledge, level: number): Column[] {
  const table = data.types(level);
  const members = (row: number) => data.members({ kind: "type", index: row, level });
  const uses = memo(row => members(row).reduce((sum, entity) => sum + data.uses[entity], 0));
  const models = memo(row => data.modelsWith(members(row)).length);
  const differs = memo(row => differences(data, level, members(row)));
  return [
    words("name", "Type", 130, 1.3, row => table?.name[row] ?? ""),
    words("class", "Class", 100, 1.1, row => data.className(members(row)[0])),
    count("size", "Structures", row => members(row).length),
    count("uses", "Uses", uses),
    count("models", "Models", models),
    words("differs", "Differ in", 150, 2, differs)
  ];
}

/** The names in which the structures of a type differ, those of most structures first. */
function differences(data: Knowledge, level: number, members: readonly number[]): string {
  const table = data.types(level);
  const counts = new Map<string, number>();
  for (const entity of members) {
    for (const name of (table?.texts[table.differs[entity]] ?? "").split(", ").filter(Boolean)) {
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
  }
  return [...counts]
    .sort((a, b) => b[1] - a[1])
    .map(([name]) => name)
    .join(", ");
}

export function jobColumns(data: Knowledge): Column[] {
  const { jobs } = data.payload;
  const reached = reachedBy(data);
  const text = (column: readonly (string | null)[]) => (row: number) => column[row] ?? "";
  const date = (name: string, label: string, values: readonly Value[]): Column => ({
    name,
    label,
    isNumber: true,
    least: 90,
    share: 0.7,
    value: row => toNumber(values[row]),
    cell: row => ({ text: day(values[row]) })
  });
  return [
    words("name", "Job", 90, 1, row => jobs.name[row]),
    words("user", "User", 80, 1, text(jobs.user)),
    words("dataset", "Data set", 90, 1, text(jobs.dataset)),
    words("model", "Model", 110, 1.3, text(jobs.model)),
    amount(
      "accuracy",
      "Accuracy",
      row => toNumber(jobs.accuracy[row]),
      value => percent(value)
    ),
    words("reached", "Reached", 110, 1.2, row => reached.get(row) ?? ""),
    amount("convergence", "Steps to settle", row => toNumber(jobs.convergence[row])),
    date("started", "Started", jobs.started)
  ];
}

/** What each job reached beside its accuracy, as "latency 0.256 ms". */
function reachedBy({ payload }: Knowledge): Map<number, string> {
  const found = new Map<number, string>();
  for (const { target, unit, job, value } of payload.results) {
    job.forEach((each, at) => {
      const number = toNumber(value[at]);
      if (number === null || (target === TOP_1 && payload.jobs.accuracy[each] !== null)) return;
      const said = [target, shortNumber(number), unit ?? ""].filter(Boolean).join(" ");
      found.set(each, found.has(each) ? `${found.get(each) ?? ""}, ${said}` : said);
    });
  }
  return found;
}

function memo<T>(make: (row: number) => T): (row: number) => T {
  const known = new Map<number, T>();
  return row => {
    let found = known.get(row);
    if (found === undefined) {
      found = make(row);
      known.set(row, found);
    }
    return found;
  };
}

export const keyOf =
  (data: Knowledge, kind: TableKind, level: number) =>
  (row: number): string | null => {
    if (kind === "jobs") {
      const model = data.payload.jobs.model[row];
      const key = `Model:${model ?? ""}`;
      return model !== null && data.find(key) ? key : null;
    }
    const kinds: Record<Exclude<TableKind, "jobs">, EntityKind> = {
      modules: "module",
      models: "model",
      communities: "community",
      types: "type"
    };
    return data.key({ kind: kinds[kind], index: row, level: kind === "types" ? level : 0 });
  };
