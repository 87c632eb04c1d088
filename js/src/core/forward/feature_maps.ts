// The pictures of the current step: one canvas per channel, a heat map, or a strip; one of them can be shown large.

import { contextOf } from "../shared/base/canvas";
import { NOT_FINITE_COLOR, sample } from "../shared/stage/color";
import { button, el, listen, setAttribute, Part, setRole, iconButton, setText } from "../shared/ui/dom";
import { shortNumber } from "../shared/base/format";
import { topList } from "./details";
import { keyOf, type MapPage, type MapsFeed, type MapsRequest } from "./maps_feed";
import { type Forward, toNum, type Top } from "./payload";
import type { RevealedShapes, Quiz } from "./quiz";
import type { ForwardStore } from "./state";
import * as words from "../words/forward";

const ON_A_PAGE = 64;
const IN_A_STRIP = 4096;

interface Tile {
  readonly element: HTMLElement;
  readonly button: HTMLButtonElement;
  readonly canvas: HTMLCanvasElement;
  readonly name: HTMLElement;
  readonly range: HTMLElement;
}

export class FeatureMaps extends Part {
  private readonly topHost = el("div", "mkg-forward-tops");
  private readonly title = el("h4", "");
  private readonly note = el("p", "mkg-panel-note");
  private readonly message = el("p", "mkg-forward-message");
  private readonly grid = el("div", "mkg-forward-maps");
  private readonly largeHost = el("div", "mkg-forward-large");
  private readonly pager = el("div", "mkg-forward-pager");
  private readonly pageText = el("span", "mkg-dim");
  private readonly before = button("mkg-button mkg-forward-page-back", words.PREVIOUS);
  private readonly after = button("mkg-button mkg-forward-page-next", words.FOLLOWING);
  private readonly tiles: Tile[] = [];
  private drawn: MapPage | null = null;

  constructor(
    host: HTMLElement,
    private readonly forward: Forward,
    private readonly store: ForwardStore,
    private readonly quiz: Quiz,
    private readonly feed: MapsFeed,
    found: RevealedShapes
  ) {
    super(host);
    this.message.setAttribute("role", "status");
    this.before.dataset.mkgNeedsKernel = this.after.dataset.mkgNeedsKernel = "";
    this.pager.append(this.before, this.pageText, this.after);
    const head = el("div", "mkg-forward-maps-head");
    head.append(this.title, this.pager);
    this.host.append(this.topHost, head, this.note, this.message, this.largeHost, this.grid);
    this.disposers.add(
      store.on(["step", "sample", "page"], () => this.follow()),
      store.on(["hideShapes", "connected"], () => this.draw()),
      store.on("busy", () => this.drawWords()),
      store.on("large", () => this.drawLarge()),
      feed.onChange(() => this.draw()),
      found.onChange(() => this.draw()),
      listen(this.before, "click", () => store.set("page", Math.max(0, this.page() - 1))),
      listen(this.after, "click", () => store.set("page", this.page() + 1)),
      listen(this.host, "keydown", event => this.keyed(event))
    );
    this.follow();
  }

  private request(): MapsRequest {
    const { store } = this;
    return {
      run: this.forward.run,
      step: store.get("step"),
      sample: store.get("sample"),
      page: store.get("page")
    };
  }

  private follow(): void {
    if (this.forward.size && this.forward.step(this.store.get("step")).figures) this.feed.want(this.request());
    this.draw();
  }

  private draw(): void {
    const { store, forward, feed } = this;
    if (!forward.size) return;
    const request = this.request();
    const step = forward.step(request.step);
    const isOpen = this.quiz.showsOutput(step);
    const answer = step.figures ? feed.get(request) : undefined;
    const fine = answer && "page" in answer && isOpen ? answer.page : null;
    // while the next pictures are on their way the old ones would be taken for theirs
    this.drawn = fine ?? (isOpen && step.figures ? (feed.coarse(request) ?? null) : null);
    this.drawTop(isOpen ? (fine?.top ?? (store.get("sample") === 0 ? step.top : null)) : null);
    this.drawWords();
    this.drawTiles(this.drawn);
    this.drawLarge();
    const key = keyOf(request);
    setAttribute(this.host, "data-mkg-maps", fine ? key : null);
    setAttribute(this.host, "data-mkg-coarse", this.drawn && !fine ? key : null);
  }

