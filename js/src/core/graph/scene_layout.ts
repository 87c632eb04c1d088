// The part of a model that is drawn, the request for its layout, and how much is open at first, so that it fits.

import * as words from "../words/graph";
import type { Hierarchy } from "../shared/model/hierarchy";
import { FONT, type Measure } from "../shared/base/canvas";
import type { LayoutClient } from "../layout/client";
import type { Scene } from "./scene/scene";
import { nodeLimit, manyNodes, noticeLimit } from "../shared/model/expansion";
import { GraphStore, type ViewName } from "../shared/model/graph_store";
import type { LayoutGroup, LayoutRequest, LayoutResult, Size } from "../layout/types";
import { type Extent, LEAST_TEXT, LEGIBLE_ZOOM, MARGIN } from "../shared/stage/viewport";
import { type Expansion, fittedExpansion, MAX_CARDS } from "./fitted_expansion";
import { flowOf, pageFor, Pages, sceneOf, turnPage } from "./scene_source";

const STRUCTURES = [Infinity, 48, 36, 28, 20, 14, 10]; // that are drawn once each, as many as fit
const LETTERS = [FONT.text, 13, 15]; // which are as large as they have to be at zooms at which a graph is read
const NEARLY = 1.1; // canvases: what is planned larger with small letters is not tried with larger ones
const OTHER = 0.1; // change of a side that is worth another layout: more than a scroll bar or the strip takes

/** The scene of a view and the request for its layout: in rows like the last ones, and at first opened as far as fits. */
export class SceneLayout {
  private readonly pages = new Pages();
  private extent: Extent = { width: 1, height: 1 };
  private isLike = false;
  private letters = 0; // the least size of letters that cards have room for
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
    return { sizes: nodes.map(node => node.size), groups, room, zoom: this.zoom };
  }

  /** What there is to say of it; "" for nothing. */
  notice({ count, capped }: Scene): string {
    if (capped) return this.view === "deduplicated" ? words.leftOut(nodeLimit()) : words.DRAWN_CLOSED;
    return count > noticeLimit() ? manyNodes() : "";
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

  /** Draws and opens what fits, as long as nobody has chosen what is open; with room for all text, where there is. */
  openToFit(): Scene {
    this.letters = 0;
    const small = this.open() ?? this.scene();
    const scenes = new Map([0, FONT.text].map(size => [size, small])); // by size of letters: none are smaller
    const sceneIn = (size: number) => {
      const scene = scenes.get(size) ?? this.scene();
      scenes.set(size, scene);
      return scene;
    };
    // small letters hardly ever take more room than larger ones: without labels most of that is drawn by now
    const isNear = (isLabelled: boolean) =>
      isLabelled ? this.mayBeLegible(small, this.zoom / NEARLY) : this.isLegible(small, this.zoom, false);
    const fits = (isLabelled: boolean) => (size: number) => {
      this.letters = size;
      return isNear(isLabelled) && this.isLegible(sceneIn(size), this.zoom, isLabelled);
    };
    if (!LETTERS.some(fits(true)) && !LETTERS.some(fits(false))) this.letters = 0;
    return sceneIn(this.letters);
  }

  /** At which what is drawn is to be read. */
  private get zoom(): number {
    return Math.max(LEGIBLE_ZOOM, this.letters > 0 ? LEAST_TEXT / this.letters : 0);
  }

  /** Chooses what is drawn; its scene, where that is known by then. */
  private open(): Scene | undefined {
    const { h, store, pages } = this;
    if (this.view === "deduplicated") {
      const fits = (count: number) => this.isLegible(this.sceneWith(store, count), LEGIBLE_ZOOM);
      pages.window = STRUCTURES.find(fits) ?? STRUCTURES[STRUCTURES.length - 1];
      return undefined;
    }
    if (!store.get("openToFit") || this.isCompared) return undefined;
    const selected = h.find(store.get("selected") ?? "") ?? 0;
    const kept = h.ancestors(selected).slice(1);
    const trial = new GraphStore({ ...store.snapshot(), stretches: new Set() });
    const scenes = new Map<Expansion, Scene>();
    const opening = fittedExpansion(
      h,
      store.get("focus"),
      kept.map(node => h.path(node)),
      (tried, zoom) => {
        trial.set("expanded", tried.expanded);
        const scene = scenes.get(tried) ?? this.sceneWith(trial, tried.window, MAX_CARDS);
        scenes.set(tried, scene);
        return this.isLegible(scene, zoom);
      },
      this.ranInside()
    );
    pages.window = opening.window;
    store.set("opening", opening.expanded);
    store.set("expanded", opening.expanded);
    return store.get("stretches").size > 0 ? undefined : scenes.get(opening);
  }

  /** Whether the forward pass called a module inside a container; where there is none, whether there is a container. */
  private ranInside(): (node: number) => boolean {
    const [flow] = flowOf(this.view, this.h, this.isCompared) ?? [];
    if (!flow) return () => true;
    const ran = new Set(flow.payload.calls.node.flatMap(node => this.h.ancestors(node)));
    return node => ran.has(node);
  }

  private sceneWith(store: GraphStore, window: number, most?: number): Scene {
    const measure: Measure = (text, size, bold) => this.measure(text, Math.max(size, this.letters), bold);
    return sceneOf(this.view, this.h, store, measure, this.pages.starts, this.isCompared, window, most);
  }

  /** With labels on lines, as far as that is known before it is drawn. */
  private mayBeLegible(scene: Scene, zoom: number): boolean {
    return scene.nodes.length <= MAX_CARDS && this.layouts.mayFit(this.freshRequest(scene), zoom);
  }

  /** Whether so much could be laid out at once, and then read. */
  private isLegible(scene: Scene, zoom: number, isLabelled?: boolean): boolean {
    return scene.nodes.length <= MAX_CARDS && this.layouts.canFit(this.freshRequest(scene), zoom, isLabelled);
  }
}

/** The id of what the group is the inside of; "" for the canvas. */
const containerOf = ({ nodes }: Scene, { node }: LayoutGroup): string => (node < 0 ? "" : nodes[node].id);
