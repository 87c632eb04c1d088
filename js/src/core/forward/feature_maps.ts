// The pictures of the current step: one canvas per channel, a heat map, or a strip; one of them can be shown large.

import { contextOf } from "../shared/base/canvas";
import { NOT_FINITE_COLOR, sample } from "../shared/stage/color";
import { button, el, listen, setAttribute, Part, setRole, iconButton } from "../shared/ui/dom";
import { shortNumber } from "../shared/base/format";
import { topList } from "./details";
import { keyOf, type MapPage, type MapsFeed, type MapsRequest } from "./maps_feed";
import { type Forward, toNum, type Top } from "./payload";
import type { RevealedShapes, Quiz } from "./quiz";
import type { ForwardStore } from "./state";

const ON_A_PAGE = 64;
const IN_A_STRIP = 4096;
const ASKED = "The pictures and the largest outputs are shown once the shape is found.";

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
  private readonly before = button("mkg-button mkg-forward-page-back", "Previous");
  private readonly after = button("mkg-button mkg-forward-page-next", "Next");
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
    const text = !step.figures ? "" : !isOpen ? ASKED : error || (drawn ? "" : this.missing(request));
    if (this.message.textContent !== text) this.message.textContent = text;
    this.message.hidden = text === "";
    this.drawHead(drawn, drawn && !isFine && !error ? this.coarse(request) : "");
  }

  /** What the page does not have, and what it waits for. */
  private missing(request: MapsRequest): string {
    const { sample, page } = request;
    const what = page ? "the pictures of this page" : sample ? `the pictures of item ${sample}` : "these pictures";
    if (!this.store.get("connected")) return `${capital(what)} need the kernel, and it is gone.`;
    if (this.feed.isPostponed(request))
      return `For ${what} the model has to run again, which it does once the running cell has ended.`;
    return this.store.get("busy")
      ? `${capital(what)} come from the kernel, which is busy and has not answered yet.`
      : `Asking the kernel for ${what} …`;
  }

  /** What is missing of pictures that are there. */
  private coarse(request: MapsRequest): string {
    if (!this.store.get("connected")) return "finer ones need the kernel, and it is gone";
    if (this.feed.isPostponed(request))
      return "finer ones once the running cell has ended: the model has to run again for them";
    return this.store.get("busy") ? "finer ones once the kernel, which is busy, has answered" : "";
  }

  private drawTop(top: Top | null): void {
    this.topHost.replaceChildren(...(top?.[1].length ? [el("h4", "", "Largest outputs"), topList(top)] : []));
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
    this.pageText.textContent = `${first}–${end - 1} of ${total}`;
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
      setAttribute(press, "aria-label", `${nameOf(page, at)}, from ${rangeOf(page, at)}, show large`);
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
    setRole(canvas, "img", `${nameOf(page, at)}, from ${rangeOf(page, at)}`);
    const close = iconButton("mkg-icon-button", "close", "Close");
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
  if (form === "channels") return total === 1 ? "1 channel" : `${total} channels`;
  if (form === "heat") return "Heat map";
  return form === "strip" ? (total === 1 ? "1 value" : `${total} values`) : "No picture of this output";
}

function partsOf({ form, sizes, width, height, slice, first, total, ranges }: MapPage): string[] {
  const parts: string[] = [];
  if (form === "heat") parts.push(`${sizes[0]} rows, ${sizes[1]} columns`);
  if (form === "strip" && height > 1) parts.push(`rows of ${width} values, from index ${first} on`);
  if (slice !== null) parts.push(`slice ${slice} of the depth`);
  if (form !== "strip" && form !== "none" && (sizes[0] !== height || sizes[1] !== width))
    parts.push(`averaged from ${sizes.join("×")} to ${height}×${width}`);
  if (form === "channels" && ranges.length < Math.min(ON_A_PAGE, total - first))
    parts.push(`the first ${ranges.length} of them`);
  return parts;
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

function nameOf({ form, first }: MapPage, at: number): string {
  return form === "channels" ? `channel ${first + at}` : form === "heat" ? "all values" : "values";
}

function rangeOf({ ranges }: MapPage, at: number): string {
  const [low, high] = ranges[at].map(toNum);
  if (Number.isNaN(low)) return "nothing finite";
  return low === high ? `${shortNumber(low)} throughout` : `${shortNumber(low)} to ${shortNumber(high)}`;
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
