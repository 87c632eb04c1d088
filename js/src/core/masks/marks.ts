// All that can be seen on the cells of a row, with what the legend says of it and when.

import type { PlanData } from "./plan_data";
import { LOOKS } from "./cell_paint";
import type { Scene } from "./scene";
import { LEVELS, NO_LEVEL } from "./shades";

export interface Mark {
  readonly name: string;
  /** How a cell with this mark is drawn; a class for what is none of the canvas. */
  readonly look: number | string;
  readonly text: string;
  isInUse(scene: Scene): boolean;
}

const MIDDLE = LEVELS >> 1;
const always = () => true;

/** Every one of `LOOKS` and every class that changes a strip has an entry. */
export const MARKS: readonly Mark[] = [
  { name: "stays", look: MIDDLE, text: "stays", isInUse: always },
  { name: "goes", look: MIDDLE | LOOKS.goes, text: "goes", isInUse: always },
  { name: "unscored", look: NO_LEVEL, text: "no score", isInUse: ({ data }) => lacksScores(data) },
  {
    name: "kept",
    look: MIDDLE | LOOKS.goes | LOOKS.kept,
    text: "dry run keeps it",
    isInUse: ({ session }) => hasIndices(session.report?.kept)
  },
  {
    name: "taken",
    look: MIDDLE | LOOKS.taken,
    text: "dry run takes it",
    isInUse: ({ session }) => hasIndices(session.report?.taken)
  },
  {
    name: "stale",
    look: MIDDLE | LOOKS.goes | LOOKS.kept | LOOKS.stale,
    text: "gray: of an earlier draft",
    // with the marks themselves: where it came and went with each gesture, the rows would move under the hand
    isInUse: ({ session }) => hasIndices(session.report?.kept) || hasIndices(session.report?.taken)
  },
  {
    name: "range",
    look: MIDDLE | LOOKS.range,
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
