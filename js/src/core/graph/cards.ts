// What is written on a card, and how large the card is.

import { FONT, type Measure, oneLine } from "../shared/canvas";
import { rangeText, shortNumber } from "../shared/format";
import { hyperLine } from "../shared/hyper";
import type { Fold, Hierarchy } from "../shared/hierarchy";

export interface CardText {
  name?: string; // slot, where there is one: what a small card says
  title: string; // class; the slot where a file tells no class
  subtitle: string; // slot; then what kind of module it is
  detail: string; // a few hyper-parameters, or what is inside
}

export const CARD = { minWidth: 116, maxWidth: 236, padding: 14, short: 46, tall: 62, chevron: 18 };

/** `fold`: the run that the card stands for; of similar modules it says what they have from the least to the most. */
export function cardText(h: Hierarchy, node: number, fold?: Fold): CardText {
  const text = h.isKind(node) ? kindText(h, node) : classText(h, node);
  return fold?.kind === "family" ? { ...text, detail: oneLine(foldParams(h, fold)) } : text;
}

function classText(h: Hierarchy, node: number): CardText {
  const name = node === 0 ? "" : oneLine(h.name(node) || '""');
  return {
    name,
    title: oneLine(h.className(node)),
    subtitle: name,
    detail: oneLine(h.isContainer(node) ? inside(h, node) : hyperLine(h.hyper(node)))
  };
}

/** Where no class is told, the name says most. */
function kindText(h: Hierarchy, node: number): CardText {
  const own = h.tensors(node);
  const [, , shape] = own.find(([name]) => name === "weight") ?? (own.length === 1 ? own[0] : []);
  const name = oneLine(h.name(node) || '""');
  return {
    name,
    title: name,
    subtitle: oneLine(h.word(node)),
    detail: oneLine(h.isContainer(node) ? inside(h, node) : (shape?.join("×") ?? ""))
  };
}

/** "4 modules · 1.2 M" */
function inside(h: Hierarchy, node: number): string {
  const count = h.children(node).length;
  const params = paramsText(h, node);
  return `${count} module${count === 1 ? "" : "s"}${params ? ` · ${params}` : ""}`;
}

/** Parameters as short text; "" without the column or without parameters. */
export function paramsText(h: Hierarchy, node: number): string {
  const params = h.column("params")?.[node] ?? 0;
  return params === 0 ? "" : shortNumber(params);
}

/** What each module of a run has: "each 1.2 M", or of similar ones "304 – 295 k parameters". */
export function foldParams(h: Hierarchy, fold: Fold): string {
  if (fold.kind === "exact") return paramsText(h, fold.first) && `each ${paramsText(h, fold.first)}`;
  let [least, most] = [Infinity, 0];
  for (const member of fold.members) {
    const params = h.column("params")?.[member] ?? 0;
    [least, most] = [Math.min(least, params), Math.max(most, params)];
  }
  return most === 0 ? "" : `${rangeText(least, most)} parameters`;
}

/** Width and height of a closed card. */
export function cardSize(text: CardText, badge: string, container: boolean, measure: Measure): [number, number] {
  const extra = (badge ? measure(badge, FONT.text, true) + 14 : 0) + (container ? CARD.chevron : 0);
  const widest = Math.max(
    measure(text.title, FONT.title, true) + extra,
    measure(text.subtitle, FONT.text, false),
    measure(text.detail, FONT.text, false)
  );
  const width = Math.min(CARD.maxWidth, Math.max(CARD.minWidth, Math.ceil(widest) + 2 * CARD.padding));
  return [width, text.detail && text.subtitle ? CARD.tall : CARD.short];
}
