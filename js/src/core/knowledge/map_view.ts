// The graph on the canvas: cytoscape has the camera and finds what is pointed at, the painter draws.

import cytoscape, { type Core, type ElementDefinition, type StylesheetStyle } from "cytoscape";
import { canvasContext, measurer } from "../graph/cards";
import { Debounced, Disposers, el, listen } from "../shared/dom";
import { GraphCamera } from "../graph/camera";
import { readTheme, type Theme, watchTheme } from "../graph/style";
import type { Box } from "../graph/layout";
import { Tip } from "../metrics/tip";
import { pixelRatio } from "../metrics/theme";
import { Minimap } from "../graph/minimap";
import { onPreferences } from "../shared/preferences";
import { boundsOf } from "../graph/routes";
import { WheelGuard } from "../shared/wheel";
import type { Knowledge } from "./data";
import { type Inks, inksOf } from "./ink";
import { type Circle, homesOf, layoutCircles, type Home } from "./layout";
import { relatedTo } from "./links";
import { CirclePainter, type Painted } from "./paint";
import { buildPicture, choiceOf, type Item, type Picture } from "./picture";
import { itemOf, revealSelected } from "./reveal";
import type { ExplorerStore } from "./state";
import { tipOf } from "./words";

export interface MapEvents {
  open(id: string): void;
  narrow(item: Item): void;
  drawn(picture: Picture): void;
}

const NAME = 34; // room for a name beside the outermost circles
const HOVER = 60; // ms until the box beside the pointer comes

// the painter draws: nothing of cytoscape's own is to be seen
const STYLE = [
  {
    selector: "node",
    style: {
      shape: "ellipse",
      width: "data(size)",
      height: "data(size)",
      "z-index": "data(depth)",
      "z-index-compare": "manual",
      "overlay-opacity": 0,
      opacity: 0
    }
  },
  { selector: "node:active", style: { "overlay-opacity": 0 } }
] as unknown as StylesheetStyle[]; // the typings know fewer properties than the library does

export class MapView {
  readonly host = el("div", "mkg-graph-canvas");
  private readonly disposers = new Disposers();
  private readonly measure = measurer();
  private readonly cy: Core;
  private readonly camera: GraphCamera;
  private readonly minimap: Minimap;
  private readonly wheel: WheelGuard;
  private readonly tip: Tip;
  private readonly canvas = el("canvas", "mkg-graph-picture");
  private readonly painter?: CirclePainter;
  private readonly homes: readonly Home[];
  private readonly hovering = new Debounced(() => this.showTip(), HOVER);
  private theme: Theme;
  private inks: Inks;
  private shown: Picture;
  private circles: readonly Circle[] = [];
  private painted: Painted = { items: [], links: [], related: [] };
  private hovered: string | null = null;
  private stale = false;
  private isOpened = false;
  private dead = false;
  private size = { width: 0, height: 0 };

  constructor(
    private readonly wrap: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore,
    private readonly events: MapEvents
  ) {
    wrap.classList.add("mkg-canvas-wrap");
    this.host.tabIndex = 0;
    this.host.setAttribute("role", "application");
    this.host.setAttribute("aria-label", "Graph of all models. The tree beside it offers the same by keyboard.");
    const corner = el("div");
    wrap.append(this.host, this.canvas, corner);
    this.theme = readTheme(wrap);
    this.inks = inksOf(data, store, this.theme.dark);
    const context = canvasContext() && this.canvas.getContext("2d");
    this.painter = context ? new CirclePainter(context, this.measure) : undefined;
    this.cy = this.createCore(context === null);
    this.camera = new GraphCamera(this.cy, true);
    this.minimap = new Minimap(corner, this.cy);
    this.wheel = new WheelGuard(wrap);
    this.tip = new Tip(wrap);
    const closed = buildPicture(data, { expanded: [], query: "", selected: null });
    this.homes = homesOf(closed.items, closed.links);
    this.shown = closed;
    revealSelected(data, store);
    this.listen();
    this.resize();
    this.refresh();
    this.showSelected();
  }

  get picture(): Picture {
    return this.shown;
  }

  fit(): void {
    const named = ([left, top, width, height]: Box): Box => [left - NAME, top, width + 2 * NAME, height + NAME / 2];
    this.camera.fit(this.boxes().map(named));
  }

