// The side panel of a model that was read from a file: the file itself, the tensors of a module, and histograms of their numbers.

import * as words from "../words/panel";
import "../../../style/file_view.css";
import { button, el, nameSpan, svg } from "../shared/ui/dom";
import { exactNumber, shortBytes, shortNumber } from "../shared/base/format";
import type { Hierarchy } from "../shared/model/hierarchy";
import { type FileAbout, type Tensor, toNumber } from "../shared/payload/payload";
import { breakable, Facts, foldedWhenLong, section, settingText, shapeText, table } from "./parts";
import { isArrayOf, isObject, isValue } from "../shared/base/schema";

const MORE = 100; // tensors of one module that are listed at once
const MAX_TYPES = 8;
const MAX_VALUE_LENGTH = 2000; // characters; more of a text is on no screen

/** What the page can do with a file beyond showing it. */
export interface FileActions {
  /** How the numbers of a tensor are spread; rejects with a `HistogramProblem`. */
  readonly histogram?: (name: string) => Promise<TensorHistogram>;
  readonly size?: number; // bytes of the file itself, which may be an index of others
}

export class FilePanel {
  private readonly file: FileAbout;
  private readonly places = new Map<number, Map<string, number>>(); // of each module its own tensors, by their names there
  private readonly listed = new Map<number, number>(); // of each module how many are listed
  private readonly opened = new Map<string, HTMLElement>(); // histograms that were asked for, by tensor

  constructor(
    private readonly h: Hierarchy,
    file: FileAbout,
    private readonly actions: FileActions,
    private readonly render: () => void
  ) {
    this.file = file;
    file.tensors.node.forEach((node, at) => {
      const own = this.places.get(node) ?? new Map<string, number>();
      const name = file.tensors.name[at];
      // one without a path of its own stands in its module under its whole name
      this.places.set(node, own.set(name.slice(name.lastIndexOf(".") + 1), at).set(name, at));
    });
  }

  /** What is known of the whole file; its totals where they stand nowhere else. */
  about(withTotals: boolean): HTMLElement[] {
    const { file, h } = this;
    const facts = new Facts();
    facts.add(words.NAME, breakable("mkg-code", file.name));
    facts.text(words.FORMAT, file.format);
    facts.text(words.TENSORS, exactNumber(file.tensors.node.length));
    if (this.actions.size !== undefined) facts.number(words.FILE_SIZE, this.actions.size, "bytes");
    if (withTotals) facts.number(words.BYTES, h.column("bytes")?.[0] ?? 0, "bytes");
    if (withTotals) facts.number(words.PARAMETERS, h.column("params")?.[0] ?? 0, "params");
    const parts = [section(words.FILE, facts.list)];
    if (file.dtypes.length > 0) parts.push(this.types());
    if (file.metadata.length > 0) parts.push(this.metadata());
    if (file.classes.length > 0) parts.push(this.classes());
    return parts;
  }

  /** The module's own tensors: shape, type and bytes of each, and its histogram where a kernel may be asked. */
  tensors(node: number): HTMLElement[] {
    const own = this.h.tensors(node);
    const places = this.places.get(node);
    if (own.length === 0) return [];
    const count = Math.min(own.length, this.listed.get(node) ?? MORE);
    const list = el("ul", "mkg-file-tensors");
    for (let at = 0; at < count; at++) list.append(this.tensor(own[at], places?.get(own[at][0])));
    const parts: HTMLElement[] = [list];
    if (count < own.length) {
      const more = button("mkg-button", words.moreOf(exactNumber(own.length - count)), words.LIST_MORE);
      more.addEventListener("click", () => {
        this.listed.set(node, count + MORE);
        this.render();
      });
      parts.push(more);
    }
    return [section(words.ownTensors(own.length), ...parts)];
  }

