// The cards of a forward pass: their text and their size.

import { CARD, cardText, type CardText, foldParams } from "../scene/scene";
import type { Dataflow } from "../../shared/model/dataflow";
import { counted } from "../../shared/base/format";
import { FONT, type Measure, oneLine } from "../../shared/base/canvas";
import type { Fold, Hierarchy } from "../../shared/model/hierarchy";
import type { Size } from "../../layout/types";
import type { OperatorGroup } from "./operator_groups";
import type { Unit } from "./flow_units";

export const GLYPH = 26; // height of the small card of an operator
const SYMBOLS: Readonly<Record<string, string>> = {
  add: "+",
  sub: "−",
  mul: "×",
  div: "÷",
  matmul: "@",
  bmm: "@",
  mm: "@"
};
/** What stands between functions: signs, and powers, comparisons and sizes. */
const ARITHMETIC = new Set([
  ...Object.values(SYMBOLS),
  ..."addmm addmv baddbmm rsub neg pow square sqrt rsqrt reciprocal abs eq ne lt le gt ge where clamp".split(" "),
  ..."clamp_min clamp_max fill zero masked_fill transpose permute t movedim swapaxes".split(" ")
]);
/** Its operators while a model trains, by their short names. */
const DROPOUT = ["empty_like", "bernoulli", "÷", "×"];
export const LINE = 14; // height of what is written below
const MAX_LISTED = 3; // members of a run that are all named
const MAX_NAMES = 2; // of operators on one card

/** `fold`: the run that the unit stands for; `isRun`: each of its members gives to the next. */
export function unitText(h: Hierarchy, { node, ordinal, of }: Unit, fold?: Fold, isRun = false): CardText {
  const text = cardText(h, node);
  if (fold) {
    const parts = [membersText(h, fold, isRun), foldParams(h, fold)];
    return { ...text, detail: oneLine(parts.filter(part => part !== "").join(" · ")) };
  }
  return of > 1 ? { ...text, subtitle: `${text.subtitle} · call ${ordinal + 1} of ${of}` } : text;
}

/** "0 → … → 11", or "0 … 29 side by side" */
function membersText(h: Hierarchy, { members }: Fold, isRun: boolean): string {
  const names = members.map(member => h.name(member));
  const [first, last] = [names[0], names[names.length - 1]];
  if (!isRun) return `${first} … ${last} side by side`;
  return names.length <= MAX_LISTED ? names.join(" → ") : `${first} → … → ${last}`;
}

export function stepText(flow: Dataflow, step: number): CardText {
  const detail = flow.tensorNames(step).join(", ");
  return { title: oneLine(flow.name(step)), subtitle: "", detail: oneLine(detail) };
}

/** What a stretch does, by name where these are few, and the shape before and behind it. */
export function operatorGroupText(flow: Dataflow, { steps, change }: OperatorGroup): CardText {
  const tensors = [...new Set(steps.flatMap(step => flow.tensorNames(step)))];
  const detail = change || tensors.slice(0, 3).join(", ");
  return { title: oneLine(stretchTitle(flow, steps)), subtitle: "", detail: oneLine(detail) };
}

/** All names of a few; of many the functions among them, as "relu, max_pool2d, +2"; else how many there are. */
function stretchTitle(flow: Dataflow, steps: readonly number[]): string {
  const others = new Set(steps.filter(step => !flow.computes(step)).map(step => shortName(flow, step)));
  const all = withDropout(steps.map(step => shortName(flow, step)));
  const names = [...new Set(all)];
  const times = all.length > 1 && names.length === 1 ? ` ×${all.length}` : "";
  if (names.length <= MAX_NAMES) return names.join(", ") + times;
  const named = names.filter(name => !others.has(name) && !ARITHMETIC.has(name)).slice(0, MAX_NAMES);
  const rest = all.filter(name => !named.includes(name)).length;
  return named.length > 0 ? `${named.join(", ")}, +${rest}` : counted(all.length, "operator");
}

/** The names of operators in a row, with dropout under its own name. */
function withDropout(names: readonly string[]): string[] {
  const found: string[] = [];
  for (const name of names) {
    found.push(name);
    const from = found.length - DROPOUT.length;
    if (DROPOUT.every((part, at) => found[from + at] === part)) found.splice(from, DROPOUT.length, "dropout");
  }
  return found;
}

function shortName(flow: Dataflow, step: number): string {
  const name = flow.name(step).replace(/^_+|_+$/g, "");
  return SYMBOLS[name] ?? name;
}

/** "1×768×14×14 → 1×196×768" as two lines. */
export function changeLines(change: string): string[] {
  const [from, to] = change.split(" → ");
  return to === undefined ? [change] : [from, `→ ${to}`];
}

/** A round one for a sign, a pill for a word. */
export function glyphSize({ title, detail }: CardText, opens: boolean, measure: Measure): Size {
  const extra = opens ? CARD.chevron : 0;
  const lines = detail === "" ? [] : changeLines(detail);
  const text = Math.max(measure(title, FONT.title, true), ...lines.map(line => measure(line, FONT.text, false)));
  const width = Math.ceil(text) + extra + (title.length > 1 || detail ? 20 : 8);
  return [Math.min(CARD.maxWidth, Math.max(GLYPH, width)), GLYPH + LINE * lines.length];
}
