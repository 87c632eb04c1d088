// Scatter plot of two quantities of all models, with the Pareto front listed beside it.

import { measurer, oneLine } from "../../shared/base/canvas";
import { button, el, listen, nameSpan, Part } from "../../shared/ui/dom";
import { exactNumber, shortBytes, shortNumber } from "../../shared/base/format";
import { userPose, Stage, type StagePicture } from "../../shared/stage/stage";
import { watchTheme } from "../../shared/stage/theme";
import { Tooltip } from "../../shared/ui/tooltip";
import type { CameraPose, Point } from "../../shared/stage/viewport";
import { type ChartTheme, readChartTheme } from "../../metrics/base/chart_theme";
import { valueText } from "../../metrics/base/value_axis";
import type { Knowledge } from "../data/knowledge";
import { emptyNote } from "../data/descriptions";
import { searchHits, noResultsNote } from "../data/search";
import { nodeColors } from "../map/node_colors";
import {
  type Dot,
  GUTTER,
  RADIUS,
  ScatterPainter,
  type ScatterScene,
  type Scale,
  scaleOf,
  ScatterAxes,
  type Side
} from "./scatter_painter";
import { paretoFront, quantities, type Quantity, type ScatterPoint, scatterPoints } from "../data/quantities";
import type { ExplorerStore } from "../data/state";
import * as words from "../../words/knowledge";

const NEAR = 10; // pixels from a dot that still count as on it
const SIZE = { width: 720, height: 460 }; // of the picture while nobody knows that of the canvas

export class Scatter extends Part {
  private readonly controls = el("div", "mkg-kg-controls");
  private readonly said = el("span", "mkg-kg-note");
  private readonly place = el("div", "mkg-kg-scatter");
  private readonly wrap = el("div", "mkg-kg-scatter-stage");
  private readonly best = el("section", "mkg-kg-front");
  private readonly nothing = el("div", "mkg-kg-nothing-place");
  private readonly axes: ScatterAxes;
  private readonly painter = new ScatterPainter(measurer());
  private readonly stage: Stage;
  private readonly tip: Tooltip;
  private theme: ChartTheme;
  private points: readonly ScatterPoint[] = [];
  private front: readonly number[] = [];
  private dots: readonly Dot[] = [];
  private scales!: { x: Scale; y: Scale };
  private pointed: number | null = null;

  constructor(
    host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore,
    look?: CameraPose
  ) {
    super(host);
    host.classList.add("mkg-kg-scatter-view");
    this.theme = readChartTheme(host);
    this.axes = new ScatterAxes(this.controls, quantities(data), store);
    this.said.setAttribute("role", "status");
    this.best.setAttribute("aria-label", words.BEST_LABEL);
    this.place.append(this.wrap, this.best);
    host.append(this.controls, this.nothing, this.place);
    this.stage = this.makeStage();
    this.tip = new Tooltip(this.wrap);
    this.controls.append(this.said);
    this.listen();
    this.stage.measure();
    this.rebuild();
    if (look) this.stage.camera.restore(look);
  }

  /** Where somebody has moved the camera. */
  get moved(): CameraPose | undefined {
    return userPose(this.stage);
  }

  override dispose(): void {
    this.axes.dispose();
    this.stage.dispose();
    super.dispose();
  }

  private makeStage(): Stage {
    const label =
      "Models by two numbers: arrow keys go from model to model, Enter selects; a list of the best is beside it";
    return new Stage(
      this.wrap,
      label,
      { least: 0.5, most: 60, isOverview: true },
      {
        paint: (context, view) => this.painter.paint(context, this.scene(), view, this.theme),
        hit: at => this.hit(at),
        press: () => this.stage.host.focus({ preventScroll: true }),
        tap: id => this.choose(Number(id)),
        doubleTap: () => undefined,
        doubleTapGround: () => this.fit(),
        hover: id => this.point(id === null ? null : Number(id)),
        resized: () => this.resized(),
        picture: () => this.picture()
      }
    );
  }

  private listen(): void {
    const { store } = this;
    this.disposers.add(
      store.on(["scatter", "less", "powers"], () => this.rebuild()),
      store.on("query", () => this.refind()),
      store.on("colorBy", () => this.recolor()),
      store.on("selected", () => this.stage.schedule()),
      listen(this.stage.host, "keydown", event => this.key(event)),
      listen(this.stage.host, "blur", () => this.point(null)),
      listen(this.best, "click", event => this.clicked(event)),
      watchTheme(() => {
        this.theme = readChartTheme(this.host);
        this.recolor();
      })
    );
  }

  /** Other numbers: all is placed anew. */
  private rebuild(): void {
    const [x, y] = [this.axes.quantity("x"), this.axes.quantity("y")];
    this.points = x && y ? scatterPoints(x, y) : [];
    this.pointed = null;
    this.tip.hide();
    this.layout();
    this.refind();
    this.fit();
    this.axes.follow(this.scales);
  }