  /** `at`: its place among the tensors of the file. */
  private tensor([name, role, shape]: Tensor, at: number | undefined): HTMLElement {
    const { tensors, dtypes } = this.file;
    const item = el("li");
    const [head, about] = [el("div", "mkg-file-tensor"), el("div", "mkg-file-tensor-about")];
    head.append(breakable("mkg-code mkg-file-tensor-name", name));
    about.append(nameSpan("mkg-code mkg-shape", shapeText(shape)));
    item.append(head, about);
    if (at !== undefined) {
      const [whole, bytes] = [tensors.name[at], toNumber(tensors.bytes[at]) ?? 0];
      const size = el("span", "", shortBytes(bytes));
      size.title = `${exactNumber(bytes)} bytes`;
      head.title = whole.slice(0, MAX_VALUE_LENGTH);
      head.append(...this.histogramButton(whole));
      about.append(nameSpan("mkg-dim", dtypes[tensors.dtype[at]]), size);
      const opened = this.opened.get(whole);
      if (opened) item.append(opened);
    }
    if (role === "buffer") about.append(el("span", "mkg-dim", words.BUFFER));
    return item;
  }

  private histogramButton(name: string): HTMLElement[] {
    const { histogram } = this.actions;
    if (!histogram) return [];
    const isOpen = this.opened.has(name);
    const ask = button("mkg-link mkg-file-histogram", isOpen ? words.HIDE : words.HISTOGRAM, words.HISTOGRAM_HELP);
    ask.setAttribute("aria-label", words.histogramOf(name, isOpen));
    ask.addEventListener("click", () => {
      if (isOpen) this.opened.delete(name);
      else void this.open(name, histogram);
      const panel = ask.closest(".mkg-side-panel");
      const place = [...(panel?.querySelectorAll(".mkg-file-histogram") ?? [])].indexOf(ask);
      this.render();
      panel?.querySelectorAll<HTMLElement>(".mkg-file-histogram")[place]?.focus();
    });
    return [ask];
  }

  private async open(name: string, ask: (name: string) => Promise<TensorHistogram>): Promise<void> {
    const place = el("div", "mkg-file-answer");
    place.setAttribute("role", "status");
    place.append(el("span", "mkg-dim", words.ASKING));
    this.opened.set(name, place);
    try {
      place.replaceChildren(histogramView(await ask(name)));
    } catch (error) {
      const why = error instanceof HistogramProblem ? error.message : words.NOT_ASKED;
      place.replaceChildren(nameSpan("mkg-file-problem", why.slice(0, MAX_VALUE_LENGTH)));
    }
  }

  /** How many bytes there are of each dtype, the most first. */
  private types(): HTMLElement {
    const { tensors, dtypes } = this.file;
    const sums = dtypes.map(dtype => ({ dtype, count: 0, bytes: 0 }));
    tensors.dtype.forEach((dtype, at) => {
      sums[dtype].count += 1;
      sums[dtype].bytes += toNumber(tensors.bytes[at]) ?? 0;
    });
    sums.sort((a, b) => b.bytes - a.bytes);
    const rows = sums.slice(0, MAX_TYPES).map(({ dtype, count, bytes }) => {
      const value = el("span", "", shortBytes(bytes));
      value.append(el("span", "mkg-dim", words.inTensors(count)));
      return [nameSpan("mkg-code", dtype), value];
    });
    const rest = sums.length - rows.length;
    const note = rest > 0 ? [el("p", "mkg-panel-note", words.otherTypes(rest))] : [];
    return section(words.TYPES, table([words.TYPE, words.BYTES], rows), ...note);
  }

  private metadata(): HTMLElement {
    const rows = this.file.metadata.map(([name, value]) => {
      const text = value === null ? words.NONE : settingText(value);
      return [breakable("mkg-name", name), nameSpan("mkg-code", text.slice(0, MAX_VALUE_LENGTH))];
    });
    return section(words.METADATA, table([words.NAME, words.VALUE], rows));
  }

  private classes(): HTMLElement {
    const list = el("ul", "mkg-file-classes");
    for (const name of this.file.classes) {
      const item = el("li");
      item.append(breakable("mkg-code", name));
      list.append(item);
    }
    return section(words.CLASSES, foldedWhenLong(this.file.classes.length, "name", list));
  }
}

/** What an operator of a file is set to. */
export function attributeSection(file: FileAbout | null | undefined, step: number): HTMLElement[] {
  const [name, attributes] = file?.operators?.[step] ?? ["", []];
  if (name === "" && attributes.length === 0) return [];
  const facts = new Facts();
  if (name !== "") facts.text(words.FILE_NAME, name, "mkg-code");
  for (const [key, value] of attributes) {
    facts.text(key, value === null ? words.NONE : settingText(value).slice(0, MAX_VALUE_LENGTH), "mkg-code");
  }
  return [facts.list];
}

