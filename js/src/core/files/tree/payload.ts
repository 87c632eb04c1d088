// The payload of ModelGraph for a model file, made of the records of a reader.

import { type FileAbout, type ModelPayload, SCHEMA_VERSION } from "../../shared/payload/payload";
import { flowOf, MAX_FLOW_OPERATORS } from "./flow";
import { elementsOf, foldsOf, roleOf, type Structures, structuresOf } from "./structures";
import type { FileContents, Plain } from "../bytes/records";
import { duplicateBytes, type FileTree, type TiedPlace, tiesOf, treeOf } from "./tree";

const COLUMN_INFO = {
  params: { label: "parameters", aggregate: "sum" },
  own_params: { label: "own parameters", aggregate: "own" },
  bytes: { label: "bytes", aggregate: "sum" }
} as const;

/** `name`: of the file, for one that neither has a title nor tells the class of its root. */
export function filePayload(contents: FileContents, name: string): ModelPayload {
  const root = contents.modules.find(({ path }) => path === "")?.className ?? "";
  const title = contents.title || root.slice(root.lastIndexOf(".") + 1) || name;
  const tree = treeOf(contents);
  const structures = structuresOf(tree, title);
  const flow = flowOf(contents, tree);
  const ties = tiesOf(tree);
  const fields = fieldsOf(structures);
  return {
    schema_version: SCHEMA_VERSION,
    kind: "model",
    title,
    nodes: { name: [...tree.names], parent: [...tree.parents], entity: [...structures.of] },
    columns: columnsOf(tree, ties),
    column_info: COLUMN_INFO,
    entities: {
      class: structures.list.map(({ classPlace }) => classPlace),
      name: structures.list.map(({ classPlace, digest }) => displayName(structures.classes[classPlace].name, digest)),
      digest: structures.list.map(({ digest }) => digest),
      hyper: structures.list.map(({ classPlace, settings }) => aligned(fields[classPlace], settings)),
      tensors: structures.list.map(({ tensors }) => tensors.map(([own, role, shape]) => [own, role, [...shape]]))
    },
    classes: {
      name: structures.classes.map(each => each.name),
      qualified: structures.classes.map(each => each.qualified),
      source: structures.classes.map(() => null),
      fields: fields.map(places => [...places.keys()])
    },
    folds: foldsOf(tree, structures, new Set(ties.flat().map(({ node }) => node))),
    links: [],
    tied: ties.flatMap(([first, ...others]) =>
      others.map(({ node, name: own }): [number, string, number, string] => [first.node, first.name, node, own])
    ),
    marks: {},
    blocks: {},
    edges: [],
    traced: flow !== null,
    error: null,
    flow,
    axes: null,
    compare: null,
    file: aboutOf(contents, tree, name, flow !== null)
  };
}

/** Numbers and bytes of a module and of all inside; a tensor under several names counts once. */
function columnsOf(tree: FileTree, ties: readonly (readonly TiedPlace[])[]): Record<string, number[]> {
  const empty = () => new Array<number>(tree.names.length).fill(0);
  const [params, ownParams, bytes] = [empty(), empty(), empty()];
  duplicateBytes(tree, ties, (around, { node, name, tensor }) => {
    const count = roleOf(name, tensor) === "parameter" ? elementsOf(tensor) : 0;
    // its own numbers, where both names are of one module
    (around === node ? ownParams : params)[around] -= count;
    bytes[around] -= tensor.nbytes;
  });
  for (let node = tree.names.length - 1; node >= 0; node--) {
    for (const [name, tensor] of tree.tensors[node]) {
      if (roleOf(name, tensor) === "parameter") ownParams[node] += elementsOf(tensor);
      bytes[node] += tensor.nbytes;
    }
    params[node] += ownParams[node];
    if (node === 0) continue;
    params[tree.parents[node]] += params[node];
    bytes[tree.parents[node]] += bytes[node];
  }
  return { params, own_params: ownParams, bytes };
}

/** Of each class the settings that any of its modules has. */
function fieldsOf({ classes, list }: Structures): Map<string, number>[] {
  const fields = classes.map(() => new Map<string, number>());
  for (const { classPlace, settings } of list) {
    const places = fields[classPlace];
    for (const [name] of settings) if (!places.has(name)) places.set(name, places.size);
  }
  return fields;
}

/** In the order of the class; null where this module has no such setting. */
function aligned(fields: ReadonlyMap<string, number>, settings: readonly (readonly [string, Plain])[]): Plain[] {
  const row = new Array<Plain>(fields.size).fill(null);
  for (const [name, value] of settings) row[fields.get(name) ?? 0] = value ?? "None";
  return row;
}

/** As Python names structures: the class, and digits that tell it from others. */
function displayName(className: string, digest: string): string {
  return className + String(Number.parseInt(digest.slice(-8), 16) % 1000).padStart(3, "0");
}

function aboutOf(contents: FileContents, tree: FileTree, name: string, isDrawn: boolean): FileAbout {
  const [node, dtype, bytes, names]: [number[], number[], number[], string[]] = [[], [], [], []];
  const dtypes = new Map<string, number>();
  tree.tensors.forEach((own, module) => {
    for (const tensor of own.values()) {
      let place = dtypes.get(tensor.dtype);
      if (place === undefined) dtypes.set(tensor.dtype, (place = dtypes.size));
      node.push(module);
      dtype.push(place);
      bytes.push(tensor.nbytes);
      names.push(tensor.name);
    }
  });
  const count = contents.graph?.operators.length ?? 0;
  const large = `Its graph is not drawn: it has ${count} operators, and at most ${MAX_FLOW_OPERATORS} are drawn.`;
  return {
    name,
    format: contents.format,
    metadata: Object.entries(contents.metadata).map(([key, value]) => [key, value]),
    classes: [...contents.classes],
    warnings: [...contents.warnings, ...(count > 0 && !isDrawn ? [large] : [])],
    dtypes: [...dtypes.keys()],
    ...(isDrawn && { operators: contents.graph?.operators.map(each => [each.name, Object.entries(each.attributes)]) }),
    tensors: { node, name: names, dtype, bytes }
  };
}
