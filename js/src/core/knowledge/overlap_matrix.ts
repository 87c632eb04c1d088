// Overlap matrix: what each two models have in common, drawn on a canvas as large as what is in view.

import { PALETTE } from "../../generated/palette";
import { canDraw, measurer, oneLine, pixelRatio, truncated, fontOf, type Measure } from "../shared/base/canvas";
import { button, el, listen, Part, onResize } from "../shared/ui/dom";
import { exactNumber } from "../shared/base/format";
import { mix, watchTheme } from "../shared/stage/theme";
import { type ChartTheme, readChartTheme } from "../metrics/base/chart_theme";
import { Tooltip } from "../shared/ui/tooltip";
import type { Knowledge } from "./data/knowledge";
import { emptyNote } from "./data/descriptions";
import { searchHits, noResultsNote } from "./data/search";
import type { ExplorerStore } from "./data/state";
import * as words from "../words/knowledge";

// The colors of the overlap matrix.

const SHADES = 64; // each stop of the above included

/** One hue from the ground on, so that nothing in common looks like nothing. */
const stopsOf = (dark: boolean): readonly string[] => PALETTE.overlap[dark ? "dark" : "light"];

/** Colors from nothing in common to the same. */
function shadesOf(dark: boolean): string[] {
  const stops = stopsOf(dark);
  return Array.from({ length: SHADES + 1 }, (_, i) => {
    const place = (i / SHADES) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(place));
    return mix(stops[low], stops[low + 1], place - low);
  });
}

// The cells of a large overlap matrix as a bitmap, a pixel each, so that scrolling draws one picture.

const MAX_BITMAP_MODELS = 4096; // models: such a bitmap has 64 MiB

/** Undefined where there is nothing to draw on. `shades` are "#rrggbb", from nothing in common to the same. */
function matrixBitmap(
  data: Knowledge,
  { models }: MatrixOrder,
  shades: readonly string[]
): HTMLCanvasElement | undefined {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = models.length;
  const context = canvas.getContext("2d");
  if (!context) return undefined;
  const picture = context.createImageData(models.length, models.length);
  const colors = shades.map(shade => Number.parseInt(shade.slice(1), 16));
  let at = 0;
  for (const row of models) {
    for (const column of models) {
      const color = colors[Math.round((colors.length - 1) * data.overlap(row, column))];
      picture.data[at] = color >> 16;
      picture.data[at + 1] = (color >> 8) & 255;
      picture.data[at + 2] = color & 255;
      picture.data[at + 3] = 255;
      at += 4;
    }
  }
  context.putImageData(picture, 0, 0);
  return canvas;
}

const NAMES = { left: 170, top: 118 }; // room for names while cells are large
const SMALL_NAMES = { left: 130, top: 96 }; // for those of families
const GAPPED = 8; // cell size from which there is a gap between cells
const FEW = 200; // models: more of them are drawn as a bitmap
const LARGE = 15; // cell size of the enlarged matrix

interface At {
  row: number;
  column: number;
}

export class OverlapMatrix extends Part {
  private readonly controls = el("div", "mkg-kg-controls");
  private readonly enlarge = button("mkg-button mkg-kg-enlarge", words.SHOW_NAMES);
  private readonly said = el("span", "mkg-kg-note");
  private readonly frame = el("div", "mkg-kg-matrix");
  private readonly scroller = el("div", "mkg-kg-matrix-scroller");
  private readonly space = el("div", "mkg-kg-matrix-space");
  private readonly canvas = el("canvas");
  private readonly rampColors = el("span", "mkg-kg-ramp-colors");
  private readonly measure = measurer();
  private order: MatrixOrder;
  private bitmap?: HTMLCanvasElement; // of this order, in the colors of this theme
  private readonly nothing = el("div", "mkg-kg-nothing-place");
  private readonly tip: Tooltip;
  private theme?: ChartTheme;
  private isLarge = false;
  private at: At | null = null; // what the pointer or the keyboard is on

