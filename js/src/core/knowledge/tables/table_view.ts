// Tables of an explorer, and their columns: the ranking of structures and models, communities, types and jobs.

import { Disposers, el, listen, option, field } from "../../shared/ui/dom";
import { counted, exactNumber, shortBytes, shortNumber, hyperLine } from "../../shared/base/format";
import { split } from "../../shared/search/search";
import type { CameraPose } from "../../shared/stage/viewport";
import type { Knowledge, EntityKind } from "../data/knowledge";
import { LEVELS, type Level } from "../data/payload";
import { emptyNote, measureLabel } from "../data/descriptions";
import { type SearchHits, searchHits, noResultsNote } from "../data/search";
import type { ExplorerStore, Sorting } from "../data/state";
import { type Column, SortedTable, type Cell } from "./table";
import { toNumber } from "../../shared/payload/payload";
import type { Value } from "../../shared/base/schema";
import { day, percent } from "../side/explorer_panel";
import { oneLine } from "../../shared/base/canvas";
import * as words from "../../words/knowledge";

export interface ExplorerView {
  dispose(): void;
  readonly moved?: CameraPose; // where somebody has moved its camera
  fit?(): void;
}

const FIRST: Readonly<Record<TableKind, Sorting>> = {
  modules: { column: "uses", descending: true },
  models: { column: "params", descending: true },
  communities: { column: "size", descending: true },
  types: { column: "size", descending: true },
  jobs: { column: "accuracy", descending: true }
};

export class TableView implements ExplorerView {
  private readonly disposers = new Disposers();
  private readonly controls = el("div", "mkg-kg-controls");
  private readonly note = el("span", "mkg-kg-note");
  private readonly table: SortedTable;
  private readonly grid = el("div");
  private readonly nothing = el("div", "mkg-kg-nothing-place");

  constructor(
    private readonly host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore
  ) {
    host.classList.add("mkg-kg-table-view");
    host.append(this.controls, this.grid, this.nothing);
    this.table = new SortedTable(this.grid, {
      pick: key => {
        store.set("item", null);
        store.set("selected", key);
      },
      sort: sorting => store.set("sorting", { ...store.get("sorting"), [this.kind]: sorting })
    });
    this.addControls();
    this.disposers.add(
      store.on(["rows", "level", "typeLevel", "sorting", "query"], () => this.draw()),
      store.on("selected", () => this.table.mark(store.get("selected")))
    );
    this.draw();
  }

  dispose(): void {
    this.disposers.dispose();
    this.table.dispose();
    this.host.replaceChildren();
  }

  private get kind(): TableKind {
    const view = this.store.get("view");
    return view === "communities" || view === "types" || view === "jobs" ? view : this.store.get("rows");
  }

  private addControls(): void {
    const { store } = this;
    const view = store.get("view");
    if (view === "ranking") {
      this.addSelect(words.RANK, "rows", [
        ["modules", words.STRUCTURES_ROW],
        ["models", words.MODELS_ROW]
      ]);
      const levels = ["all", ...LEVELS].map(level => [level, words.LEVELS[level]] as const);
      const select = this.addSelect(words.USED_AS, "level", levels);
      const follow = () => void (select.disabled = store.get("rows") === "models");
      this.disposers.add(store.on("rows", follow));
      follow();
    } else if (view === "types") {
      const levels = this.data.payload.types.map(({ level }) => [String(level), typeWords(level)] as const);
      this.addSelect(words.LEVEL, "typeLevel", levels);
    }
    this.note.setAttribute("role", "status");
    this.controls.append(this.note);
  }

  private addSelect(
    label: string,
    key: "rows" | "level" | "typeLevel",
    options: readonly (readonly [string, string])[]
  ): HTMLSelectElement {
    const { store } = this;
    const select = el("select", `mkg-kg-${key}`);
    select.append(...options.map(([value, text]) => option(value, text)));
    select.value = String(store.get(key));
    this.controls.append(field("mkg-view", label, select));
    this.disposers.add(
      listen(select, "change", () => {
        if (key === "typeLevel") store.set(key, Number(select.value));
        else store.set(key, select.value as never);
      }),
      store.on(key, () => void (select.value = String(store.get(key))))
    );
    return select;
  }

