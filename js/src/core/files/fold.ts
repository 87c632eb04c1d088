// Which siblings are drawn as one, as modulekg_widgets/engine/identity/folding.py has it for models.

import type { FoldRecord } from "../shared/payload";
import type { Plain } from "./records";
import { isTold, type Structures } from "./structures";
import type { FileTree } from "./tree";

const MOST_STAGES = 8; // children of the root that stay apart when only their sizes differ: a reader looks for layer4
const MOST_NAMED = 3; // values of a range that are no numbers
const SAME = "identical structure, separate weights";

interface Run {
  kind: "one" | "exact" | "family";
  readonly members: number[];
}

/** `shared`: modules with a tensor that stands elsewhere, too; they stand alone, for folded away, nobody would see it. */
export function foldsOf(tree: FileTree, structures: Structures, shared: ReadonlySet<number>): FoldRecord[] {
  const folds: FoldRecord[] = [];
  const patterns = tree.names.map(name => name.replace(/\d+/g, "#"));
  tree.children.forEach((children, parent) => {
    for (const { kind, members } of runsOf(children, tree, structures, patterns, shared)) {
      if (kind === "one" || (kind === "family" && parent === 0 && members.length <= MOST_STAGES)) continue;
      const label = kind === "exact" ? SAME : whatVaries(tree, structures, members);
      folds.push([members[0], members.length, kind, label]);
    }
  });
  return folds;
}

function runsOf(
  children: readonly number[],
  tree: FileTree,
  structures: Structures,
  patterns: readonly string[],
  shared: ReadonlySet<number>
): Run[] {
  const runs: Run[] = [];
  for (const node of children) {
    const last: Run | undefined = runs[runs.length - 1];
    // where no class is told, names are what tells a query from a key
    const isNamedAlike =
      last !== undefined &&
      (patterns[last.members[0]] === patterns[node] || (isTold(tree, last.members[0]) && isTold(tree, node)));
    if (!last || !isNamedAlike || shared.has(node) || shared.has(last.members[0]) || !joins(last, node, structures))
      runs.push({ kind: "one", members: [node] });
    else last.members.push(node);
  }
  return runs;
}

/** Whether a module goes on with a run; sets the kind that the run has then. */
function joins(run: Run, node: number, { of, skeletons }: Structures): boolean {
  const first = run.members[0];
  if (run.kind !== "family" && of[first] === of[node]) run.kind = "exact";
  else if (skeletons[first] === skeletons[node]) run.kind = "family";
  else return false;
  return true;
}

/** A setting that differs among the members, or else a shape or dtype, of them or else of what is inside, as a range. */
function whatVaries(tree: FileTree, structures: Structures, members: readonly number[]): string {
  let level = members.map(member => [member]);
  while (level[0].length > 0) {
    for (const about of [settingsOf, shapesOf, dtypesOf]) {
      const differences = new Map<string, unknown[]>();
      for (let at = 0; at < level[0].length; at++) {
        const column = level.map(group => about(tree, structures, group[at]));
        for (const [name, values] of differing(column)) if (!differences.has(name)) differences.set(name, values);
      }
      const names = [...differences.keys()];
      const name = names.find(each => each.startsWith("in_")) ?? names[0];
      if (name !== undefined) return `${name} ${rangeOf(differences.get(name) ?? [])}`;
    }
    level = level.map(group => group.flatMap(node => tree.children[node]));
  }
  return "other attributes";
}

type About = ReadonlyMap<string, Plain>;

const settingsOf = (_: FileTree, { list, of }: Structures, node: number): About => new Map(list[of[node]].settings);

const shapesOf = (_: FileTree, { list, of }: Structures, node: number): About =>
  new Map(list[of[node]].tensors.map(([name, , shape]) => [name, shape.join("×") || "scalar"]));

const dtypesOf = (tree: FileTree, _: Structures, node: number): About =>
  new Map([...tree.tensors[node]].map(([name, { dtype }]) => [name, dtype]));

/** Of what the first member has, that which is otherwise in another. */
function differing(members: readonly About[]): [string, unknown[]][] {
  const columns = [...members[0].keys()].map(name => [name, members.map(member => member.get(name))] as const);
  return columns
    .filter(([, column]) => column.some(value => value !== column[0]))
    .map(([name, column]) => [name, [...column]]);
}

function rangeOf(values: readonly unknown[]): string {
  const numbers = values.filter(value => typeof value === "number");
  if (numbers.length === values.length) {
    const [least, most] = numbers.reduce(([a, b], n) => [Math.min(a, n), Math.max(b, n)], [Infinity, -Infinity]);
    return `${least}…${most}`;
  }
  const distinct = [...new Set(values.map(value => (value === undefined ? "none" : String(value))))];
  return distinct.slice(0, MOST_NAMED).join(", ") + (distinct.length > MOST_NAMED ? ", …" : "");
}
