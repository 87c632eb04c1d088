// The views that are tables: the ranking of structures and models, communities, types and jobs.

import { Disposers, el, listen, option } from "../shared/dom";
import { counted, exactNumber } from "../shared/format";
import {
  communityColumns,
  jobColumns,
  keyOf,
  modelColumns,
  moduleColumns,
  type TableKind,
  typeColumns
} from "./columns";
import type { Knowledge } from "./data";
import { LEVELS } from "./payload";
import { search } from "./search";
import type { ExplorerStore, Sorting } from "./state";
import { type Column, SortedTable } from "./table";

export interface ExplorerView {
  dispose(): void;
}

const FIRST: Readonly<Record<TableKind, Sorting>> = {
  modules: { column: "uses", descending: true },
  models: { column: "params", descending: true },
  communities: { column: "size", descending: true },
  types: { column: "size", descending: true },
  jobs: { column: "accuracy", descending: true }
};
const NOUNS: Readonly<Record<TableKind, string>> = {
  modules: "structure",
  models: "model",
  communities: "community",
  types: "type",
  jobs: "job"
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

  constructor(
    private readonly host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore
  ) {
    host.classList.add("mkg-kg-table-view");
    const grid = el("div");
    host.append(this.controls, grid);
    this.table = new SortedTable(grid, {
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
    const rows = this.rows(kind);
    const sorting = store.get("sorting")[kind] ?? FIRST[kind];
    const label = `${counted(rows.length, NOUNS[kind])}`;
    this.table.draw({ label, columns, rows, sorting, key: keyOf(data, kind, level) }, store.get("selected"));
    const total = this.total(kind);
    const isSearched = store.get("query").trim() !== "" && rows.length < total;
    this.note.textContent = isSearched ? `${label} of ${exactNumber(total)}` : label + this.remark(kind);
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
    if (kind === "modules") return moduleColumns(data, store.get("level"));
    if (kind === "models") return modelColumns(data);
    if (kind === "communities") return communityColumns(data);
    return kind === "types" ? typeColumns(data, level) : jobColumns(data);
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
  private rows(kind: TableKind): number[] {
    const { data, store } = this;
    const every = kind === "modules" ? this.used() : indices(this.total(kind));
    const query = store.get("query");
    if (!query.trim()) return every;
    const { modules, models, notice } = search(data, query);
    if (notice) return every;
    if (kind === "modules") return every.filter(row => modules.has(row));
    if (kind === "models") return every.filter(row => models.has(row));
    if (kind === "jobs")
      return every.filter(row => models.has(data.payload.models.name.indexOf(data.payload.jobs.model[row] ?? "")));
    const level = store.get("typeLevel");
    const things = kind === "types" ? ({ kind: "type", level } as const) : ({ kind: "community", level: 0 } as const);
    return every.filter(index => data.members({ ...things, index }).some(entity => modules.has(entity)));
  }
}

const indices = (count: number): number[] => Array.from({ length: count }, (_, i) => i);

function typeWords(level: number): string {
  return level === 1 ? "1: same class and children" : level === 2 ? "2: depth families" : String(level);
}