  /** The nearest circle in a direction, in the same group as the selected one; the first one when none is selected. */
  neighbour(dx: number, dy: number): Item | undefined {
    const { items } = this.shown;
    const selected = itemOf(this.data, items, this.store.get("selected"), this.store.get("item"));
    if (!selected) return items.find(({ thing }) => thing !== null);
    const from = this.circles[items.indexOf(selected)];
    let best: { item?: Item; distance: number } = { distance: Infinity };
    items.forEach((item, place) => {
      if (!item.thing || item === selected || item.parent !== selected.parent) return;
      const [x, y] = [this.circles[place].x - from.x, this.circles[place].y - from.y];
      const along = x * dx + y * dy;
      const aside = Math.abs(x * dy - y * dx);
      if (along > 0 && aside <= 1.2 * along && along + 2 * aside < best.distance)
        best = { item, distance: along + 2 * aside };
    });
    return best.item;
  }

  /** Brings a circle into view. */
  show(id: string): void {
    const place = this.shown.items.findIndex(item => item.id === id);
    if (place >= 0) this.camera.show(boxOf(this.circles[place]));
  }

  dispose(): void {
    this.dead = true;
    this.hovering.cancel();
    this.disposers.dispose();
    this.minimap.dispose();
    this.wheel.dispose();
    this.cy.destroy();
    this.wrap.replaceChildren();
  }

  private createCore(headless: boolean): Core {
    const cy = cytoscape({
      container: headless ? undefined : this.host,
      headless,
      styleEnabled: true,
      style: STYLE,
      layout: { name: "preset" },
      autoungrabify: true,
      autounselectify: true,
      boxSelectionEnabled: false,
      minZoom: 0.04,
      maxZoom: 5,
      pixelRatio: "auto"
    });
    cy.on("tapstart", () => this.host.focus({ preventScroll: true }));
    cy.on("tap", "node", event => this.tapped(event.target.id()));
    cy.on("dbltap", "node", event => this.doubleTapped(event.target.id()));
    cy.on("mouseover", "node", event => this.hover(event.target.id()));
    cy.on("mouseout", "node", () => this.hover(null));
    cy.on("render", () => this.paint());
    cy.on("viewport", () => {
      this.minimap.schedule();
      this.hover(null);
    });
    return cy;
  }

  private listen(): void {
    const { store } = this;
    this.disposers.add(
      store.on(["expanded", "query"], () => this.invalidate()),
      store.on("colorBy", () => this.recolor()),
      store.on("selected", () => this.followSelection()),
      store.on("item", () => this.redecorate()),
      onPreferences(() => this.invalidate()),
      watchTheme(() => {
        this.theme = readTheme(this.wrap);
        this.recolor();
      }),
      listen(this.host, "focus", () =>
        this.host.classList.toggle("mkg-by-keyboard", this.host.matches(":focus-visible"))
      )
    );
    if (typeof ResizeObserver !== "undefined") {
      const observer = new ResizeObserver(() => this.resize());
      observer.observe(this.wrap);
      this.disposers.add(() => observer.disconnect());
    }
  }

  /** Several changes of the store in a row cost one drawing. */
  private invalidate(): void {
    if (this.stale) return;
    this.stale = true;
    queueMicrotask(() => this.stale && !this.dead && this.refresh());
  }

  private refresh(): void {
    this.stale = false;
    const before = new Set(this.shown.items.flatMap(({ id, isOpen }) => (isOpen ? [id] : [])));
    const isFirst = this.circles.length === 0;
    this.shown = buildPicture(this.data, choiceOf(this.store));
    this.circles = layoutCircles(this.shown.items, this.homes);
    this.place();
    this.redecorate();
    this.moveCamera(isFirst, before);
    this.events.drawn(this.shown);
  }

  /** What has been opened is to be seen; else all of it, as long as nobody has moved it. */
  private moveCamera(isFirst: boolean, before: ReadonlySet<string>): void {
    const opened = this.shown.items.findIndex(({ id, isOpen }) => isOpen && !before.has(id));
    if (opened >= 0 && !isFirst) this.look(this.circles[opened]);
    else if (isFirst || !this.camera.isTouched) this.fit();
  }

  /** The circle in the middle, as large as it can be seen as a whole. */
  private look({ x, y, r }: Circle): void {
    const { cy } = this;
    const room = Math.min(cy.width(), cy.height());
    const zoom = Math.min(1.15, Math.max(0.3, room / (2 * r + 60)));
    cy.viewport({ zoom, pan: { x: cy.width() / 2 - x * zoom, y: cy.height() / 2 - y * zoom } });
  }