// The histogram of one tensor's numbers, as a kernel has counted them.

const MAX_BARS = 64;
const [WIDTH, HEIGHT, GAP] = [240, 64, 0.5];

export interface TensorHistogram {
  readonly counts: readonly number[];
  readonly edges: readonly number[]; // one more than there are counts
  readonly min: number | null; // these of the finite numbers; null where there is none
  readonly max: number | null;
  readonly mean: number | null;
  readonly zeros: number;
  readonly nan: number; // numbers that are not finite
  readonly elements: number;
  readonly sampled: number; // of them looked at
}

/** Why there is no histogram, for whoever asked. */
export class HistogramProblem extends Error {
  override name = "HistogramProblem";
}

/** What a kernel printed; throws `HistogramProblem`. */
export function readHistogram(printed: string): TensorHistogram {
  const problem = new HistogramProblem(words.OTHER_ANSWER);
  let raw: unknown;
  try {
    raw = JSON.parse(printed.trim().split("\n").pop() ?? "");
  } catch {
    throw problem;
  }
  if (!isObject(raw) || !isArrayOf(raw.counts, isValue) || !isArrayOf(raw.edges, isValue)) throw problem;
  const of = (key: string) => (isValue(raw[key]) ? toNumber(raw[key]) : null);
  const [counts, edges] = [raw.counts.map(toNumber), raw.edges.map(toNumber)];
  const isRight =
    counts.length <= MAX_BARS &&
    edges.length === (counts.length > 0 ? counts.length + 1 : 0) &&
    [...counts, ...edges].every(number => number !== null && Number.isFinite(number));
  if (!isRight) throw problem;
  const sampled = of("sampled") ?? 0;
  return {
    counts: counts as number[],
    edges: edges as number[],
    min: of("min"),
    max: of("max"),
    mean: of("mean"),
    zeros: of("zeros") ?? 0,
    nan: of("nan") ?? 0,
    elements: of("elements") ?? sampled,
    sampled
  };
}

/** Bars over the range of the numbers, and what there is to say of them. */
function histogramView(histogram: TensorHistogram): HTMLElement {
  const element = el("div", "mkg-tensor-histogram");
  if (histogram.counts.length > 0) element.append(bars(histogram), range(histogram));
  const facts = new Facts();
  if (histogram.mean !== null) facts.text(words.MEAN, shortNumber(histogram.mean));
  facts.text(words.ZEROS, shareOf(histogram.zeros, histogram.sampled));
  if (histogram.nan > 0) facts.text(words.NOT_FINITE, shareOf(histogram.nan, histogram.sampled));
  if (histogram.sampled < histogram.elements) {
    facts.text(words.COUNTED, words.sample(exactNumber(histogram.sampled), exactNumber(histogram.elements)));
  }
  element.append(facts.list);
  return element;
}

function bars({ counts, edges }: TensorHistogram): SVGElement {
  const highest = Math.max(1, ...counts);
  const width = WIDTH / counts.length;
  const label = words.histogramRange(shortNumber(edges[0]), shortNumber(edges[edges.length - 1]));
  const picture = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label
  });
  counts.forEach((count, at) => {
    const height = count > 0 ? Math.max(1, (count / highest) * HEIGHT) : 0; // what is there is seen
    const bar = svg("rect", { x: at * width + GAP / 2, y: HEIGHT - height, width: Math.max(0.5, width - GAP), height });
    const title = svg("title");
    title.textContent = words.bar(shortNumber(edges[at]), shortNumber(edges[at + 1]), exactNumber(count));
    bar.append(title);
    picture.append(bar);
  });
  return picture;
}

function range({ edges }: TensorHistogram): HTMLElement {
  const line = el("div", "mkg-tensor-range");
  line.append(nameSpan("", shortNumber(edges[0])), nameSpan("", shortNumber(edges[edges.length - 1])));
  return line;
}

function shareOf(count: number, all: number): string {
  return count === 0 || all === 0 ? words.NONE : `${exactNumber(count)} (${shortNumber((100 * count) / all)} %)`;
}
