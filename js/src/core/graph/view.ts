// The graph on the canvas: keeps cytoscape, the painter and the minimap in step with the store.

import cytoscape, { type Core, type EventObject } from "cytoscape";
import { canvasContext, measurer } from "./cards";
import { colorOf } from "../shared/color";
import { Disposers, el, listen } from "../shared/dom";
import { applyScene, selectOnly } from "./elements";
import type { Scene as PlainScene } from "../export/scene";
import { GraphCamera } from "./camera";
import { GraphDecor } from "./decor";
import { type PaintItem, Painter } from "./paint";
import { exportPng } from "./png";
import { readTheme, stylesheet, type Theme, watchTheme } from "./style";
import { doubleTapped, type TapActions, tapped } from "./taps";
import type { Hierarchy } from "../shared/hierarchy";
import type { LayoutRequest, LayoutResult } from "./layout";
import { LayoutClient } from "./layout_client";
import { Minimap } from "./minimap";
import { Offer } from "./offer";
import { pageFor, turnPage } from "./pages";
import type { Status } from "../shared/payload";
import { plainScene } from "./plain_scene";
import { onPreferences } from "../shared/preferences";
import { hardLimit, isManyNodes, manyNodes, reveal, softLimit, toggle } from "./reveal";
import { boundsOf, placed, type Placed } from "./routes";
import { idOf, type Scene } from "./scene";
import { sceneOf } from "./scene_source";
import type { GraphState, Store, ViewName } from "../shared/store";
import { WheelGuard } from "../shared/wheel";

export interface GraphOptions {
  view?: Exclude<ViewName, "diff">;
  status?: readonly Status[]; // marks of a comparison, by node
  onReady?: () => void;
}

const SMALLEST_ZOOM = 0.72; // at which rows should still fit the width
const leftOut = (): string => `Only the ${hardLimit()} most used structures are drawn.`;
const isLeftOut = (notice: string): boolean => /^Only the \d+ most used structures/.test(notice);
const DRAWN_CLOSED = "Some open groups are drawn closed: focus on a group to see its inside.";

export class GraphView {
  readonly host: HTMLElement; // the element that the keyboard uses
  private readonly disposers = new Disposers();
  private readonly measure = measurer();
  private readonly layouts = new LayoutClient();
  private readonly cy: Core;
  private readonly camera: GraphCamera;
  private readonly painter?: Painter;
  private readonly picture = el("canvas", "mkg-graph-picture");
  private readonly minimap: Minimap;
  private readonly offer: Offer;
  private readonly wheel: WheelGuard;
  private readonly decor: GraphDecor;
  private readonly pages = new Map<number, number>();
  private theme: Theme;
  private placed?: Placed;
  private anchor: string | null = null; // id whose card stays where it is on the screen
  private shape = { width: 0, aspect: 1, maxWidth: 0 }; // of the canvas, as far as layouts go
  private expanded: readonly string[];
  private stale = false;
  private refocused = false; // another inside fills the canvas
  private pursued = false; // the selection was made elsewhere and has to come into view
  private tapping = false;
  private dead = false;

  constructor(
    private readonly wrap: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: Store,
    private readonly options: GraphOptions = {}
  ) {
    wrap.classList.add("mkg-canvas-wrap");
    this.host = el("div", "mkg-graph-canvas");
    this.host.tabIndex = 0;
    this.host.setAttribute("role", "application");
    this.host.setAttribute("aria-label", "Model graph. The module tree beside it offers the same by keyboard.");
    const minimapHost = el("div");
    wrap.append(this.host, this.picture, minimapHost);
    this.theme = readTheme(wrap);
    this.expanded = store.get("expanded");
    const context = canvasContext() && this.picture.getContext("2d");
    this.painter = context ? new Painter(context, this.measure) : undefined;
    this.cy = this.createCore(context === null);
    this.camera = new GraphCamera(this.cy, options.view === "deduplicated");
    this.decor = new GraphDecor(h, store, options);
    this.minimap = new Minimap(minimapHost, this.cy);
    this.offer = new Offer(wrap, h, store);
    this.wheel = new WheelGuard(wrap);
    this.listen();
    this.followSelection();
    this.resize();
    this.refresh();
  }

  /** What is on the canvas, with absolute centres. */
  scene(): PlainScene {
    return this.placed ? plainScene(this.placed, colorOf(this.h, this.store)) : { nodes: [], edges: [] };
  }

  exportPng(): Promise<Blob> {
    return exportPng(this.decor.items(), this.decor.edges(), this.measure, this.theme);
  }

  fit(): void {
    this.camera.fit(this.placed?.boxes ?? []);
  }

