// The cards of a forward pass: their text and their size.

import type { Dataflow } from "../../shared/model/dataflow";
import type { Fold, Hierarchy } from "../../shared/model/hierarchy";
import { FONT, type Measure, oneLine } from "../../shared/base/canvas";
import { exactNumber } from "../../shared/base/format";
import type { Size } from "../../layout/types";
import { LEGIBLE_ZOOM, sizeAt } from "../../shared/stage/viewport";
import { CARD, cardText, type CardText, foldParams } from "../scene/scene";
import type { Unit } from "../../shared/model/flow_units";
import type { OperatorGroup } from "../../shared/model/operator_groups";
import { groupTitle } from "../../shared/model/operator_names";
import * as words from "../../words/graph";

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
const MAX_WIDTH = 280; // of the card of a group
export const LINE = 14; // height of what is written below
const MAX_LISTED = 3; // members of a run that are all named
const MANY = 12; // operators of one card, of which the line of code says more than their names

/** `name`: the one in its frame; `fold`: the run that the unit stands for; `isRun`: each member gives to the next. */
export function unitText(
  h: Hierarchy,
  { node, ordinal, of }: Unit,
  name: string,
  fold?: Fold,
  isRun = false
): CardText {
  const text = named(cardText(h, node), oneLine(name));
  if (fold) {
    const parts = [membersText(h, fold, isRun), foldParams(h, fold)];
    return { ...text, detail: oneLine(parts.filter(part => part !== "").join(" · ")) };
  }
  return of > 1 ? { ...text, subtitle: `${text.subtitle} · ${words.call(ordinal + 1, of)}` } : text;
}

/** The root and the cards of unique modules keep their class as the title. */
function named(text: CardText, name: string): CardText {
  return name !== "" && text.name === text.title ? { ...text, name, title: name } : text;
}

/** "0 → … → 11", or "0 … 29 side by side" */
function membersText(h: Hierarchy, { members }: Fold, isRun: boolean): string {
  const names = members.map(member => h.name(member));
  const [first, last] = [names[0], names[names.length - 1]];
  if (!isRun) return words.sideBySide(first, last);
  return names.length <= MAX_LISTED ? names.join(" → ") : `${first} → … → ${last}`;
}

export function stepText(flow: Dataflow, step: number): CardText {
  const detail = flow.tensorNames(step).join(", ");
  return { title: oneLine(flow.name(step)), subtitle: "", detail: oneLine(detail) };
}

const texts = new WeakMap<OperatorGroup, CardText>();

/** What a group does, by name, and the shape before and behind it; else the line of code. */
export function operatorGroupText(flow: Dataflow, group: OperatorGroup): CardText {
  let text = texts.get(group);
  if (!text) texts.set(group, (text = describe(flow, group)));
  return text;
}

function describe(flow: Dataflow, group: OperatorGroup): CardText {
  const { steps, change } = group;
  const tensors = [...new Set(steps.flatMap(step => flow.tensorNames(step)))];
  const detail = group.line === undefined ? change || tensors.slice(0, 3).join(", ") || codeOf(flow, steps) : "";
  return { title: titleOf(flow, steps), subtitle: "", detail: oneLine(detail || lineText(group)) };
}

/** What a module without modules does by its own code; "" where its card has more to say, or its class says it. */
export function moduleOperators(flow: Dataflow, steps: readonly number[], text: CardText): string {
  if (text.detail !== "" || steps.length < 2) return "";
  const title = titleOf(flow, steps);
  return isIn(title, text.subtitle) ? "" : title;
}

/** The width of a card that has room for a line at every zoom at which it is read. */
export const widthFor = (line: string, measure: Measure): number =>
  Math.ceil(measure(line, sizeAt(FONT.text, LEGIBLE_ZOOM), false)) + 2 * CARD.padding;

/** "RMS norm" is in "LlamaRMSNorm". */
function isIn(title: string, name: string): boolean {
  const [short, long] = [title, name].map(each => each.toLowerCase().replace(/[^a-z]/g, ""));
  return short !== "" && long.includes(short);
}

const titles = new WeakMap<readonly number[], string>();

/** "attention", "topk, softmax, +13"; of few operators all. */
function titleOf(flow: Dataflow, steps: readonly number[]): string {
  let title = titles.get(steps);
  if (title === undefined) titles.set(steps, (title = oneLine(groupTitle(flow, steps, signOf))));
  return title;
}

const signOf = (name: string): string => SYMBOLS[name] ?? name;

/** "roi_heads.py:436 ×100" */
function lineText({ line = "", times = 1 }: OperatorGroup): string {
  const file = line.slice(line.lastIndexOf("/") + 1);
  return times > 1 ? `${file} ×${exactNumber(times)}` : file;
}

/** Of many operators the file that most of them come from. */
function codeOf(flow: Dataflow, steps: readonly number[]): string {
  if (steps.length <= MANY) return "";
  const counts = new Map<string, number>();
  for (const step of steps) {
    const file = /([^/]*?)(?::\d+)?$/.exec(flow.source(step) ?? "")?.[1] ?? "";
    counts.set(file, (counts.get(file) ?? 0) + 1);
  }
  return [...counts].reduce((most, one) => (one[1] > most[1] ? one : most))[0];
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
  const name = measure(title, sizeAt(FONT.title, LEGIBLE_ZOOM), true);
  const text = Math.max(name, ...lines.map(line => measure(line, FONT.text, false)));
  const width = Math.ceil(text) + extra + (title.length > 1 || detail ? 24 : 8);
  return [Math.min(MAX_WIDTH, Math.max(GLYPH, width)), GLYPH + LINE * lines.length];
}