  constructor(
    host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore
  ) {
    super(host);
    host.classList.add("mkg-kg-matrix-view");
    this.order = matrixOrder(data);
    this.said.setAttribute("role", "status");
    this.enlarge.setAttribute("aria-pressed", "false");
    this.controls.append(this.enlarge, this.ramp(), this.said);
    this.frame.tabIndex = 0;
    this.frame.setAttribute("role", "application");
    this.frame.setAttribute("aria-label", words.MATRIX);
    this.frame.setAttribute("aria-keyshortcuts", "ArrowUp ArrowDown ArrowLeft ArrowRight Enter");
    this.canvas.setAttribute("aria-hidden", "true");
    this.scroller.tabIndex = -1;
    this.space.append(this.canvas);
    this.scroller.append(this.space);
    this.frame.append(this.scroller);
    host.append(this.controls, this.frame, this.nothing);
    this.tip = new Tooltip(this.frame);
    this.listen();
    this.follow();
  }

  private listen(): void {
    this.disposers.add(
      listen(this.enlarge, "click", () => this.toggle()),
      listen(this.scroller, "scroll", () => this.paint()),
      listen(this.scroller, "mousemove", event => this.point(event)),
      listen(this.scroller, "mouseleave", () => this.moveTo(null, false)),
      listen(this.scroller, "click", event => this.clicked(event)),
      listen(this.frame, "keydown", event => this.key(event)),
      listen(this.frame, "blur", () => this.moveTo(null, false)),
      this.store.on(["selected", "other"], () => this.paint()),
      this.store.on("query", () => this.follow()),
      watchTheme(() => {
        this.theme = this.bitmap = undefined;
        this.paint();
      })
    );
    this.disposers.add(onResize(this.scroller, () => this.resize()));
  }

  /** What a search has found is left; of a single model the ones with which it shares most, too. */
  private follow(): void {
    const { data, store } = this;
    const found = searchHits(data, store.get("query"));
    this.order = matrixOrder(data, found.isActive ? withNearest(data, found.models) : undefined);
    this.bitmap = undefined;
    this.at = null;
    this.tip.hide();
    const isNothing = this.count === 0 || data.modelCount < 2;
    this.frame.hidden = isNothing;
    const instead = () =>
      found.isActive ? noResultsNote(store, found.isEmpty) : emptyNote(this.count ? "others" : "models", store);
    this.nothing.replaceChildren(...(isNothing ? [instead()] : []));
    this.resize();
    this.say();
  }

  private ramp(): HTMLElement {
    const ramp = el("span", "mkg-kg-ramp");
    this.rampColors.setAttribute("aria-hidden", "true");
    ramp.append(el("span", "", words.NO_OVERLAP), this.rampColors, el("span", "", words.IDENTICAL));
    return ramp;
  }

  private get count(): number {
    return this.order.models.length;
  }

  private get names(): { left: number; top: number } {
    return this.cell >= LEGIBLE ? NAMES : SMALL_NAMES;
  }

  private get cell(): number {
    if (this.isLarge) return LARGE;
    const { clientWidth, clientHeight } = this.scroller;
    const room = Math.min(clientWidth - SMALL_NAMES.left, clientHeight - SMALL_NAMES.top) - 12;
    const wide = Math.min(clientWidth - NAMES.left, clientHeight - NAMES.top) - 12;
    const large = wide / Math.max(1, this.count);
    return Math.max(
      3,
      large >= LEGIBLE ? Math.min(34, large) : Math.min(LEGIBLE - 0.1, room / Math.max(1, this.count))
    );
  }

  private toggle(): void {
    this.isLarge = !this.isLarge;
    this.enlarge.setAttribute("aria-pressed", String(this.isLarge));
    this.resize();
  }

  private resize(): void {
    const side = this.count * this.cell + 12;
    this.space.style.width = `${side + this.names.left}px`;
    this.space.style.height = `${side + this.names.top}px`;
    this.enlarge.hidden = !this.isLarge && this.cell >= LEGIBLE;
    this.paint();
  }

  // ------------------------------------------------------------ drawing

  private paint(): void {
    const context = canDraw() ? this.canvas.getContext("2d") : null;
    if (!context) return;
    this.readTheme();
    const { clientWidth: width, clientHeight: height, scrollLeft, scrollTop } = this.scroller;
    const ratio = pixelRatio();
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    if (this.canvas.width !== Math.round(width * ratio)) this.canvas.width = Math.round(width * ratio);
    if (this.canvas.height !== Math.round(height * ratio)) this.canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const { left, top } = this.names;
    context.save();
    context.beginPath();
    context.rect(left, top, width - left, height - top);
    context.clip();
    context.translate(left - scrollLeft, top - scrollTop);
    this.paintCells(context, scrollLeft, scrollTop, width - left, height - top);
    this.paintMarks(context, this.readTheme());
    context.restore();
    this.paintNames(context, this.readTheme(), width, height);
  }

