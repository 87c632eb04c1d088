// The legend of the cells: the scale of the scores with its ends, and an entry for every mark in use.

import { canDraw, pixelRatio } from "../../shared/base/canvas";
import { el, nameSpan, Part, setRole } from "../../shared/ui/dom";
import { COLOR_LEVELS, UNSCORED, rampColor, cellLayout, CELL_FLAGS, paintCell } from "../cell_drawing";
import type { EditorContext } from "../session/editor_context";
import { batchesText } from "../draft/number_texts";
import type { PlanData } from "../draft/plan_data";

// All that can be seen on the cells of a row, with what the legend says of it and when.

interface Mark {
  readonly name: string;
  /** How a cell with this mark is drawn; a class for what is none of the canvas. */
  readonly look: number | string;
  readonly text: string;
  isInUse(scene: EditorContext): boolean;
}

const MIDDLE = COLOR_LEVELS >> 1;
const always = () => true;

/** Every one of `LOOKS` and every class that changes a strip has an entry. */
export const MARKS: readonly Mark[] = [
  { name: "stays", look: MIDDLE, text: "stays", isInUse: always },
  { name: "goes", look: MIDDLE | CELL_FLAGS.goes, text: "goes", isInUse: always },
  { name: "unscored", look: UNSCORED, text: "no score", isInUse: ({ data }) => lacksScores(data) },
  {
    name: "kept",
    look: MIDDLE | CELL_FLAGS.goes | CELL_FLAGS.kept,
    text: "dry run keeps it",
    isInUse: ({ session }) => hasIndices(session.report?.kept)
  },
  {
    name: "taken",
    look: MIDDLE | CELL_FLAGS.taken,
    text: "dry run takes it",
    isInUse: ({ session }) => hasIndices(session.report?.taken)
  },
  {
    name: "stale",
    look: MIDDLE | CELL_FLAGS.goes | CELL_FLAGS.kept | CELL_FLAGS.stale,
    text: "gray: of an earlier draft",
    // with the marks themselves: where it came and went with each gesture, the rows would move under the hand
    isInUse: ({ session }) => hasIndices(session.report?.kept) || hasIndices(session.report?.taken)
  },
  {
    name: "range",
    look: MIDDLE | CELL_FLAGS.range,
    text: "range for space",
    isInUse: ({ cursor }) => cursor === "range"
  },
  {
    name: "cursor",
    look: "mkg-mask-key-cursor",
    text: "cursor of the keyboard",
    isInUse: ({ cursor }) => cursor !== ""
  },
  {
    name: "locked",
    look: "mkg-mask-key-locked",
    text: "pale: locked",
    isInUse: ({ store }) => store.get("locked").length > 0
  },
  {
    name: "module",
    look: "mkg-mask-key-module",
    text: "in the selected module",
    isInUse: ({ store }) => Boolean(store.get("selected"))
  }
];

function hasIndices(found: ReadonlyMap<number, readonly number[]> | undefined): boolean {
  return [...(found?.values() ?? [])].some(indices => indices.length > 0);
}

const known = new WeakMap<object, boolean>();

/** Whether an index of a free axis has no score. */
function lacksScores(data: PlanData): boolean {
  const { scores, axes } = data;
  if (!scores) return true;
  let found = known.get(scores);
  if (found === undefined) {
    const free = [...axes.size.keys()].filter(axis => data.isFree(axis));
    found = free.some(axis => !scores.of(axis).every(Number.isFinite));
    known.set(scores, found);
  }
  return found;
}

const STOPS = 12;
const SCALES = {
  local: ["each row on its own scale", "From the 1st to the 99th percentile of the scores of the row"],
  global: ["all rows on one scale", "From the 1st to the 99th percentile of all scores, each divided by its row's mean"]
} as const;
const AS_THEY_ARE = [
  "all rows on one scale",
  "From the 1st to the 99th percentile of all scores, as they are"
] as const;

export class CellLegend extends Part {
  private readonly ramp = el("span", "mkg-mask-ramp");
  private readonly scale = el("span", "mkg-mask-scale");
  private readonly entries: readonly Entry[];
  private of = ""; // the importance that the scores are of, as far as it is known