  /** Opens or closes a card; where that would be too much, offers what would help. */
  toggle(node: number): void {
    if (this.options.view === "deduplicated") {
      return;
    }
    this.offer.hide();
    if (!toggle(this.h, this.store, node)) {
      this.offer.show(node);
    }
  }

  dispose(): void {
    this.dead = true;
    this.disposers.dispose();
    this.layouts.dispose();
    this.minimap.dispose();
    this.offer.dispose();
    this.wheel.dispose();
    this.cy.destroy();
    this.wrap.replaceChildren();
  }

  private createCore(headless: boolean): Core {
    const cy = cytoscape({
      container: headless ? undefined : this.host,
      headless,
      styleEnabled: true,
      style: stylesheet(),
      layout: { name: "preset" },
      autoungrabify: true,
      boxSelectionEnabled: false,
      minZoom: 0.04,
      maxZoom: 4,
      pixelRatio: "auto"
    });
    cy.on("tapstart tapend", () => this.takeFocus());
    const actions: TapActions = {
      select: (path, step, inView) => this.select(path, step, inView),
      toggle: node => this.toggle(node),
      turn: id => this.turn(id)
    };
    const hit = (event: EventObject, act: (item: PaintItem) => void) => {
      const item = this.decor.itemOf(event.target.id());
      if (item) {
        act(item);
      }
    };
    cy.on("tap", "node", event => hit(event, item => tapped(item, event.position, this.h, actions)));
    cy.on("dbltap", "node", event => hit(event, item => doubleTapped(item, event.position, actions)));
    cy.on("render", () => this.paint());
    cy.on("viewport", () => this.minimap.schedule());
    return cy;
  }

  private listen(): void {
    const structural: (keyof GraphState)[] =
      this.options.view === "deduplicated" ? [] : ["expanded", "shown", "unfolded", "focus"];
    structural.forEach(key => this.disposers.add(this.store.on(key, () => this.invalidate())));
    this.disposers.add(this.store.on("expanded", () => this.anchorToggled()));
    for (const key of ["colorBy", "overlay", "pruned", "query", "axis", "operator"] as const) {
      this.disposers.add(this.store.on(key, () => this.redecorate()));
    }
    this.disposers.add(
      this.store.on("selected", () => {
        this.followSelection();
        this.redecorate();
      }),
      this.store.on("focus", () => (this.refocused = true)),
      watchTheme(() => this.retheme()),
      onPreferences(() => this.invalidate())
    );
    this.disposers.add(
      listen(this.host, "focus", () => this.host.classList.toggle("mkg-by-keyboard", !this.tapping)),
      listen(this.host, "pointerdown", () => this.host.classList.remove("mkg-by-keyboard"))
    );
    if (typeof ResizeObserver !== "undefined") {
      const observer = new ResizeObserver(() => this.resize());
      observer.observe(this.wrap);
      this.disposers.add(() => observer.disconnect());
    }
  }

  /** A single group opened or closed, wherever that was done, stays where it is on the screen. */
  private anchorToggled(): void {
    const [before, now] = [this.expanded, this.store.get("expanded")];
    const toggled = [...difference(before, now), ...difference(now, before)];
    const node = toggled.length === 1 ? this.h.find(toggled[0]) : undefined;
    this.expanded = now;
    this.anchor = node === undefined ? this.anchor : idOf(this.h, node);
  }

  /** Several changes of the store in a row cost one layout. */
  private invalidate(): void {
    if (!this.stale) {
      this.stale = true;
      queueMicrotask(() => this.stale && this.refresh());
    }
  }

  private refresh(): void {
    this.stale = false;
    if (this.dead) {
      return;
    }
    const { view = "hierarchy", status } = this.options;
    const scene = sceneOf(view, this.h, this.store, this.measure, this.pages, status !== undefined);
    const request = this.request(scene);
    const layout = this.layouts.runNow(request);
    if (layout) {
      this.draw(scene, layout);
    } else {
      void this.layouts.run(request).then(result => result && this.draw(scene, result));
    }
  }

  private request({ nodes, groups }: Scene): LayoutRequest {
    const [width, height] = [this.wrap.clientWidth || 960, this.wrap.clientHeight || 600];
    // a new shape would lay out every group anew, so it takes more than a scroll bar or the strip to get one
    if (Math.abs(width - this.shape.width) > 0.1 * width) {
      this.shape = { width, aspect: width / height, maxWidth: width / SMALLEST_ZOOM };
    }
    const { aspect, maxWidth } = this.shape;
    return { sizes: nodes.map(node => node.size), groups, aspect, maxWidth };
  }

  private draw(scene: Scene, layout: LayoutResult): void {
    if (this.dead) {
      return;
    }
    const before = this.placed;
    this.placed = placed(scene, layout);
    this.notify(scene);
    this.applyDecor();
    this.aim(before, this.placed);
    if (!before) {
      this.announce();
    }
  }