  private readTheme(): ChartTheme {
    if (!this.theme) {
      this.theme = readChartTheme(this.host);
      const stops = stopsOf(this.theme.dark).join(", ");
      this.rampColors.style.backgroundImage = `linear-gradient(to right, ${stops})`;
    }
    return this.theme;
  }

  private paintCells(context: CanvasRenderingContext2D, x: number, y: number, width: number, height: number): void {
    const { data, cell } = this;
    const shades = shadesOf(this.theme?.dark ?? false);
    const { models } = this.order;
    if (cell < GAPPED && this.count > FEW && this.count <= MAX_BITMAP_MODELS) {
      this.bitmap ??= matrixBitmap(data, this.order, shades);
      context.imageSmoothingEnabled = false;
      if (this.bitmap) context.drawImage(this.bitmap, 0, 0, this.count * cell, this.count * cell);
      return;
    }
    const gap = cell >= GAPPED ? 1 : 0;
    const first = { row: Math.max(0, Math.floor(y / cell)), column: Math.max(0, Math.floor(x / cell)) };
    const last = {
      row: Math.min(this.count, Math.ceil((y + height) / cell)),
      column: Math.min(this.count, Math.ceil((x + width) / cell))
    };
    for (let row = first.row; row < last.row; row += 1) {
      for (let column = first.column; column < last.column; column += 1) {
        context.fillStyle = shades[Math.round((shades.length - 1) * data.overlap(models[row], models[column]))];
        context.fillRect(column * cell, row * cell, cell - gap + (gap ? 0 : 0.4), cell - gap + (gap ? 0 : 0.4));
      }
    }
  }

  private paintMarks(context: CanvasRenderingContext2D, theme: ChartTheme): void {
    const { cell, count, at } = this;
    const line = (place: number, isRow: boolean, color: string) => {
      context.strokeStyle = color;
      context.lineWidth = 1.6;
      if (isRow) context.strokeRect(-1, place * cell - 0.5, count * cell + 2, cell + 1);
      else context.strokeRect(place * cell - 0.5, -1, cell + 1, count * cell + 2);
    };
    const { selected, other } = this.chosen();
    if (selected >= 0) line(selected, true, PALETTE.overlap.chosen);
    if (other >= 0) line(other, false, PALETTE.overlap.chosen);
    if (!at) return;
    context.strokeStyle = theme.dark ? "#ffffff" : "#000000";
    context.lineWidth = 2;
    context.strokeRect(at.column * cell - 1, at.row * cell - 1, cell + 2, cell + 2);
    context.strokeStyle = theme.dark ? "#000000" : "#ffffff";
    context.lineWidth = 1;
    context.strokeRect(at.column * cell - 2.5, at.row * cell - 2.5, cell + 5, cell + 5);
  }

  /** Places of the chosen models. */
  private chosen(): { selected: number; other: number } {
    const place = (key: string | null) => {
      const thing = this.data.find(key);
      return thing?.kind === "model" ? this.order.models.indexOf(thing.index) : -1;
    };
    const { store } = this;
    const isCompared = store.get("selected") === store.get("comparing");
    return { selected: place(store.get("selected")), other: isCompared ? place(store.get("other")) : -1 };
  }

  private paintNames(context: CanvasRenderingContext2D, theme: ChartTheme, width: number, height: number): void {
    const { selected, other } = this.chosen();
    const { scrollLeft, scrollTop } = this.scroller;
    const place = { ...this.names, width, height, scrollLeft, scrollTop };
    const rows = labels(this.data, this.order, this.cell, [selected, this.at?.row ?? -1]);
    const columns = labels(this.data, this.order, this.cell, [other, this.at?.column ?? -1]);
    paintNames(context, rows, columns, place, theme, this.measure);
  }

  // ------------------------------------------------------------ pointing