  /** The best are those of what a search has found. */
  private refind(): void {
    const { isActive, models } = searchHits(this.data, this.store.get("query"));
    const [x, y] = [this.axes.quantity("x"), this.axes.quantity("y")];
    const places = this.points.flatMap(({ model }, place) => (!isActive || models.has(model) ? [place] : []));
    const found = places.map(place => this.points[place]);
    const front = x && y ? paretoFront(found, this.axes.isLess(x), this.axes.isLess(y)) : [];
    this.front = front.map(at => places[at]);
    this.recolor();
    this.listBest(x, y);
    this.showNothing();
  }

  private layout(): void {
    const { width, height } = this.plotSize();
    const [across, up] = [this.points.map(({ x }) => x), this.points.map(({ y }) => y)];
    const [x, y] = [this.axes.quantity("x"), this.axes.quantity("y")];
    this.scales = {
      x: scaleOf(across, x !== undefined && this.axes.isLog(x, across), 0, width, false),
      y: scaleOf(up, y !== undefined && this.axes.isLog(y, up), 0, height, true)
    };
  }

  private plotSize(): { width: number; height: number } {
    const { width, height } = this.stage.camera.extent;
    if (!(width > 0 && height > 0)) return SIZE;
    return {
      width: Math.max(40, width - GUTTER.left - GUTTER.right),
      height: Math.max(40, height - GUTTER.top - GUTTER.bottom)
    };
  }

  private recolor(): void {
    const { data, store, theme } = this;
    const inks = nodeColors(data, store, theme.dark);
    const found = searchHits(data, store.get("query"));
    const onFront = new Set(this.front);
    const fills = new Map<number, string>();
    const fillOf = (model: number) => {
      const known = fills.get(model);
      if (known !== undefined) return known;
      const thing = { kind: "model", index: model, level: 0 } as const;
      const fill = inks.of({ thing, members: data.isAnalysed ? data.members(thing) : [] });
      fills.set(model, fill);
      return fill;
    };
    this.dots = this.points.map(({ model, x, y }, place) => ({
      name: oneLine(data.payload.models.name[model]),
      x: this.scales.x.at(x),
      y: this.scales.y.at(y),
      fill: fillOf(model),
      isDim: found.isActive && !found.models.has(model),
      isFront: onFront.has(place)
    }));
    this.say();
    this.stage.schedule();
  }

  private scene(): ScatterScene {
    const [x, y] = [this.axes.quantity("x"), this.axes.quantity("y")];
    const thing = this.data.find(this.store.get("selected"));
    const own = new Set((thing && this.data.modelsFor(thing)) ?? []);
    const isSelected = ({ model }: ScatterPoint) => own.has(model);
    return {
      dots: this.dots,
      front: this.front,
      across: this.scales.x,
      up: this.scales.y,
      labels: { x: x ? titleOf(x) : "", y: y ? titleOf(y) : "" },
      selected: this.points.flatMap((point, place) => (isSelected(point) ? [place] : [])),
      pointed: this.pointed,
      tick: value => (Math.abs(value) >= 1000 ? shortNumber(value) : valueText(value))
    };
  }

  fit(): void {
    this.stage.camera.moveTo({ x: GUTTER.left, y: GUTTER.top, zoom: 1 });
    this.stage.schedule();
  }

  private resized(): void {
    if (this.stage.camera.isTouched) return;
    this.layout();
    this.recolor();
    this.fit();
  }

  // ------------------------------------------------------------ words

  private showNothing(): void {
    const { isActive, isEmpty, models } = searchHits(this.data, this.store.get("query"));
    const shown = new Set(this.points.map(({ model }) => model));
    const isNothing = this.points.length === 0 || (isActive && ![...shown].some(model => models.has(model)));
    this.place.hidden = isNothing;
    const instead = () => {
      if (this.data.modelCount === 0) return emptyNote("models", this.store);
      if (isActive && this.points.length > 0) return noResultsNote(this.store, isEmpty);
      return emptyNote("results", this.store);
    };
    this.nothing.replaceChildren(...(isNothing ? [instead()] : []));
  }

  private say(): void {
    const { isActive, models } = searchHits(this.data, this.store.get("query"));
    const shown = new Set(this.points.map(({ model }) => model));
    const best = new Set(this.front.map(place => this.points[place].model)).size;
    const without = this.data.modelCount - shown.size;
    const points = this.points.length > shown.size ? words.points(this.points.length) : "";
    const parts = [words.onFront(points + words.models(shown.size), best)];
    if (without > 0) parts.push(words.incomplete(without));
    if (isActive) parts.push(words.found([...shown].filter(model => models.has(model)).length));
    this.said.textContent = parts.join(" · ");
  }