  constructor(
    host: HTMLElement,
    private readonly scene: EditorContext
  ) {
    super(host);
    host.classList.add("mkg-mask-legend");
    setRole(host, "group", "What the cells say");
    this.ramp.setAttribute("aria-hidden", "true");
    this.entries = MARKS.map(mark => new Entry(mark));
    const ends = key(el("span", "", "least"), this.ramp, el("span", "", "most important"), this.scale);
    ends.classList.add("mkg-mask-ends");
    host.append(key(el("span", "", "one cell = one index of the axis")), ends, ...this.entries.map(own => own.element));
    const { store, session, events, data } = scene;
    const later = () => scene.frames.add(this.draw);
    this.disposers.add(
      store.on(["importance", "scope", "locked", "selected"], later),
      session.events.on(["scores", "report", "history", "costs"], later),
      events.on("cursor", later),
      data.draft.onChange(later)
    );
    this.recolor();
  }

  recolor(): void {
    const { dark } = this.scene.colors;
    const stops = Array.from({ length: STOPS }, (_, stop) => rampColor(stop / (STOPS - 1), dark));
    this.ramp.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
    for (const entry of this.entries) entry.paint(this.scene);
    this.draw();
  }

  /** What the cells are shaded by, and what that stands on. */
  private basis(): [name: string, after: string] {
    const { store, data, session } = this.scene;
    const { offers, sensing } = session;
    const name = store.get("importance");
    const isSensitivity = name === "sensitivity" && offers.sensitivity;
    if (isSensitivity && !data.scores?.isComparable) {
      const state = sensing ? "is being computed" : "is not computed";
      return data.scores
        ? [this.of || "the former importance", ` as long as the sensitivity ${state}`]
        : [name, ` ${state}`];
    }
    this.of = name;
    if (isSensitivity || offers.onBatches.includes(name)) return [name, ` on ${batchesText(offers.batches)}`];
    return [name, name === "taylor" ? " of the gradients that the parameters have" : ""];
  }

  private readonly draw = (): void => {
    const { store, data } = this.scene;
    if (data.draft.isOpen) return; // a new entry may take another line: nothing moves under a hand that brushes
    const scope = store.get("scope");
    const [scale, how] = scope === "global" && data.scores?.isComparable ? AS_THEY_ARE : SCALES[scope];
    const [name, after] = this.basis();
    this.scale.replaceChildren("(", nameSpan("", name), `${after}, ${scale})`);
    this.scale.title = `${how}; what lies beyond has the color of the end`;
    for (const entry of this.entries) entry.draw(this.scene);
  };
}

/** A swatch with its words. */
class Entry {
  readonly element: HTMLElement;
  private readonly swatch: HTMLElement;

  constructor(private readonly mark: Mark) {
    const { look, text, name } = mark;
    this.swatch = typeof look === "number" ? el("canvas", "mkg-mask-swatch") : el("span", `mkg-mask-swatch ${look}`);
    this.swatch.setAttribute("aria-hidden", "true");
    this.element = key(this.swatch, el("span", "", text));
    this.element.dataset.mkgMark = name;
  }

  draw(scene: EditorContext): void {
    this.element.hidden = !this.mark.isInUse(scene);
  }

  /** By the painter of the cells themselves. */
  paint({ colors }: EditorContext): void {
    const { swatch, mark } = this;
    if (!(swatch instanceof HTMLCanvasElement) || typeof mark.look !== "number" || !canDraw()) return;
    const [layout, ratio] = [cellLayout(1, 100), pixelRatio()];
    swatch.width = swatch.height = Math.ceil(layout.pitch * ratio);
    const context = swatch.getContext("2d");
    context?.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (context) paintCell(context, layout, 0, mark.look, colors);
  }
}

/** Is not torn apart where the line breaks. */
function key(...parts: HTMLElement[]): HTMLElement {
  const element = el("span", "mkg-mask-key");
  element.append(...parts);
  return element;
}
