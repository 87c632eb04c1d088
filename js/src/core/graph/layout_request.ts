// Layout requests for the part of a model that is drawn, and how much of it at first, so that it fits.

import { initialExpansion, MAX_CARDS } from "./initial_expansion";
import type { Hierarchy } from "../shared/model/hierarchy";
import type { LayoutClient } from "../layout/client";
import type { LayoutGroup, LayoutRequest, LayoutResult, Size } from "../layout/types";
import type { Measure } from "../shared/base/canvas";
import { flowOf, pageFor, Pages, sceneOf, turnPage } from "./scene_source";
import { hardLimit, isManyNodes, manyNodes, softLimit } from "../shared/model/expansion";
import type { Scene } from "./scene/scene_types";
import { GraphStore, type ViewName } from "../shared/model/graph_store";
import { type Extent, fitsLegibly, LEGIBLE_ZOOM, MARGIN } from "../shared/stage/viewport";

const STRUCTURES = [Infinity, 48, 36, 28, 20, 14, 10]; // that are drawn once each, as many as fit
const leftOut = (): string => `Only the ${hardLimit()} most used structures are drawn.`;
const DRAWN_CLOSED = "Some open groups are drawn closed: focus on a group to see its inside.";
const OTHER = 0.1; // change of a side that is worth another layout: more than a scroll bar or the strip takes

/** Whether a notice is on what is drawn, and goes once that is otherwise. */
export function isSceneNotice(notice: string): boolean {
  return isManyNodes(notice) || /^Only the \d+ most used structures/.test(notice) || notice === DRAWN_CLOSED;
}

export class LayoutRequestBuilder {
  private readonly pages = new Pages();
  private extent: Extent = { width: 1, height: 1 };
  private isLike = false;
  private readonly rows = new Map<string, readonly string[]>(); // by container: what began its rows when it was last drawn

  constructor(
    private readonly h: Hierarchy,
    private readonly store: GraphStore,
    private readonly measure: Measure,
    private readonly layouts: LayoutClient,
    private readonly view: ViewName,
    private readonly isCompared: boolean
  ) {}

  /** Takes the size of the canvas, as far as layouts go; whether there is room for another one. */
  fill({ clientWidth, clientHeight }: HTMLElement): boolean {
    const [width, height] = [clientWidth || 960, clientHeight || 600];
    const differs = (now: number, before: number) => Math.abs(now - before) > OTHER * now;
    const isOther = differs(width, this.extent.width) || differs(height, this.extent.height);
    if (isOther) {
      this.extent = { width, height };
      this.forget();
    }
    return isOther;
  }

  scene(): Scene {
    return this.sceneWith(this.store, this.pages.window);
  }

  /** Whether what was asked for last was to be like the drawing before. */
  get isLikeBefore(): boolean {
    return this.isLike;
  }

  /** In rows like those that were drawn last. */
  request(scene: Scene): LayoutRequest {
    const request = this.freshRequest(scene);
    this.isLike = this.rows.size > 0;
    if (!this.isLike) return request;
    const places = new Map(scene.nodes.map(({ id }, place) => [id, place]));
    const groups = request.groups.map(group => {
      const rows = this.rows.get(containerOf(scene, group))?.flatMap(id => places.get(id) ?? []);
      return rows && rows.length > 0 ? { ...group, rows } : group;
    });
    return { ...request, groups };
  }

  /** What is drawn now: the next drawing is to be like it. */
  remember(scene: Scene, layout: LayoutResult): void {
    scene.groups.forEach((group, at) => {
      const { rows } = layout.groups[at];
      this.rows.set(
        containerOf(scene, group),
        rows.map(place => scene.nodes[place].id)
      );
    });
  }

  /** The next drawing need not be like the last. */
  forget(): void {
    this.rows.clear();
  }

  private freshRequest({ nodes, groups }: Scene): LayoutRequest {
    const { width, height } = this.extent;
    const room: Size = [Math.max(1, width - 2 * MARGIN), Math.max(1, height - 2 * MARGIN)];
    return { sizes: nodes.map(node => node.size), groups, room };
  }

  /** What there is to say of it; "" for nothing. */
  notice({ count, capped }: Scene): string {
    if (capped) return this.view === "deduplicated" ? leftOut() : DRAWN_CLOSED;
    return count > softLimit() ? manyNodes() : "";
  }

  /** Turns to the pages that show a module; whether any page changed. */
  turnTo(node: number): boolean {
    const { h, store, pages, view } = this;
    return pageFor(h, store, pages, node, flowOf(view, h, this.isCompared));
  }

  /** Answers a click on "⋯ more": the id of the container, null for any other pill. */
  turn(id: string): string | null {
    return turnPage(this.h, this.pages, id);
  }

  /** Draws every structure, however small that gets. */
  drawAll(): void {
    this.pages.window = Infinity;
  }

  /** Draws and opens what fits, as long as nobody has chosen what is open. */
  openToFit(): void {
    const { h, store, pages } = this;
    if (this.view === "deduplicated") {
      const fits = (count: number) => this.fits(this.layoutWith(store, count));
      pages.window = STRUCTURES.find(fits) ?? STRUCTURES[STRUCTURES.length - 1];
      return;
    }
    if (!store.get("openToFit") || this.isCompared) {
      return;
    }
    const selected = h.find(store.get("selected") ?? "") ?? 0;
    const kept = h.ancestors(selected).slice(1);
    const trial = new GraphStore({ ...store.snapshot(), stretches: new Set() });
    const opening = initialExpansion(
      h,
      store.get("focus"),
      kept.map(node => h.path(node)),
      ({ expanded, window }) => {
        trial.set("expanded", expanded);
        return this.layoutWith(trial, window);
      },
      (layout, zoom) => this.fits(layout, zoom),
      this.ranInside()
    );
    pages.window = opening.window;
    store.set("opening", opening.expanded);
    store.set("expanded", opening.expanded);
  }

  /** Whether the forward pass called a module inside a container; where there is none, whether there is a container. */
  private ranInside(): (node: number) => boolean {
    const [flow] = flowOf(this.view, this.h, this.isCompared) ?? [];
    if (!flow) return () => true;
    const ran = new Set(flow.payload.calls.node.flatMap(node => this.h.ancestors(node)));
    return node => ran.has(node);
  }

  private sceneWith(store: GraphStore, window: number): Scene {
    return sceneOf(this.view, this.h, store, this.measure, this.pages.starts, this.isCompared, window);
  }

  private layoutWith(store: GraphStore, window: number): LayoutResult | undefined {
    const scene = this.sceneWith(store, window);
    return scene.nodes.length > MAX_CARDS ? undefined : this.layouts.runHere(this.freshRequest(scene));
  }

  private fits(layout: LayoutResult | undefined, zoom = LEGIBLE_ZOOM): boolean {
    return layout !== undefined && fitsLegibly(layout.bounds, this.extent, zoom);
  }
}

/** The id of what the group is the inside of; "" for the canvas. */
const containerOf = ({ nodes }: Scene, { node }: LayoutGroup): string => (node < 0 ? "" : nodes[node].id);
