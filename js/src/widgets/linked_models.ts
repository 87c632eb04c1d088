// Links between widgets of one page: structures that are selected, and shares of parameters that a draft removes.

import { Hierarchy } from "../core/shared/model/hierarchy";
import { readPayload } from "../core/shared/payload/payload";
import { readKnowledge } from "../core/knowledge/data/payload";
import type { Uncut } from "../core/masks/draft/counters";
import type { PlanData } from "../core/masks/draft/plan_data";

/** The part of a widget's model that is used. */
export interface LinkedModel {
  readonly comm_live: boolean;
  get(name: string): unknown;
  set(values: Record<string, unknown>): unknown;
  save_changes(): void;
  on(event: string, listener: () => void): unknown;
  off(event: string, listener: () => void): unknown;
}

/** The models of a trait that names others: those that are there, and can do what a link asks of them. */
export function linkedModels<T>(models: unknown, ability: keyof T): T[] {
  return Array.isArray(models) ? models.filter(model => typeof (model as T | null)?.[ability] === "function") : [];
}

/** A structure selected in an explorer is selected in linked model graphs, at its first path, and the other way round. */
export class StructureLink {
  private graphs: readonly LinkedModel[] = [];
  private readonly hierarchies = new WeakMap<object, Hierarchy | null>();
  private readonly heard = new Map<LinkedModel, () => void>();

  constructor(private readonly explorer: LinkedModel) {}

  follow(graphs: readonly LinkedModel[]): void {
    this.dispose();
    this.graphs = graphs;
    for (const graph of graphs) {
      const listener = () => this.fromGraph(graph);
      graph.on("change:selected", listener);
      this.heard.set(graph, listener);
    }
  }

  dispose(): void {
    this.heard.forEach((listener, graph) => void graph.off("change:selected", listener));
    this.heard.clear();
  }

  /** The explorer's selection has changed. */
  toGraphs(): void {
    const digest = this.digest();
    if (digest === undefined) return;
    for (const graph of this.graphs) {
      const h = this.hierarchy(graph);
      if (!h || digestAt(h, graph.get("selected")) === digest) continue;
      const entity = h.payload.entities.digest.indexOf(digest);
      const node = entity < 0 ? -1 : h.payload.nodes.entity.indexOf(entity);
      if (node >= 0) put(graph, h.path(node));
    }
  }

  private fromGraph(graph: LinkedModel): void {
    const h = this.hierarchy(graph);
    const digest = h && digestAt(h, graph.get("selected"));
    if (digest === undefined || digest === null || digest === this.digest() || !this.isKnown(digest)) return;
    put(this.explorer, digest);
  }

  /** The fingerprint that is selected, or that of the selected model's root. */
  private digest(): string | undefined {
    const selected = this.explorer.get("selected");
    if (typeof selected !== "string") return undefined;
    if (!selected.startsWith("Model:")) return selected;
    try {
      const { models, entities } = readKnowledge(this.explorer.get("payload"));
      return entities.digest[models.root[models.name.indexOf(selected.slice("Model:".length))]];
    } catch {
      return undefined;
    }
  }

  private isKnown(digest: string): boolean {
    const payload = this.explorer.get("payload") as { entities?: { digest?: unknown } } | null;
    const digests = payload?.entities?.digest;
    return Array.isArray(digests) && digests.includes(digest);
  }

  private hierarchy(graph: LinkedModel): Hierarchy | null {
    const payload = graph.get("payload");
    if (typeof payload !== "object" || payload === null) return null;
    let found = this.hierarchies.get(payload);
    if (found === undefined) {
      try {
        found = new Hierarchy(readPayload(payload));
      } catch {
        found = null; // a graph that cannot be shown has no selection
      }
      this.hierarchies.set(payload, found);
    }
    return found;
  }
}

function digestAt(h: Hierarchy, path: unknown): string | undefined {
  const node = typeof path === "string" ? h.find(path) : undefined;
  return node === undefined ? undefined : h.payload.entities.digest[h.payload.nodes.entity[node]];
}

function put(model: LinkedModel, selected: string): void {
  model.set({ selected });
  if (model.comm_live) model.save_changes();
}

/** The part of an explorer's model that is used. */
export interface LinkedGraph {
  get(name: string): unknown;
  /** Sets values that are never sent. */
  set_state(state: Record<string, unknown>): void;
}

const DELAY = 120; // ms: an explorer paints all its modules anew

/** Linked graphs color their modules by the share of parameters that the draft removes, or that a cut has removed. */
export class GraphLink {
  private graphs: readonly LinkedGraph[] = [];
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stop: (() => void) | undefined;

  constructor(
    private readonly dataOf: () => PlanData | null,
    private readonly uncutOf: () => Uncut = () => new Map()
  ) {}

  /** Other explorers, or another payload. */
  follow(graphs: readonly LinkedGraph[]): void {
    this.stop?.();
    this.graphs = graphs;
    this.stop = this.dataOf()?.draft.onChange(() => this.later());
    this.later();
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.stop?.();
  }

  private later(): void {
    if (this.graphs.length) this.timer ??= setTimeout(() => this.tell(), DELAY);
  }

  private tell(): void {
    this.timer = undefined;
    const data = this.dataOf();
    if (!data) return;
    const uncut = this.uncutOf();
    const isPruned = !data.isEmpty || uncut.size > 0;
    const pruned = isPruned ? data.counters.shares(uncut) : {};
    for (const graph of this.graphs) {
      const isEmpty = Object.keys((graph.get("pruned") ?? {}) as object).length === 0;
      if (!isEmpty || isPruned) graph.set_state({ pruned });
    }
  }
}
