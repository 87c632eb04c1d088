// The legend of the cells: the scale of the scores with its ends, and an entry for every mark in use.

import { canDraw, pixelRatio } from "../../shared/base/canvas";
import { el, nameSpan, Part, setRole } from "../../shared/ui/dom";
import { COLOR_LEVELS, UNSCORED, rampColor, cellLayout, CELL_FLAGS, paintCell } from "../cell_drawing";
import type { EditorContext } from "../session/editor_context";
import { batchesText } from "../draft/number_texts";
import type { PlanData } from "../draft/plan_data";
import * as words from "../../words/masks";

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
  { name: "stays", look: MIDDLE, text: words.KEPT, isInUse: always },
  { name: "goes", look: MIDDLE | CELL_FLAGS.goes, text: words.REMOVED, isInUse: always },
  { name: "unscored", look: UNSCORED, text: words.UNSCORED, isInUse: ({ data }) => lacksScores(data) },
  {
    name: "kept",
    look: MIDDLE | CELL_FLAGS.goes | CELL_FLAGS.kept,
    text: words.KEPT_BY_DRY_RUN,
    isInUse: ({ session }) => hasIndices(session.report?.kept)
  },
  {
    name: "taken",
    look: MIDDLE | CELL_FLAGS.taken,
    text: words.REMOVED_BY_DRY_RUN,
    isInUse: ({ session }) => hasIndices(session.report?.taken)
  },
  {
    name: "stale",
    look: MIDDLE | CELL_FLAGS.goes | CELL_FLAGS.kept | CELL_FLAGS.stale,
    text: words.OUTDATED_MARK,
    // with the marks themselves: where it came and went with each gesture, the rows would move under the hand
    isInUse: ({ session }) => hasIndices(session.report?.kept) || hasIndices(session.report?.taken)
  },
  {
    name: "range",
    look: MIDDLE | CELL_FLAGS.range,
    text: words.RANGE_MARK,
    isInUse: ({ cursor }) => cursor === "range"
  },
  {
    name: "cursor",
    look: "mkg-mask-key-cursor",
    text: words.CURSOR_MARK,
    isInUse: ({ cursor }) => cursor !== ""
  },
  {
    name: "locked",
    look: "mkg-mask-key-locked",
    text: words.LOCKED_MARK,
    isInUse: ({ store }) => store.get("locked").length > 0
  },
  {
    name: "module",
    look: "mkg-mask-key-module",
    text: words.IN_MODULE,
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
  local: [words.SCALE_PER_ROW, words.SCALE_PER_ROW_TITLE],
  global: [words.ONE_SCALE, words.ONE_SCALE_TITLE]
} as const;
const AS_THEY_ARE = [words.ONE_SCALE, words.RAW_SCALE_TITLE] as const;

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
    setRole(host, "group", words.LEGEND);
    this.ramp.setAttribute("aria-hidden", "true");
    this.entries = MARKS.map(mark => new Entry(mark));
    const ends = key(el("span", "", words.LOW), this.ramp, el("span", "", words.HIGH), this.scale);
    ends.classList.add("mkg-mask-ends");
    host.append(key(el("span", "", words.UNIT)), ends, ...this.entries.map(own => own.element));
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
      const isRunning = sensing !== null;
      return data.scores
        ? [this.of || words.PREVIOUS_SCORES, words.untilSensed(isRunning)]
        : [name, words.sensitivityState(isRunning)];
    }
    this.of = name;
    if (isSensitivity || offers.onBatches.includes(name)) return [name, words.onBatches(batchesText(offers.batches))];
    return [name, name === "taylor" ? words.FROM_GRADIENTS : ""];
  }

  private readonly draw = (): void => {
    const { store, data } = this.scene;
    if (data.draft.isOpen) return; // a new entry may take another line: nothing moves under a hand that brushes
    const scope = store.get("scope");
    const [scale, how] = scope === "global" && data.scores?.isComparable ? AS_THEY_ARE : SCALES[scope];
    const [name, after] = this.basis();
    this.scale.replaceChildren("(", nameSpan("", name), `${after}, ${scale})`);
    this.scale.title = words.clamped(how);
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