  private draw(): void {
    const { data, store, kind } = this;
    const level = store.get("typeLevel");
    const columns = this.columns(kind, level);
    const found = searchHits(data, store.get("query"));
    const rows = this.rows(kind, found);
    const sorting = store.get("sorting")[kind] ?? FIRST[kind];
    const label = counted(rows.length, ...words.NOUNS[kind]);
    this.table.draw({ label, columns, rows, sorting, key: keyOf(data, kind, level) }, store.get("selected"));
    const end = found.isActive ? words.OF + exactNumber(this.total(kind)) + whose(kind, found) : this.remark(kind);
    this.note.textContent = label + end;
    const isNothing = rows.length === 0;
    this.grid.hidden = isNothing;
    this.nothing.replaceChildren(...(isNothing ? [this.instead(kind, found)] : []));
  }

  private instead(kind: TableKind, found: SearchHits): HTMLElement {
    if (found.isActive && this.total(kind) > 0) return noResultsNote(this.store, found.isEmpty);
    return emptyNote(kind === "jobs" ? "jobs" : "models", this.store);
  }

  private remark(kind: TableKind): string {
    if (kind === "communities")
      return words.ofModularity(Number(this.data.payload.communities.modularity ?? 0).toFixed(3));
    return kind === "types" && this.store.get("typeLevel") === 2 ? words.DEPTH_NOTE : "";
  }

  private columns(kind: TableKind, level: number): Column[] {
    const { data, store } = this;
    if (kind === "models") return modelColumns(data);
    if (kind === "jobs") return jobColumns(data);
    const { isActive, byModels, modules, sources } = searchHits(data, store.get("query"));
    if (kind === "modules")
      return after(moduleColumns(data, store.get("level")), "uses", byModels && usesColumn(data, sources));
    const [thing, columns] =
      kind === "communities"
        ? (["community", communityColumns(data)] as const)
        : (["type", typeColumns(data, level)] as const);
    const members = (index: number) => data.members({ kind: thing, index, level: kind === "types" ? level : 0 });
    return after(columns, "size", isActive && hitsColumn(modules, members));
  }

  private total(kind: TableKind): number {
    const { data, store } = this;
    const { communities, jobs } = data.payload;
    if (kind === "modules") return this.used().length;
    if (kind === "models") return data.modelCount;
    if (kind === "communities") return communities.count;
    return kind === "types" ? (data.types(store.get("typeLevel"))?.name.length ?? 0) : jobs.name.length;
  }

  private used(): number[] {
    const level = this.store.get("level");
    const every = indices(this.data.size);
    if (level === "all") return every;
    const uses = this.data.levelUses[LEVELS.indexOf(level)];
    return every.filter(row => uses[row] > 0);
  }

  /** What a search has found is left. */
  private rows(kind: TableKind, { isActive, modules, models }: SearchHits): number[] {
    const { data, store } = this;
    const every = kind === "modules" ? this.used() : indices(this.total(kind));
    if (!isActive) return every;
    if (kind === "modules") return every.filter(row => modules.has(row));
    if (kind === "models") return every.filter(row => models.has(row));
    if (kind === "jobs") return every.filter(row => matchesJob(data, row, store.get("query"), models));
    const level = store.get("typeLevel");
    const things = kind === "types" ? ({ kind: "type", level } as const) : ({ kind: "community", level: 0 } as const);
    return every.filter(index => data.members({ ...things, index }).some(entity => modules.has(entity)));
  }
}

/** A job of a model that was found, or with all words of the search in what it is called and who ran it on what. */
function matchesJob(
  { payload: { jobs, models: every } }: Knowledge,
  row: number,
  query: string,
  models: ReadonlySet<number>
): boolean {
  const text = [jobs.name[row], jobs.user[row], jobs.dataset[row]].join(" ").toLowerCase();
  return (
    models.has(every.name.indexOf(jobs.model[row] ?? "")) ||
    split(query).every(term => text.includes(term.text.toLowerCase()))
  );
}

/** Where rows come from that were not found themselves. */
function whose(kind: TableKind, { byModels, byModules, source }: SearchHits): string {
  if (kind === "models") return byModules ? words.WITH_MATCHES : "";
  if (kind === "jobs" || !byModels) return "";
  return kind === "modules" ? words.ofSource(source) : words.withStructuresOf(source);
}

/** The columns with one more after that of a name. */
function after(columns: readonly Column[], name: string, more: Column | false): Column[] {
  return columns.flatMap(column => (more && column.name === name ? [column, more] : [column]));
}

const indices = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

function typeWords(level: number): string {
  return words.TYPE_LEVELS[level - 1] ?? String(level);
}

// The columns of the tables.