  /** What is drawn, and what is still to come from where. */
  private drawWords(): void {
    const { forward, feed, drawn } = this;
    if (!forward.size) return;
    const request = this.request();
    const step = forward.step(request.step);
    const isOpen = this.quiz.showsOutput(step);
    const answer = step.figures ? feed.get(request) : undefined;
    const isFine = answer !== undefined && "page" in answer;
    const error = answer && "error" in answer ? answer.error : "";
    const text = !step.figures ? "" : !isOpen ? words.HIDDEN_PICTURES : error || (drawn ? "" : this.missing(request));
    setText(this.message, text);
    this.message.hidden = text === "";
    this.drawHead(drawn, drawn && !isFine && !error ? this.coarse(request) : "");
  }

  /** What the page does not have, and what it waits for. */
  private missing(request: MapsRequest): string {
    const what = words.pictures(request.page, request.sample);
    if (!this.store.get("connected")) return words.needKernel(what);
    if (this.feed.isPostponed(request)) return words.afterCell(what);
    return this.store.get("busy") ? words.whenFree(what) : words.loading(what);
  }

  /** What is missing of pictures that are there. */
  private coarse(request: MapsRequest): string {
    if (!this.store.get("connected")) return words.FINER_NEED_KERNEL;
    if (this.feed.isPostponed(request)) return words.FINER_AFTER_CELL;
    return this.store.get("busy") ? words.FINER_WHEN_FREE : "";
  }

  private drawTop(top: Top | null): void {
    this.topHost.replaceChildren(...(top?.[1].length ? [el("h4", "", words.LARGEST), topList(top)] : []));
  }

  private drawHead(page: MapPage | null, coarse: string): void {
    const perPage = page?.form === "strip" ? IN_A_STRIP : ON_A_PAGE;
    this.title.textContent = page ? titleOf(page) : "";
    this.note.textContent = page ? [...partsOf(page), ...(coarse ? [coarse] : [])].join(" · ") : "";
    this.note.hidden = this.note.textContent === "";
    const { first, total } = page ?? { first: 0, total: 0 };
    const end = Math.min(first + perPage, total);
    const connected = this.store.get("connected");
    this.pager.hidden = total <= perPage;
    this.pageText.textContent = words.ofAll(`${first}–${end - 1}`, total);
    this.before.disabled = !connected || first === 0;
    this.after.disabled = !connected || end >= total;
  }

  /** The page that is drawn, which is the last one where the request goes beyond it. */
  private page(): number {
    const perPage = this.drawn?.form === "strip" ? IN_A_STRIP : ON_A_PAGE;
    return this.drawn ? Math.floor(this.drawn.first / perPage) : this.store.get("page");
  }

  private drawTiles(page: MapPage | null): void {
    const count = page && page.form !== "none" ? page.ranges.length : 0;
    this.grid.className = `mkg-forward-maps mkg-is-${page?.form ?? "none"}`;
    while (this.tiles.length < count) this.tiles.push(this.newTile(this.tiles.length));
    this.grid.replaceChildren(...this.tiles.slice(0, count).map(tile => tile.element));
    if (!page) return;
    for (let at = 0; at < count; at += 1) {
      const { button: press, canvas, name, range } = this.tiles[at];
      name.textContent = nameOf(page, at);
      range.textContent = rangeOf(page, at);
      press.title = `${nameOf(page, at)}: ${rangeOf(page, at)}`;
      setAttribute(press, "aria-label", words.enlarge(nameOf(page, at), rangeOf(page, at)));
      paint(canvas, page, at);
    }
  }

  private newTile(at: number): Tile {
    const element = el("div", "mkg-forward-tile");
    const press = button("mkg-forward-map", "");
    const canvas = el("canvas");
    const [name, range] = [el("span", "mkg-forward-map-name"), el("span", "mkg-forward-map-range")];
    canvas.setAttribute("aria-hidden", "true");
    press.append(canvas, name, range);
    element.append(press);
    press.addEventListener("click", () => this.store.set("large", this.store.get("large") === at ? null : at));
    return { element, button: press, canvas, name, range };
  }

  private drawLarge(): void {
    const { drawn: page } = this;
    const at = this.store.get("large");
    const isShown = page !== null && at !== null && at < page.ranges.length;
    this.largeHost.hidden = !isShown;
    this.tiles.forEach((tile, index) => setAttribute(tile.button, "aria-pressed", String(isShown && index === at)));
    if (!isShown) {
      this.largeHost.replaceChildren();
      return;
    }
    const canvas = el("canvas");
    setRole(canvas, "img", words.picture(nameOf(page, at), rangeOf(page, at)));
    const close = iconButton("mkg-icon-button", "close", words.CLOSE);
    close.addEventListener("click", () => this.closeLarge());
    const caption = el("div", "mkg-forward-large-text");
    caption.append(el("strong", "", nameOf(page, at)), scaleOf(page, at), close);
    this.largeHost.replaceChildren(canvas, caption);
    paint(canvas, page, at);
  }

