// The graph on its stage: follows the store and requests layouts.

import * as words from "../words/graph";
import { colorOf } from "../shared/stage/color";
import { ALL_STRUCTURES } from "./scene/hierarchy_scene";
import { Disposers, listen } from "../shared/ui/dom";
import type { GraphPicture } from "../export/graph_picture";
import { CardStyle } from "./paint/card_style";
import { type PaintItem } from "./paint/text_lines";
import { exportPng, GraphPainter } from "./paint/painter";
import { readTheme, type Theme, watchTheme } from "../shared/stage/theme";
import {
  boxOf,
  centralCard,
  neighbourOf,
  Navigator,
  toggledPath,
  handleDoubleClick,
  GraphHover,
  type ClickActions,
  handleClick
} from "./navigation";
import type { Camera } from "../shared/stage/camera";
import type { Hierarchy } from "../shared/model/hierarchy";
import { measurer } from "../shared/base/canvas";
import { LayoutClient } from "../layout/client";
import { TooManyNodesNotice } from "./parts/notices";
import type { Mark } from "../shared/model/differences";
import type { Status } from "../shared/payload/payload";
import { positionScene, type PlacedScene, pictureOf, type Scene, type SceneNode, idOf } from "./scene/scene";
import { onSettings } from "../shared/base/settings";
import { reveal, toggle } from "../shared/model/expansion";
import { isEqual } from "../shared/base/state_store";
import { type GraphState, GraphStore, type ViewName } from "../shared/model/graph_store";
import { Stage, type StageElement } from "../shared/stage/stage";
import type { LayoutResult } from "../layout/types";
import { boundsOf, type Box, type Extent } from "../shared/stage/viewport";
import { idOfSteps } from "./flow/flow_scene";
import { groupKey } from "../shared/model/operator_parts";
import { SceneLayout } from "./scene_layout";

interface GraphOptions {
  view?: Exclude<ViewName, "diff">;
  status?: readonly Status[]; // of a comparison, by node
  marks?: readonly (Mark | null)[];
  onReady?: () => void;
  dock?: HTMLElement; // place of the minimap, outside of the canvas
  onChanged?: (isLayout: boolean) => void; // what is drawn has other places, or the camera has moved
  lookFirst?: () => void; // in place of the first look at this graph alone
  beside?: () => readonly Box[]; // what stands beside it and has to fit as well, in its coordinates
}

export class GraphView {
  private readonly disposers = new Disposers();
  private readonly measure = measurer();
  private readonly layouts = new LayoutClient();
  private readonly painter = new GraphPainter(this.measure);
  private readonly stage: Stage;
  private readonly offer: TooManyNodesNotice;
  private readonly decor: CardStyle;
  private readonly sceneLayout: SceneLayout;
  readonly navigator: Navigator;
  private readonly hover: GraphHover;
  private theme: Theme;
  private placed?: PlacedScene;
  private anchor: string | null = null; // id whose card stays where it is on the screen
  private expanded: readonly string[];
  private stale = false;
  private refocused = false; // another inside fills the canvas
  private pursued = false; // the selection was made elsewhere and has to come into view
  private tapping = false;
  private dead = false;
  private said = ""; // the notice on what is drawn: it goes once that is otherwise
  private refitted = false; // all was in view, and shall be in the next layout

  constructor(
    private readonly wrap: HTMLElement,
    private readonly h: Hierarchy,
    private readonly store: GraphStore,
    private readonly options: GraphOptions = {}
  ) {
    const { view = "hierarchy", status } = options;
    this.sceneLayout = new SceneLayout(h, store, this.measure, this.layouts, view, status !== undefined);
    this.theme = readTheme(wrap);
    this.expanded = store.get("expanded");
    this.decor = new CardStyle(h, store, options);
    this.stage = this.makeStage();
    this.offer = new TooManyNodesNotice(wrap, h, store);
    this.navigator = new Navigator(this.stage, this.decor, h, store, () => this.placed?.bounds ?? boundsOf([]));
    this.hover = new GraphHover(wrap, h, store, this.decor, () => this.stage.schedule());
    this.listen();
    this.followSelection();
    this.stage.measure();
    this.refresh(this.openToFit());
  }

  /** The element that the keyboard uses. */
  get host(): StageElement {
    return this.stage.host;
  }

  /** What is on the canvas, with absolute centres. */
  scene(): GraphPicture {
    return this.placed ? pictureOf(this.placed, colorOf(this.h, this.store)) : { nodes: [], edges: [] };
  }

  exportPng(): Promise<Blob> {
    return exportPng(this.decor.items(), this.decor.edges(), this.measure, this.theme);
  }

  /** Everything, in the rows that fill the canvas best. */
  fit(): void {
    if (this.sceneLayout.isLikeBefore) {
      this.refitted = true;
      this.invalidate();
    }
    const beside = this.options.beside?.() ?? [];
    if (this.placed) this.stage.camera.fit([this.placed.bounds, ...beside]);
  }

  get camera(): Camera {
    return this.stage.camera;
  }