type TableKind = "modules" | "models" | "communities" | "types" | "jobs";

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

function named(name: string, label: string, least: number, share: number, value: (row: number) => string): Column {
  return { name, label, isNumber: false, least, share, value, cell: row => ({ text: oneLine(value(row)) }) };
}

const TOP_1 = "acc@1"; // the target that the accuracy of a job is

/** How many of what was found a group has. */
function hitsColumn(found: ReadonlySet<number>, members: (row: number) => readonly number[]): Column {
  const value = memo(row => members(row).reduce((sum, entity) => sum + Number(found.has(entity)), 0));
  return count("found", words.MATCHES, value, words.MATCHES_TITLE);
}

/** How often structures occur in the models that were found. */
function usesColumn(data: Knowledge, models: ReadonlySet<number>): Column {
  const value = memo(row =>
    data.modelsOf[row].reduce((sum, { index, count: own }) => sum + (models.has(index) ? own : 0), 0)
  );
  return count("there", words.USES_THERE, value, words.USES_THERE_TITLE);
}

export function moduleColumns(data: Knowledge, level: Level | "all"): Column[] {
  const uses = level === "all" ? data.uses : data.levelUses[LEVELS.indexOf(level)];
  const measures = data.measures.map(measure => {
    const column = data.column(measure) ?? [];
    return amount(measure, measureLabel(measure), row => column[row], shortNumber, words.MEASURES.get(measure));
  });
  return [
    named("name", words.NAME, 140, 1.5, row => data.payload.entities.name[row]),
    named("settings", words.SETTINGS, 90, 1.2, row => hyperLine(data.hyper(row))),
    count("uses", words.USES, row => uses[row], words.USES_TITLE),
    count("models", words.MODELS, row => data.modelsOf[row].length, words.MODELS_TITLE),
    amount("params", words.PARAMETERS, row => data.params[row]),
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
    named("name", words.NAME, 150, 1.8, row => models.name[row]),
    named("family", words.FAMILY_LABEL, 110, 1.2, row => families[models.family[row]]),
    amount("params", words.PARAMETERS, row => toNumber(models.params[row])),
    amount("bytes", words.MEMORY, row => toNumber(models.bytes[row]), shortBytes),
    count("modules", words.MODULES, row => models.modules[row]),
    count("structures", words.STRUCTURES, row => models.structures[row]),
    amount("flops", "FLOPs", row => toNumber(models.flops[row])),
    amount(
      "accuracy",
      words.BEST_ACCURACY,
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
    { ...named("name", words.NAME, 150, 1.8, row => data.communityName(row)), value: row => row },
    named("families", words.MOSTLY_IN, 110, 1.2, row => data.familiesOf(row).join(", ")),
    named("top", words.MOST_USED, 110, 1.2, row => data.payload.entities.name[members(row)[0]] ?? ""),
    count("size", words.STRUCTURES, row => members(row).length),
    count("uses", words.USES, uses),
    count("models", words.MODELS, models)
  ];
}

export function typeColumns(data: Knowledge, level: number): Column[] {
  const table = data.types(level);
  const members = (row: number) => data.members({ kind: "type", index: row, level });
  const uses = memo(row => members(row).reduce((sum, entity) => sum + data.uses[entity], 0));
  const models = memo(row => data.modelsWith(members(row)).length);
  const differs = memo(row => differences(data, level, members(row)));
  return [
    named("name", words.TYPE, 130, 1.3, row => table?.name[row] ?? ""),
    named("class", words.CLASS, 100, 1.1, row => data.className(members(row)[0])),
    count("size", words.STRUCTURES, row => members(row).length),
    count("uses", words.USES, uses),
    count("models", words.MODELS, models),
    named("differs", words.DIFFER_IN, 150, 2, differs)
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
    named("name", words.JOB, 90, 1, row => jobs.name[row]),
    named("user", words.USER, 80, 1, text(jobs.user)),
    named("dataset", words.DATA_SET, 90, 1, text(jobs.dataset)),
    named("model", words.MODEL, 110, 1.3, text(jobs.model)),
    amount(
      "accuracy",
      words.ACCURACY,
      row => toNumber(jobs.accuracy[row]),
      value => percent(value)
    ),
    named("reached", words.RESULTS, 110, 1.2, row => reached.get(row) ?? ""),
    amount("convergence", words.STEPS_TO_CONVERGE, row => toNumber(jobs.convergence[row])),
    date("started", words.STARTED, jobs.started)
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

const keyOf =
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