  private closeLarge(): void {
    const at = this.store.get("large");
    this.store.set("large", null);
    if (at !== null) this.tiles[at]?.button.focus({ preventScroll: true });
  }

  private keyed(event: KeyboardEvent): void {
    if (event.key !== "Escape" || this.store.get("large") === null) return;
    this.closeLarge();
    event.stopPropagation();
  }
}

function titleOf({ form, total }: MapPage): string {
  if (form === "channels") return words.channels(total);
  if (form === "heat") return words.HEAT_MAP;
  return form === "strip" ? words.values(total) : words.NO_PICTURE;
}

function partsOf({ form, sizes, width, height, slice, first, total, ranges }: MapPage): string[] {
  const parts: string[] = [];
  if (form === "heat") parts.push(words.rowsAndColumns(sizes[0], sizes[1]));
  if (form === "strip" && height > 1) parts.push(words.stripRows(width, first));
  if (slice !== null) parts.push(words.depthSlice(slice));
  if (form !== "strip" && form !== "none" && (sizes[0] !== height || sizes[1] !== width))
    parts.push(words.averaged(sizes.join("×"), `${height}×${width}`));
  if (form === "channels" && ranges.length < Math.min(ON_A_PAGE, total - first))
    parts.push(words.firstShown(ranges.length));
  return parts;
}

function nameOf({ form, first }: MapPage, at: number): string {
  return form === "channels" ? words.channel(first + at) : form === "heat" ? words.ALL_VALUES : words.VALUES;
}

function rangeOf({ ranges }: MapPage, at: number): string {
  const [low, high] = ranges[at].map(toNum);
  if (Number.isNaN(low)) return words.NOTHING_FINITE;
  return low === high ? words.constant(shortNumber(low)) : words.fromTo(shortNumber(low), shortNumber(high));
}

/** The colors between the least and the greatest value. */
function scaleOf(page: MapPage, at: number): HTMLElement {
  const scale = el("span", "mkg-forward-scale");
  const [low, high] = page.ranges[at].map(toNum);
  const ramp = el("span", "mkg-forward-ramp");
  const stops = Array.from({ length: 11 }, (_, i) => sample(i / 10));
  ramp.style.backgroundImage = `linear-gradient(to right, ${stops.join(", ")})`;
  scale.append(el("span", "", shortNumber(low)), ramp, el("span", "", shortNumber(high)));
  return scale;
}

const NOT_FINITE = 255;
let ramp: Uint8ClampedArray | undefined;

/** The color of each byte, as four bytes. */
function colors(): Uint8ClampedArray {
  if (ramp) return ramp;
  const made = new Uint8ClampedArray(4 * (NOT_FINITE + 1));
  for (let code = 0; code <= NOT_FINITE; code += 1) {
    const value = Number.parseInt(
      (code === NOT_FINITE ? NOT_FINITE_COLOR : sample(code / (NOT_FINITE - 1))).slice(1),
      16
    );
    made.set([value >> 16, (value >> 8) & 255, value & 255, 255], 4 * code);
  }
  ramp = made;
  return made;
}

/** The pixels of one map as a canvas takes them; what fills up the last row of a strip is transparent. */
export function pixelsOf(page: MapPage, at: number): Uint8ClampedArray {
  const size = page.width * page.height;
  const filled = page.form === "strip" ? Math.min(size, page.sizes[0] ?? size) : size;
  const bytes = page.pixels.subarray(at * size, at * size + filled);
  const found = new Uint8ClampedArray(4 * size);
  const table = colors();
  bytes.forEach((code, i) => found.set(table.subarray(4 * code, 4 * code + 4), 4 * i));
  return found;
}

function paint(canvas: HTMLCanvasElement, page: MapPage, at: number): void {
  canvas.width = page.width;
  canvas.height = page.height;
  const context = contextOf(canvas);
  if (!context) return; // a page without a screen
  const image = context.createImageData(page.width, page.height);
  image.data.set(pixelsOf(page, at));
  context.putImageData(image, 0, 0);
}