  private listBest(x: Quantity | undefined, y: Quantity | undefined): void {
    if (!x || !y) return this.best.replaceChildren();
    const list = el("ul", "mkg-kg-list");
    for (const place of this.front) {
      const point = this.points[place];
      const row = button("mkg-kg-row", "", words.select(words.KINDS.model));
      row.dataset.mkgKey = this.keyOf(point);
      row.append(
        nameSpan("mkg-kg-row-name", oneLine(this.data.payload.models.name[point.model])),
        el("span", "mkg-kg-count", `${amount(y, point.y, shortNumber)} · ${amount(x, point.x, shortNumber)}`)
      );
      const item = el("li");
      item.append(row);
      list.append(item);
    }
    const note = el("p", "mkg-dim", `${titleOf(y)} · ${titleOf(x)}`);
    this.best.replaceChildren(el("h4", "", words.BEST), note, list);
  }

  // ------------------------------------------------------------ pointing

  private keyOf({ model }: ScatterPoint): string {
    return this.data.key({ kind: "model", index: model, level: 0 });
  }

  /** The dot nearest to a place in the picture, if it is near. */
  private hit([x, y]: Point): string | null {
    const reach = NEAR / this.stage.camera.pose.zoom;
    let [best, least] = [-1, reach];
    this.dots.forEach((dot, place) => {
      const distance = Math.hypot(dot.x - x, dot.y - y);
      if (distance < least) [best, least] = [place, distance];
    });
    return best < 0 ? null : String(best);
  }

  private point(place: number | null): void {
    if (this.pointed === place) return;
    this.pointed = place;
    this.stage.host.classList.toggle("mkg-is-pointing", place !== null);
    this.stage.schedule();
    if (place === null) return this.tip.hide();
    const point = this.points[place];
    const [x, y] = [this.axes.quantity("x"), this.axes.quantity("y")];
    const { zoom, ...pan } = this.stage.camera.pose;
    const { jobs, models } = this.data.payload;
    const rows = [y, x].flatMap((quantity, i) =>
      quantity ? [{ name: quantity.label, value: amount(quantity, i === 0 ? point.y : point.x) }] : []
    );
    const trainings = point.jobs.map(job => jobs.training[job] ?? "").filter(Boolean);
    const isSaid = trainings.some(training => training.includes("image_size"));
    if (point.size !== null && !isSaid) rows.push({ name: words.IMAGE_SIZE, value: exactNumber(point.size) });
    rows.push({ name: words.FAMILY, value: oneLine(this.data.payload.families[models.family[point.model]]) });
    const dot = this.dots[place];
    this.tip.show(
      dot.x * zoom + pan.x,
      dot.y * zoom + pan.y,
      oneLine(models.name[point.model]),
      rows,
      longest(trainings).map(oneLine)
    );
  }

  private choose(place: number): void {
    const point = this.points[place] as ScatterPoint | undefined;
    if (!point) return;
    this.store.set("item", null);
    this.store.set("selected", this.keyOf(point));
  }

  private clicked(event: MouseEvent): void {
    const row = event.target instanceof Element ? event.target.closest<HTMLElement>("[data-mkg-key]") : null;
    if (row?.dataset.mkgKey === undefined) return;
    this.store.set("item", null);
    this.store.set("selected", row.dataset.mkgKey);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps: Record<string, readonly [Side, number]> = {
      ArrowRight: ["x", 1],
      ArrowLeft: ["x", -1],
      ArrowUp: ["y", -1],
      ArrowDown: ["y", 1]
    };
    const step = steps[event.key] as readonly [Side, number] | undefined;
    if (step) this.step(...step);
    else if (event.key === "Enter" && this.pointed !== null) this.choose(this.pointed);
    else if (event.key === "f") this.fit();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** To the next dot along an axis. */
  private step(side: Side, sign: number): void {
    const shown = this.dots.flatMap(({ isDim }, place) => (isDim ? [] : [place]));
    shown.sort((a, b) => this.dots[a][side] - this.dots[b][side] || a - b);
    if (shown.length === 0) return;
    const selected = this.scene().selected[0] as number | undefined;
    const from = shown.indexOf(this.pointed ?? selected ?? -1);
    const next = from < 0 ? (sign > 0 ? 0 : shown.length - 1) : from + sign;
    const place = shown[Math.max(0, Math.min(shown.length - 1, next))];
    const { x, y } = this.dots[place];
    this.stage.camera.show([x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS]);
    this.point(place);
  }

  private picture(): StagePicture {
    const { selected } = this.scene();
    return {
      items: this.dots.map(({ name, x, y, fill }, place) => ({
        id: String(place),
        title: name,
        parent: null,
        box: [x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS],
        fill,
        isOpen: false,
        isSelected: selected.includes(place),
        onAxis: false
      })),
      lines: []
    };
  }
}

/** Each once, and none that another one says as well. */
const longest = (texts: readonly string[]): string[] => {
  const every = [...new Set(texts)];
  return every.filter(text => !every.some(other => other !== text && other.includes(text)));
};

const titleOf = ({ label, unit }: Quantity): string => oneLine(unit ? `${label} (${unit})` : label);

function amount({ unit }: Quantity, value: number, text = valueText): string {
  if (unit === "B") return shortBytes(value);
  const number = Math.abs(value) >= 1000 ? shortNumber(value) : text(value);
  return unit ? `${number} ${oneLine(unit)}` : number;
}