  /** What is drawn: cards and frames with their places. */
  items(): readonly PaintItem[] {
    return this.decor.items();
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

  /** Selects the card after or before the selected one, in the order of its frame; false where the canvas has none. */
  step(direction: number): boolean {
    const isKnown = !this.stale && this.options.view !== "deduplicated";
    const items = isKnown ? this.decor.items() : [];
    const next = neighbourOf(items, this.decor.idOfSelected(), direction);
    if (!next) return false;
    const { index, owner, steps, step } = next.node;
    this.pursued = true;
    this.select(this.h.path(owner ?? index), steps ?? (step === undefined ? null : [step]), false);
    return true;
  }

  private open({ index, steps }: SceneNode): void {
    if (steps && index < 0) this.toggleOperators(steps);
    else this.toggle(index);
  }

  private toggleOperators(steps: readonly number[]): void {
    const open = new Set(this.store.get("stretches"));
    const key = groupKey({ steps });
    if (!open.delete(key)) open.add(key);
    this.anchor = idOfSteps(steps);
    this.store.set("stretches", open);
  }

  /** Opens or closes what is selected, a module or a group of operators; false where nothing is. */
  toggleSelected(): boolean {
    const item = this.decor.itemOf(this.decor.idOfSelected() ?? "");
    if (!item) return false;
    if (item.container) this.open(item.node);
    return true;
  }

  dispose(): void {
    this.dead = true;
    this.disposers.dispose();
    this.layouts.dispose();
    this.offer.dispose();
    this.hover.leave();
    if (this.said !== "" && this.store.get("notice") === this.said) this.store.set("notice", "");
    this.stage.dispose();
  }

  private makeStage(): Stage {
    const actions: ClickActions = {
      select: (path, steps, inView) => this.select(path, steps, inView),
      toggle: node => this.toggle(node),
      toggleOperators: steps => this.toggleOperators(steps),
      enter: item => this.navigator.enter(item, ({ node }) => this.open(node)),
      turn: id => this.turn(id)
    };
    const onItem = (id: string, act: (item: PaintItem) => void) => {
      const item = this.decor.itemOf(id);
      if (item) act(item);
    };
    const label = words.CANVAS;
    const camera = { least: 0.04, most: 4, isOverview: this.options.view === "deduplicated" };
    return new Stage(
      this.wrap,
      label,
      camera,
      {
        paint: (context, view) => {
          this.painter.paint(context, view, this.theme);
          this.hover.paint(context, view, this.theme);
        },
        hit: at => this.decor.hit(at),
        press: () => this.takeFocus(),
        tap: (id, at) => onItem(id, item => handleClick(item, at, this.h, actions)),
        doubleTap: (id, at) => onItem(id, item => handleDoubleClick(item, at, actions)),
        doubleTapGround: () => this.navigator.toAll(),
        point: (at, x, y) => this.hover.point(at, x, y, this.stage.camera.pose.zoom),
        moved: () => this.options.onChanged?.(false),
        resized: (before, seen) => this.resized(before, seen),
        picture: () => ({
          ...this.decor.picture(this.theme, this.measure, this.stage.camera.pose.zoom),
          ...this.hover.spots
        })
      },
      this.options.dock
    );
  }

  private listen(): void {
    const structural: (keyof GraphState)[] =
      this.options.view === "deduplicated" ? [] : ["expanded", "shown", "unfolded", "stretches", "focus", "withFlops"];
    structural.forEach(key => this.disposers.add(this.store.on(key, () => this.invalidate())));
    this.disposers.add(this.store.on("expanded", () => this.anchorToggled()));
    for (const key of ["colorBy", "overlay", "pruned", "query", "axis", "operators"] as const) {
      this.disposers.add(this.store.on(key, () => this.redecorate()));
    }
    for (const key of ["colorBy", "overlay", "pruned"] as const) {
      this.disposers.add(this.store.on(key, () => this.navigator.keepAll(() => this.fit()))); // the legend takes room
    }
    this.disposers.add(
      this.store.on("selected", () => {
        this.followSelection();
        this.redecorate();
      }),
      this.store.on("focus", () => (this.refocused = true)),
      watchTheme(() => this.retheme()),
      onSettings(() => this.invalidate())
    );
    this.disposers.add(
      listen(this.host, "focus", () => this.host.classList.toggle("mkg-by-keyboard", !this.tapping)),
      listen(this.host, "pointerdown", () => this.host.classList.remove("mkg-by-keyboard"))
    );
  }

  /** A single group opened or closed, wherever that was done, stays where it is on the screen. */
  private anchorToggled(): void {
    const now = this.store.get("expanded");
    const path = toggledPath(this.expanded, now);
    const node = path === undefined ? undefined : this.h.find(path);
    this.expanded = now;
    if (path === undefined) this.sceneLayout.forget(); // several at once make another picture
    if (!isEqual(now, this.store.get("opening"))) {
      this.store.set("openToFit", false); // somebody has chosen
      this.store.set("opening", null);
    }
    this.anchor = node === undefined ? this.anchor : idOf(this.h, node);
  }

  /** Several changes of the store in a row cost one layout. */
  private invalidate(): void {
    if (!this.stale) {
      this.stale = true;
      queueMicrotask(() => this.stale && this.refresh());
    }
  }

  private refresh(opened?: Scene): void {
    this.stale = false;
    if (this.dead) return;
    this.sceneLayout.fill(this.wrap);
    if (this.refocused || this.refitted) this.sceneLayout.forget();
    const scene = opened ?? this.sceneLayout.scene();
    const request = this.sceneLayout.request(scene);
    const layout = this.layouts.runNow(request);
    if (layout) {
      this.draw(scene, layout);
    } else {
      void this.layouts.run(request).then(result => result && this.draw(scene, result));
    }
  }

  private openToFit(): Scene {
    this.sceneLayout.fill(this.wrap);
    return this.sceneLayout.openToFit();
  }

  private draw(scene: Scene, layout: LayoutResult): void {
    if (this.dead) return;
    const before = this.placed;
    this.placed = positionScene(scene, layout);
    this.sceneLayout.remember(scene, layout);
    this.notify(scene);
    this.applyDecor();
    this.aim(before, this.placed);
    if (!before) this.announce();
  }

  /** After a new layout: what was opened, or looked at, stays where it was. */
  private aim(before: PlacedScene | undefined, after: PlacedScene): void {
    const survives = (id: string) => this.decor.itemOf(id) !== undefined;
    const known = before?.scene.nodes.some(({ id }) => id === this.anchor) && survives(this.anchor ?? "");
    const looked = before && this.stage.camera.isTouched ? centralCard(before, this.stage.camera, survives) : null;
    const anchor = known ? this.anchor : looked;
    if (!before || this.refocused || anchor === null) {
      this.lookFirst(after);
    } else {
      this.stage.camera.keep(boxOf(before, anchor), boxOf(after, anchor), [after.bounds]);
    }
    if (this.refitted) this.fit();
    this.anchor = null;
    this.refocused = this.refitted = false;
    this.pursue();
    this.navigator.arrived();
    this.options.onChanged?.(true);
  }

  /** The beginning, and what is selected. */
  private lookFirst({ bounds }: PlacedScene): void {
    if (this.options.lookFirst) return this.options.lookFirst();
    const sought = this.decor.itemOf(this.decor.idOfSelected() ?? "");
    this.stage.camera.open([bounds]);
    if (sought) this.stage.camera.show(sought.box);
  }

  private pursue(): void {
    const item = this.pursued ? this.decor.itemOf(this.decor.idOfSelected() ?? "") : undefined;
    if (item) {
      this.stage.camera.show(item.box);
      this.pursued = false;
    }
  }

  private notify(scene: Scene): void {
    const notice = this.sceneLayout.notice(scene);
    if (notice || this.store.get("notice") === this.said) {
      this.said = notice;
      this.store.set("notice", notice);
    }
  }

  /** Colors, selection and hits of what is already laid out. */
  private applyDecor(): void {
    if (!this.placed) return;
    this.decor.update(this.placed, this.theme);
    this.hover.show(this.placed);
    this.painter.setPicture(this.decor.items(), this.decor.edges());
    this.stage.schedule(); // what else changes until then is drawn with it
    this.stage.minimap.show(this.decor.minimapItems(), this.placed.bounds, this.theme);
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

  /** A change of height alone is the strip coming or going: what is under the pointer stays there. */
  private resized(before: Extent | null, seen: Box | null): void {
    const { camera } = this.stage;
    if (this.placed && !camera.isTouched && Math.abs(camera.extent.width - (before?.width ?? 1)) > 1) {
      if (this.sceneLayout.fill(this.wrap)) this.invalidate(); // rows for this room
      this.openToFit();
      this.anchor = null; // what is open is chosen anew, for the whole of it
      this.lookFirst(this.placed);
    }
    if (seen && this.placed) {
      this.refitted = this.navigator.isAll(seen);
      this.invalidate(); // there is room for another layout
    }
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
      if (this.sceneLayout.turnTo(node)) {
        this.invalidate();
      }
    }
    this.pursued = !this.tapping;
  }

  private announce(): void {
    const { onReady } = this.options;
    if (onReady) this.stage.afterDrawing(() => this.dead || onReady());
  }

  private takeFocus(): void {
    this.hover.leave();
    this.tapping = true;
    this.host.focus({ preventScroll: true });
    this.tapping = false;
  }

  private select(path: string, steps: readonly number[] | null, inView: boolean): void {
    this.tapping = inView;
    this.store.set("operators", steps);
    this.store.set("selected", path);
    this.tapping = false;
  }

  private turn(id: string): void {
    if (id === ALL_STRUCTURES) {
      this.sceneLayout.drawAll();
      this.invalidate();
      return;
    }
    const parentId = this.sceneLayout.turn(id);
    if (parentId !== null) {
      this.anchor = parentId;
      this.invalidate();
    }
  }
}