  private cellAt(event: MouseEvent): At | null {
    const box = this.scroller.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - this.names.left, event.clientY - box.top - this.names.top];
    if (x < 0 || y < 0) return null;
    const at = {
      row: Math.floor((y + this.scroller.scrollTop) / this.cell),
      column: Math.floor((x + this.scroller.scrollLeft) / this.cell)
    };
    return at.row < this.count && at.column < this.count ? at : null;
  }

  private point(event: MouseEvent): void {
    this.moveTo(this.cellAt(event), false);
  }

  private moveTo(at: At | null, isKey: boolean): void {
    if (at?.row === this.at?.row && at?.column === this.at?.column) return;
    this.at = at;
    this.paint();
    this.say();
    if (!at) {
      this.tip.hide();
      return;
    }
    const { left, top } = this.names;
    if (isKey) this.show(at);
    const x = left + (at.column + 1) * this.cell - this.scroller.scrollLeft;
    const y = top + (at.row + 1) * this.cell - this.scroller.scrollTop;
    const [one, other] = this.pair(at);
    const names = this.data.payload.models.name;
    const rows = [
      { name: words.JACCARD, value: this.data.overlap(one, other).toFixed(3) },
      { name: words.SHARED_ROW, value: String(this.data.shared(one, other)) }
    ];
    this.tip.show(x, y, `${oneLine(names[one])} × ${oneLine(names[other])}`, rows);
  }

  private pair({ row, column }: At): [number, number] {
    return [this.order.models[row], this.order.models[column]];
  }

  private say(): void {
    const { at, data } = this;
    if (!at) {
      this.said.textContent = this.summary();
      return;
    }
    const [one, other] = this.pair(at);
    const names = data.payload.models.name;
    const shared = words.shared(words.structures(data.shared(one, other)));
    this.said.textContent = `${names[one]} × ${names[other]}: ${data.overlap(one, other).toFixed(3)}, ${shared}`;
  }

  private summary(): string {
    const { data, count } = this;
    const { isActive, isEmpty, models, byModules } = searchHits(data, this.store.get("query"));
    if (!isActive || isEmpty) return words.models(count);
    if (models.size === 1) {
      const [only] = models;
      return words.nearestTo(data.payload.models.name[only], words.models(count - 1));
    }
    return words.outOf(exactNumber(count), words.models(data.modelCount)) + (byModules ? words.WITH_MATCHES : "");
  }

  private clicked(event: MouseEvent): void {
    const at = this.cellAt(event);
    this.frame.focus({ preventScroll: true });
    if (at) this.choose(at);
  }

  private choose(at: At): void {
    const [one, other] = this.pair(at);
    const key = (index: number) => this.data.key({ kind: "model", index, level: 0 });
    this.store.set("item", null);
    this.store.set("comparing", key(one));
    this.store.set("other", one === other ? null : key(other));
    this.store.set("selected", key(one));
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, [number, number]> = {
      ArrowDown: [1, 0],
      ArrowUp: [-1, 0],
      ArrowRight: [0, 1],
      ArrowLeft: [0, -1]
    };
    const step = steps[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || (!step && event.key !== "Enter")) return;
    event.preventDefault();
    event.stopPropagation();
    if (!step) {
      if (this.at) this.choose(this.at);
      return;
    }
    const { selected, other } = this.chosen();
    const from = this.at ?? { row: Math.max(0, selected) - step[0], column: Math.max(0, other) - step[1] };
    const within = (place: number) => Math.max(0, Math.min(this.count - 1, place));
    this.moveTo({ row: within(from.row + step[0]), column: within(from.column + step[1]) }, true);
  }

  private show({ row, column }: At): void {
    const { scroller, cell } = this;
    const [width, height] = [scroller.clientWidth - this.names.left, scroller.clientHeight - this.names.top];
    const inside = (place: number, from: number, room: number) =>
      Math.max((place + 1) * cell - room, Math.min(from, place * cell));
    scroller.scrollLeft = inside(column, scroller.scrollLeft, width);
    scroller.scrollTop = inside(row, scroller.scrollTop, height);
  }
}

// The axes of the overlap matrix: the order of models, where cells are, and the names beside them.

interface Block {
  readonly family: number;
  readonly start: number;
  readonly count: number;
}

interface MatrixOrder {
  readonly models: readonly number[];
  readonly blocks: readonly Block[];
}

