// The map of the graph on its stage, in step with the store.

import { measurer } from "../../shared/base/canvas";
import { boundsOf, type Box, type CameraPose, type Point } from "../../shared/stage/viewport";
import { Debounced, Disposers, listen } from "../../shared/ui/dom";
import { userPose, Stage, type StageElement, type StagePicture } from "../../shared/stage/stage";
import { readTheme, type Theme, watchTheme } from "../../shared/stage/theme";
import { Tooltip } from "../../shared/ui/tooltip";
import { onSettings } from "../../shared/base/settings";
import { type MapItem, type MapPicture, relatedTo } from "../data/map_items";
import type { Knowledge } from "../data/knowledge";
import { type NodeColors, nodeColors } from "./node_colors";
import { type Circle, type GroupPosition, groupPositions, layoutCircles } from "./circle_layout";
import { type Rect, EDGE } from "./map_labels";
import { CirclePainter, type Painted } from "./circle_painter";
import { buildPicture, mapOptions, itemOf, revealSelected } from "./map_contents";
import type { ExplorerStore, Groups } from "../data/state";
import { tooltipOf } from "../data/descriptions";
import * as words from "../../words/knowledge";

interface MapEvents {
  open(id: string): void;
  narrow(item: MapItem): void;
  drawn(picture: MapPicture): void;
}

/** What is on the stage, with the names on the screen: left, top, right and bottom. */
interface MapStagePicture extends StagePicture {
  readonly labels: readonly { readonly id: string; readonly kind: string; readonly text: string; readonly box: Rect }[];
}

const RESHAPED = 0.12; // logarithm of how much wider or higher a canvas is, from which groups get other places
const HOVER = 60; // ms until the box beside the pointer comes

/** Places of the groups, for a canvas of an aspect. */
export interface GroupPlacement {
  readonly homes: readonly GroupPosition[];
  readonly aspect: number; // width to height; 0: it had none
  readonly groups: Groups;
}

const isReshaped = (aspect: number, before: number): boolean => Math.abs(Math.log(aspect / before)) > RESHAPED;

export class KnowledgeMap {
  private readonly disposers = new Disposers();
  private readonly measure = measurer();
  private readonly stage: Stage;
  private readonly tip: Tooltip;
  private readonly painter = new CirclePainter(this.measure);
  private settled: GroupPlacement = { homes: [], aspect: 0, groups: "families" };
  private readonly hovering = new Debounced(() => this.showTip(), HOVER);
  private theme: Theme;
  private inks: NodeColors;
  private shown: MapPicture;
  private circles: readonly Circle[] = [];
  private painted: Painted = { items: [], links: [], related: [], hovered: null };
  private hovered: string | null = null;
  private stale = false;
  private isOpened = false;
  private dead = false;

  constructor(
    private readonly wrap: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore,
    private readonly events: MapEvents,
    private readonly dock?: HTMLElement,
    { look, settled }: { readonly look?: CameraPose; readonly settled?: GroupPlacement } = {}
  ) {
    if (settled) this.settled = settled;
    this.theme = readTheme(wrap);
    this.inks = nodeColors(data, store, this.theme.dark);
    this.stage = this.makeStage();
    this.tip = new Tooltip(wrap);
    revealSelected(data, store);
    this.stage.measure();
    this.shown = this.settle();
    this.listen();
    this.refresh();
    this.isOpened = look !== undefined;
    if (look) this.stage.camera.restore(look);
    else this.showSelected();
  }

  /** Where somebody has moved the camera. */
  get moved(): CameraPose | undefined {
    return userPose(this.stage);
  }

  /** Where the groups stand, to be given to a map of the same models. */
  get groups(): GroupPlacement {
    return this.settled;
  }

  /** Gives the groups their places, unless they have them; the picture while none is open. */
  private settle(): MapPicture {
    const groups = this.store.get("groups");
    const closed = buildPicture(this.data, { groups, expanded: [], query: "", selected: null });
    const { homes, aspect } = this.settled;
    if (homes.length > 0 && this.settled.groups === groups && !isReshaped(this.aspect, aspect)) return closed;
    this.settled = { homes: groupPositions(closed.items, closed.links, this.aspect), aspect: this.aspect, groups };
    return closed;
  }

  /** Other groups: another picture, to be looked at from the beginning. */
  private regroup(): void {
    this.settle();
    this.refresh();
    this.fit();
  }

  /** The element that the keyboard uses. */
  get host(): StageElement {
    return this.stage.host;
  }

  get picture(): MapPicture {
    return this.shown;
  }

  fit(): void {
    const { camera } = this.stage;
    camera.fit(this.boxes());
    const [aside, above] = EDGE.map(pixels => pixels / camera.pose.zoom);
    const named = ([left, top, width, height]: Box): Box => [
      left - aside,
      top - above,
      width + 2 * aside,
      height + 2 * above
    ];
    camera.fit(this.boxes().map(named));
  }

  zoomToSelection(): void {
    const selected = itemOf(this.data, this.shown.items, this.store.get("selected"), this.store.get("item"));
    const circle = selected && this.circles[this.shown.items.indexOf(selected)];
    if (circle) this.stage.flight.to(this.stage.camera.lookInto(boxOf(circle)));
  }

  /** The nearest circle in a direction, in the same group as the selected one; the first one when none is selected. */
  neighbour(dx: number, dy: number): MapItem | undefined {
    const { items } = this.shown;
    const selected = itemOf(this.data, items, this.store.get("selected"), this.store.get("item"));
    if (!selected) return items.find(({ thing }) => thing !== null);
    const from = this.circles[items.indexOf(selected)];
    let best: { item?: MapItem; distance: number } = { distance: Infinity };
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
    if (place >= 0) this.stage.camera.show(boxOf(this.circles[place]));
  }