  /** After a new layout: what was opened, or looked at, stays where it was. */
  private aim(before: Placed | undefined, after: Placed): void {
    const survives = (id: string) => this.decor.itemOf(id) !== undefined;
    const known = before?.scene.nodes.some(({ id }) => id === this.anchor) && survives(this.anchor ?? "");
    const looked = before && this.camera.isTouched ? this.camera.centralCard(before, survives) : null;
    const anchor = known ? this.anchor : looked;
    if (!before || this.refocused || anchor === null) {
      this.lookFirst(after);
    } else {
      this.camera.keep(anchor, before, after);
    }
    this.anchor = null;
    this.refocused = false;
    this.pursue();
  }

  /** The beginning, and what is selected; of a comparison the first difference. */
  private lookFirst({ boxes }: Placed): void {
    const sought = this.decor.itemOf(this.decor.idOfSelected() ?? "") ?? this.decor.firstDifference();
    this.camera.open(boxes);
    if (sought) {
      this.camera.show(sought.box);
    }
  }

  private pursue(): void {
    const item = this.pursued ? this.decor.itemOf(this.decor.idOfSelected() ?? "") : undefined;
    if (item) {
      this.camera.show(item.box);
      this.pursued = false;
    }
  }

  private notify({ count, capped }: Scene): void {
    const before = this.store.get("notice");
    const isMine = isManyNodes(before) || isLeftOut(before) || before === DRAWN_CLOSED;
    const closed = this.options.view === "deduplicated" ? leftOut() : DRAWN_CLOSED;
    const notice = capped ? closed : count > softLimit() ? manyNodes() : "";
    if (notice || isMine) {
      this.store.set("notice", notice);
    }
  }

  /** Colors, selection and hits of what is already laid out. */
  private applyDecor(): void {
    if (!this.placed) {
      return;
    }
    this.decor.update(this.placed, this.theme);
    applyScene(this.cy, this.placed, place => this.decor.look(place, this.theme));
    selectOnly(this.cy, this.decor.idOfSelected());
    this.painter?.setPicture(this.decor.items(), this.decor.edges());
    this.paint();
    this.minimap.show(this.decor.minimapItems(), boundsOf(this.placed.boxes), this.theme);
  }

  private redecorate(): void {
    if (!this.stale) {
      this.applyDecor();
      this.pursue();
    }
  }

  private retheme(): void {
    this.theme = readTheme(this.wrap);
    this.applyDecor();
  }

  private paint(): void {
    const { cy, picture } = this;
    const { x, y } = cy.pan();
    const ratio = picture.width / Math.max(1, cy.width());
    this.painter?.paint({ x, y, zoom: cy.zoom(), width: cy.width(), height: cy.height(), ratio }, this.theme);
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.wrap;
    const ratio = globalThis.devicePixelRatio || 1;
    if (width === 0 || height === 0 || this.dead) {
      return;
    }
    this.picture.width = Math.round(width * ratio);
    this.picture.height = Math.round(height * ratio);
    const before = this.cy.width();
    this.cy.resize();
    // a change of height alone is the strip coming or going: what is under the pointer stays there
    if (this.placed && !this.camera.isTouched && Math.abs(this.cy.width() - before) > 1) {
      this.lookFirst(this.placed);
    }
    this.paint();
  }

  /** A selection made elsewhere is brought into the picture. */
  private followSelection(): void {
    const path = this.store.get("selected");
    const node = path === null ? undefined : this.h.find(path);
    if (path === null || node === undefined || node === this.store.get("focus") || node === 0) {
      return;
    }
    if (this.options.view !== "deduplicated") {
      reveal(this.h, this.store, path);
      if (pageFor(this.h, this.store, this.pages, node)) {
        this.invalidate();
      }
    }
    this.pursued = !this.tapping;
  }

  private announce(): void {
    if (!this.options.onReady) {
      return;
    }
    const painted = () => requestAnimationFrame(() => this.dead || this.options.onReady?.());
    if (this.painter) {
      this.cy.one("render", painted);
    } else {
      painted();
    }
  }

  private takeFocus(): void {
    this.tapping = true;
    this.host.focus({ preventScroll: true });
    this.tapping = false;
  }

  private select(path: string, step: number | null, inView: boolean): void {
    this.tapping = inView;
    this.store.set("operator", step);
    this.store.set("selected", path);
    this.tapping = false;
  }

  private turn(id: string): void {
    const parentId = turnPage(this.h, this.pages, id);
    if (parentId !== null) {
      this.anchor = parentId;
      this.invalidate();
    }
  }
}

function difference(these: readonly string[], those: readonly string[]): string[] {
  const known = new Set(those);
  return these.filter(path => !known.has(path));
}