  private place(): void {
    const { cy } = this;
    const wanted = new Map(this.shown.items.map((item, i) => [item.id, element(item, this.circles[i])]));
    cy.batch(() => {
      cy.remove(cy.nodes().filter(node => !wanted.has(node.id())));
      const added: ElementDefinition[] = [];
      for (const [id, definition] of wanted) {
        const known = cy.getElementById(id);
        if (known.empty()) added.push(definition);
        else known.data(definition.data).position({ ...(definition.position ?? { x: 0, y: 0 }) });
      }
      cy.add(added);
    });
  }

  private recolor(): void {
    this.inks = inksOf(this.data, this.store, this.theme.dark);
    this.redecorate();
  }

  private followSelection(): void {
    const { data, store } = this;
    revealSelected(data, store);
    if (this.stale) queueMicrotask(() => !this.dead && this.showSelected());
    else this.showSelected();
    this.redecorate();
  }

  private showSelected(): void {
    const item = itemOf(this.data, this.shown.items, this.store.get("selected"), this.store.get("item"));
    if (item && !item.isOpen) this.show(item.id);
  }

  private redecorate(): void {
    const { data, store, shown, circles, inks } = this;
    const selected = itemOf(data, shown.items, store.get("selected"), store.get("item"));
    const entity = selected?.kind === "module" ? selected.members[0] : undefined;
    const related = entity === undefined ? [] : relatedTo(data, shown.items, entity);
    this.painted = {
      items: shown.items.map((item, i) => ({
        item,
        circle: circles[i],
        fill: inks.of(item),
        isSelected: item === selected,
        isDim: shown.isSearched && !item.isHit
      })),
      links: shown.links,
      related
    };
    const fills = this.painted.items.map(({ circle, fill, item }) => ({
      box: boxOf(circle),
      fill,
      frame: item.isOpen
    }));
    this.minimap.show(
      fills.filter(({ frame }) => !frame),
      boundsOf(this.boxes()),
      this.theme
    );
    this.paint();
  }

  private paint(): void {
    if (this.dead || !this.painter) return;
    const { cy, canvas } = this;
    const ratio = pixelRatio();
    const { width, height } = this.size;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    this.painter.paint(this.painted, { ...cy.pan(), zoom: cy.zoom(), width, height, ratio }, this.theme);
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.wrap;
    if (width === this.size.width && height === this.size.height) return;
    this.size = { width, height };
    this.cy.resize();
    if (!this.isOpened || !this.camera.isTouched) this.fit();
    this.isOpened ||= width > 0;
    this.paint();
  }

  private boxes(): Box[] {
    return this.circles.map(boxOf);
  }

  private item(id: string): Item | undefined {
    return this.shown.items.find(item => item.id === id);
  }

  private tapped(id: string): void {
    const item = this.item(id);
    if (!item) return;
    if (!item.thing) {
      if (!item.isGroup) this.events.narrow(item);
      return;
    }
    this.store.set("item", id);
    this.store.set("selected", this.data.key(item.thing));
  }

  private doubleTapped(id: string): void {
    if (this.item(id)?.isGroup) this.events.open(id);
  }

  private hover(id: string | null): void {
    if (this.hovered === id) return;
    this.hovered = id;
    this.host.classList.toggle("mkg-is-pointing", id !== null);
    if (id === null) this.tip.hide();
    this.hovering.call();
  }

  private showTip(): void {
    const place = this.shown.items.findIndex(({ id }) => id === this.hovered);
    const item = this.shown.items[place];
    if (!item) return;
    const { zoom, pan } = { zoom: this.cy.zoom(), pan: this.cy.pan() };
    const { x, y, r } = this.circles[place];
    const { heading, rows, notes } = tipOf(this.data, item);
    const top = item.isOpen ? y * zoom + pan.y - r * zoom : y * zoom + pan.y;
    this.tip.show(x * zoom + pan.x + Math.min(r, 40) * zoom, Math.max(0, top), heading, rows, notes);
  }
}

function element({ id, depth }: Item, { x, y, r }: Circle): ElementDefinition {
  return { group: "nodes", selectable: false, data: { id, depth, size: 2 * r }, position: { x, y } };
}

function boxOf({ x, y, r }: Circle): Box {
  return [x - r, y - r, 2 * r, 2 * r];
}