/** Models of one family side by side, and families near those with which they share most; of some models alone. */
export function matrixOrder(data: Knowledge, only?: ReadonlySet<number>): MatrixOrder {
  const modelsIn = (family: number) => data.modelsIn(family).filter(model => !only || only.has(model));
  const families = data.payload.families.map((_, index) => index).filter(index => modelsIn(index).length > 0);
  const members = new Map(families.map(family => [family, modelsIn(family)]));
  const left = new Set(families.sort((a, b) => size(members, b) - size(members, a) || a - b));
  const models: number[] = [];
  const blocks: Block[] = [];
  let current = families[0];
  while (current !== undefined) {
    const own = members.get(current) ?? [];
    blocks.push({ family: current, start: models.length, count: own.length });
    models.push(...own);
    left.delete(current);
    current = nearest(data, own, left, members);
  }
  return { models, blocks };
}

const NEAREST = 24; // models beside one

/** A single model is not compared with itself alone. */
function withNearest(data: Knowledge, models: ReadonlySet<number>): ReadonlySet<number> {
  if (models.size !== 1) return models;
  const [only] = models;
  const others = Array.from({ length: data.modelCount }, (_, i) => i).filter(i => i !== only);
  others.sort((a, b) => data.overlap(only, b) - data.overlap(only, a) || a - b);
  return new Set([only, ...others.slice(0, NEAREST)]);
}

const size = (members: ReadonlyMap<number, number[]>, family: number): number => members.get(family)?.length ?? 0;

function nearest(
  data: Knowledge,
  own: readonly number[],
  left: ReadonlySet<number>,
  members: ReadonlyMap<number, number[]>
): number {
  let [best, most] = [[...left][0], -1];
  for (const family of left) {
    const others = members.get(family) ?? [];
    const total = own.reduce((sum, a) => sum + others.reduce((rest, b) => rest + data.overlap(a, b), 0), 0);
    const mean = total / Math.max(1, own.length * others.length);
    if (mean > most) [best, most] = [family, mean];
  }
  return best;
}

// The names beside the overlap matrix: those of models where there is room, else of families.

const LEGIBLE = 11; // cell size from which every model has its name
const FONT = 10.5;

interface MatrixLabel {
  readonly text: string;
  readonly place: number; // along its side, in pixels
  readonly isStrong: boolean;
}

interface NamesPlace {
  readonly left: number; // room for the names of rows, and of columns
  readonly top: number;
  readonly width: number;
  readonly height: number;
  readonly scrollLeft: number;
  readonly scrollTop: number;
}

/** The names of one side; those at the `strong` places stand out. */
function labels(data: Knowledge, order: MatrixOrder, cell: number, strong: readonly number[]): MatrixLabel[] {
  const { models, families } = data.payload;
  if (cell >= LEGIBLE) {
    return order.models.map((model, i) => ({
      text: models.name[model],
      place: (i + 0.5) * cell,
      isStrong: strong.includes(i)
    }));
  }
  let free = 0;
  return order.blocks.flatMap(({ family, start, count }) => {
    const place = (start + count / 2) * cell;
    if (place - FONT / 2 < free) return [];
    free = place + FONT / 2 + 1;
    return [{ text: families[family], place, isStrong: strong.some(i => i >= start && i < start + count) }];
  });
}

function paintNames(
  context: CanvasRenderingContext2D,
  rows: readonly MatrixLabel[],
  columns: readonly MatrixLabel[],
  { left, top, width, height, scrollLeft, scrollTop }: NamesPlace,
  theme: ChartTheme,
  measure: Measure
): void {
  const write = (names: readonly MatrixLabel[], room: number, align: CanvasTextAlign) => {
    context.textBaseline = "middle";
    context.textAlign = align;
    for (const { text, place, isStrong } of names) {
      context.font = fontOf(FONT, isStrong);
      context.fillStyle = isStrong ? theme.text : mix(theme.muted, theme.text, 0.25);
      context.fillText(truncated(oneLine(text), room, FONT, isStrong, measure), 0, place);
    }
  };
  context.save();
  context.beginPath();
  context.rect(0, top, left, height - top);
  context.clip();
  context.translate(left - 6, top - scrollTop);
  write(rows, left - 14, "right");
  context.restore();
  context.save();
  context.beginPath();
  context.rect(left, 0, width - left, top);
  context.clip();
  context.translate(left - scrollLeft, top - 6);
  context.rotate(-Math.PI / 2);
  write(columns, top - 12, "left");
  context.restore();
}
