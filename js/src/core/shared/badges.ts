// The small signs beside a name, and what they mean in words: the same in the tree and on the canvas.

import { counted } from "./format";
import type { Fold, Hierarchy } from "./hierarchy";

export const NOTE = "!";
export const BLOCK = "−";

export function foldBadge(fold: Fold): string {
  return fold.kind === "exact" ? `×${fold.count}` : `≈ ×${fold.count}`;
}

/** One line for each sign of a module; `fold`: what it stands for. */
export function meanings(h: Hierarchy, node: number, fold?: Fold): string[] {
  return [
    ...(fold ? [`${foldBadge(fold)} ${foldWords(fold)}`] : []),
    ...h.marks(node).map(text => `${NOTE} ${text}`),
    ...h
      .tied(node)
      .map(({ name, other, otherName }) => `tied ${name} is ${otherName} of ${h.path(other) || "the root"}`),
    ...h.blocks(node).map(text => `${BLOCK} ${text}`)
  ];
}

function foldWords({ kind, count, label }: Fold): string {
  if (kind === "exact") return `stands for ${counted(count, "module")} of identical structure`;
  return `stands for ${counted(count, "module")} of similar structure${label ? `: ${label}` : ""}`;
}
