// Tensors that stand under several names: the same bytes of a file, read in the same way.

import { push } from "../shared/maps";
import type { TensorRecord } from "./records";
import type { FileTree } from "./tree";

const MOST_STEPS = 10_000_000; // up the tree; a hostile file has many ties, each a hundred thousand modules deep

export interface TiedPlace {
  readonly node: number;
  readonly name: string; // in the module
  readonly tensor: TensorRecord;
}

/** Groups of two and more, in the order of the modules. */
export function tiesOf(tree: FileTree): TiedPlace[][] {
  const groups = new Map<string, TiedPlace[]>();
  tree.tensors.forEach((own, node) => {
    for (const [name, tensor] of own) {
      const { file, offset, shape, strides, dtype, nbytes } = tensor;
      if (offset === null || nbytes === 0) continue;
      push(groups, `${file}\0${offset}\0${shape.join()}\0${strides?.join() ?? ""}\0${dtype}`, { node, name, tensor });
    }
  });
  return [...groups.values()].filter(group => group.length > 1);
}

/** Calls `note` with the innermost module around each place and the one before it: what counts a tensor twice. */
export function countedAgain(
  tree: FileTree,
  ties: readonly (readonly TiedPlace[])[],
  note: (around: number, place: TiedPlace) => void
): void {
  let steps = 0;
  for (const group of ties) {
    for (let i = 1; i < group.length; i++) {
      let [one, other] = [group[i - 1].node, group[i].node];
      // depth first: of two modules the later one is never around the other
      while (one !== other && steps++ < MOST_STEPS) {
        if (one > other) one = tree.parents[one];
        else other = tree.parents[other];
      }
      if (one === other) note(one, group[i]);
    }
  }
}
