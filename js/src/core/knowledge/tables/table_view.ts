// The views that are tables: the ranking of structures and models, communities, types and jobs.

import { Disposers, el, listen, option } from "../../shared/ui/dom";
import { exactNumber } from "../../shared/base/format";
import { split } from "../../shared/search/query";
import {
  communityColumns,
  hitsColumn,
  jobColumns,
  keyOf,
  modelColumns,
  moduleColumns,
  type TableKind,
  typeColumns,
  usesColumn
} from "./columns";
import type { CameraPose } from "../../shared/stage/viewport";
import type { Knowledge } from "../data/knowledge";
import { LEVELS } from "../data/payload";
import { emptyNote } from "../data/descriptions";
import { type SearchHits, searchHits, noResultsNote } from "../data/search";
import type { ExplorerStore, Sorting } from "../data/state";
import { type Column, SortedTable } from "./table";

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
const NOUNS: Readonly<Record<TableKind, readonly [one: string, many: string]>> = {
  modules: ["structure", "structures"],
  models: ["model", "models"],
  communities: ["community", "communities"],
  types: ["type", "types"],
  jobs: ["job", "jobs"]
};
const LEVEL_WORDS: Readonly<Record<string, string>> = {
  all: "all levels",
  model: "models (roots)",
  stage: "stages",
  block: "blocks",
  op: "operations"
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
      this.addSelect("Rank", "rows", [
        ["modules", "structures"],
        ["models", "models"]
      ]);
      const levels = ["all", ...LEVELS].map(level => [level, LEVEL_WORDS[level]] as const);
      const select = this.addSelect("used as", "level", levels);
      const follow = () => void (select.disabled = store.get("rows") === "models");
      this.disposers.add(store.on("rows", follow));
      follow();
    } else if (view === "types") {
      const levels = this.data.payload.types.map(({ level }) => [String(level), typeWords(level)] as const);
      this.addSelect("Level", "typeLevel", levels);
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
    const around = el("label", "mkg-view");
    const select = el("select", `mkg-kg-${key}`);
    select.append(...options.map(([value, text]) => option(value, text)));
    select.value = String(store.get(key));
    around.append(el("span", "mkg-label", label), select);
    this.controls.append(around);
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
    const [one, many] = NOUNS[kind];
    const label = `${exactNumber(rows.length)} ${rows.length === 1 ? one : many}`;
    this.table.draw({ label, columns, rows, sorting, key: keyOf(data, kind, level) }, store.get("selected"));
    const end = found.isActive ? ` of ${exactNumber(this.total(kind))}${whose(kind, found)}` : this.remark(kind);
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
      return `, modularity ${Number(this.data.payload.communities.modularity ?? 0).toFixed(3)}`;
    return kind === "types" && this.store.get("typeLevel") === 2
      ? ": models and blocks of one plan, whatever their depth"
      : "";
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
  if (kind === "models") return byModules ? ": those with structures that were found" : "";
  if (kind === "jobs" || !byModels) return "";
  return kind === "modules" ? `: those of ${source}` : `: those with structures of ${source}`;
}

/** The columns with one more after that of a name. */
function after(columns: readonly Column[], name: string, more: Column | false): Column[] {
  return columns.flatMap(column => (more && column.name === name ? [column, more] : [column]));
}

const indices = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

function typeWords(level: number): string {
  return level === 1 ? "1: same class and children" : level === 2 ? "2: depth families" : String(level);
}