  dispose(): void {
    this.dead = true;
    this.hovering.cancel();
    this.disposers.dispose();
    this.stage.dispose();
  }

  private makeStage(): Stage {
    return new Stage(
      this.wrap,
      words.MAP,
      { least: 0.04, most: 5, isOverview: true },
      {
        paint: (context, view) => this.painter.paint(context, this.painted, view, this.theme),
        hit: at => this.hit(at),
        press: () => this.host.focus({ preventScroll: true }),
        tap: id => this.tapped(id),
        doubleTap: id => this.doubleTapped(id),
        doubleTapGround: () => this.fit(),
        hover: id => this.hover(id),
        resized: () => this.resized(),
        picture: () => this.content()
      },
      this.dock
    );
  }

  private listen(): void {
    const { store } = this;
    this.disposers.add(
      store.on(["expanded", "query"], () => this.invalidate()),
      store.on("groups", () => this.regroup()),
      store.on("colorBy", () => this.recolor()),
      store.on("selected", () => this.followSelection()),
      store.on("item", () => this.redecorate()),
      onSettings(() => this.invalidate()),
      watchTheme(() => {
        this.theme = readTheme(this.wrap);
        this.recolor();
      }),
      listen(this.host, "focus", () =>
        this.host.classList.toggle("mkg-by-keyboard", this.host.matches(":focus-visible"))
      )
    );
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
    this.shown = buildPicture(this.data, mapOptions(this.store));
    this.circles = layoutCircles(this.shown.items, this.settled.homes);
    this.redecorate();
    this.moveCamera(isFirst, before);
    this.events.drawn(this.shown);
  }

  /** What has been opened is to be seen; else all of it, as long as nobody has moved it. */
  private moveCamera(isFirst: boolean, before: ReadonlySet<string>): void {
    const opened = this.shown.items.findIndex(({ id, isOpen }) => isOpen && !before.has(id));
    if (opened >= 0 && !isFirst) this.focus(this.circles[opened]);
    else if (isFirst || !this.stage.camera.isTouched) this.fit();
  }

  /** The circle in the middle, as large as it can be seen as a whole. */
  private focus({ x, y, r }: Circle): void {
    const { camera } = this.stage;
    const room = Math.min(camera.extent.width, camera.extent.height);
    camera.centre([x, y], Math.min(1.15, Math.max(0.3, room / (2 * r + 60))));
  }

  private recolor(): void {
    this.inks = nodeColors(this.data, this.store, this.theme.dark);
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
      related,
      hovered: this.hovered
    };
    const fills = this.painted.items.map(({ circle, fill, item }) => ({
      box: boxOf(circle),
      fill,
      frame: item.isOpen
    }));
    this.stage.minimap.show(
      fills.filter(({ frame }) => !frame),
      boundsOf(this.boxes()),
      this.theme
    );
    this.stage.schedule();
  }

  private resized(): void {
    const isFirst = !this.isOpened;
    this.isOpened = true;
    if (this.circles.length === 0 || (!isFirst && this.stage.camera.isTouched)) return;
    if (isReshaped(this.aspect, this.settled.aspect)) this.regroup();
    else this.fit();
  }

  /** Width to height of the canvas; 0 while it has none. */
  private get aspect(): number {
    const { width, height } = this.stage.camera.extent;
    return height > 0 ? width / height : 0;
  }

  /** The circle that lies on top there: the innermost one. */
  private hit([x, y]: Point): string | null {
    let best: MapItem | undefined;
    this.shown.items.forEach((item, place) => {
      const circle = this.circles[place];
      if (circle && item.depth >= (best?.depth ?? 0) && Math.hypot(x - circle.x, y - circle.y) <= circle.r) best = item;
    });
    return best?.id ?? null;
  }

  private content(): MapStagePicture {
    const { items } = this.shown;
    const id = (place: number): string => items[place].id;
    return {
      items: this.painted.items.map(({ item, circle, fill, isSelected }) => ({
        id: item.id,
        title: item.title,
        parent: item.parent < 0 ? null : id(item.parent),
        box: boxOf(circle),
        fill,
        isOpen: item.isOpen,
        isSelected,
        onAxis: false
      })),
      lines: this.painted.links.map(({ from, to }) => ({ source: id(from), target: id(to), label: "" })),
      labels: this.painter.drawn.map(({ item, kind, lines, box }) => ({
        id: id(item),
        kind,
        text: lines.map(({ text }) => text).join(" "),
        box
      }))
    };
  }

  private boxes(): Box[] {
    return this.circles.map(boxOf);
  }

  private item(id: string): MapItem | undefined {
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
    this.painted = { ...this.painted, hovered: id };
    this.stage.schedule();
    this.host.classList.toggle("mkg-is-pointing", id !== null);
    if (id === null) this.tip.hide();
    this.hovering.call();
  }

  private showTip(): void {
    const place = this.shown.items.findIndex(({ id }) => id === this.hovered);
    const item = this.shown.items[place];
    if (!item) return;
    const { zoom, ...pan } = this.stage.camera.pose;
    const { x, y, r } = this.circles[place];
    const { heading, rows, notes } = tooltipOf(this.data, item);
    const top = item.isOpen ? y * zoom + pan.y - r * zoom : y * zoom + pan.y;
    this.tip.show(x * zoom + pan.x + Math.min(r, 40) * zoom, Math.max(0, top), heading, rows, notes);
  }
}

function boxOf({ x, y, r }: Circle): Box {
  return [x - r, y - r, 2 * r, 2 * r];
}
