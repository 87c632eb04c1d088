// What names a row of the tree: the name, then signs and the class, as many of them as there is room for beside it.

import { BLOCK, foldBadge, NOTE } from "../shared/badges";
import { el, nameSpan } from "../shared/dom";
import { nameEnd } from "../shared/format";
import type { Hierarchy } from "../shared/hierarchy";
import { highlight } from "../shared/search";
import type { TreeRow } from "./rows";

/** The order is that of importance: tree.css lets go of what does not fit, from the end. */
export function rowLabel(h: Hierarchy, { node, fold }: TreeRow, needles: readonly string[]): HTMLElement {
  const label = el("span", "mkg-row-label");
  label.append(cutName(node === 0 ? h.payload.title : h.name(node), needles));
  if (fold) label.append(el("span", "mkg-row-count", foldBadge(fold)));
  if (h.marks(node).length) label.append(el("span", "mkg-row-mark", NOTE));
  if (h.blocks(node).length) label.append(el("span", "mkg-row-block", BLOCK));
  const word = node === 0 ? "" : h.word(node);
  if (word) label.append(marked(nameSpan("mkg-row-class", ""), highlight(word, needles)));
  return label;
}

/** In two parts, of which the first gives way. */
function cutName(text: string, needles: readonly string[]): HTMLElement {
  const name = nameSpan("mkg-row-name", "");
  const end = nameEnd(text);
  const [first, last] = cutAt(highlight(text, needles), text.length - end.length);
  name.append(marked(el("span", "mkg-row-start"), first));
  if (end) name.append(marked(el("span", "mkg-row-end"), last));
  return name;
}

/** Both sides of a place in a text in which every second part is a match. */
function cutAt(parts: readonly string[], place: number): [string[], string[]] {
  const [before, after]: [string[], string[]] = [[], []];
  let from = 0;
  for (const part of parts) {
    const cut = Math.min(part.length, Math.max(0, place - from));
    before.push(part.slice(0, cut));
    after.push(part.slice(cut));
    from += part.length;
  }
  return [before, after];
}

/** Text with the matches in it set apart, as separate text nodes. */
function marked(element: HTMLElement, parts: readonly string[]): HTMLElement {
  parts.forEach((part, index) => {
    if (part) element.append(index % 2 ? el("mark", "mkg-hit", part) : part);
  });
  return element;
}
