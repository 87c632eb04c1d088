// Small payloads for the tests of the panels.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Hierarchy } from "../core/shared/model/hierarchy";
import { type ModelPayload, readPayload, type Tensor } from "../core/shared/payload/payload";
import { type Scalar, type Value } from "../core/shared/base/schema";
import { type GraphState, GraphStore } from "../core/shared/model/graph_store";

interface Sample {
  name?: string;
  cls?: string;
  params?: Value;
  hyper?: Record<string, Scalar>;
  tensors?: Tensor[];
  inside?: Sample[];
}

/** A payload of the given modules; folds, links and the like come from `more`. */
function payloadOf(root: Sample, more: Partial<ModelPayload> = {}): ModelPayload {
  const nodes: ModelPayload["nodes"] = { name: [], parent: [], entity: [] };
  const entities: ModelPayload["entities"] = { class: [], name: [], digest: [], hyper: [], tensors: [] };
  const classes: ModelPayload["classes"] = { name: [], qualified: [], source: [], fields: [] };
  const params: Value[] = [];
  const known = new Map<string, number>();
  const waiting = [{ sample: root, parent: -1 }];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const { sample, parent } = next;
    const index = nodes.name.length;
    nodes.name.push(sample.name ?? "");
    nodes.parent.push(parent);
    params.push(sample.params === undefined ? 0 : sample.params);
    const cls = sample.cls ?? "Module";
    const key = JSON.stringify([cls, sample.hyper, sample.tensors]);
    let entity = known.get(key);
    if (entity === undefined) {
      entity = entities.class.length;
      known.set(key, entity);
      entities.class.push(classes.name.length);
      entities.name.push(`${cls}${100 + entity}`);
      entities.digest.push(`00ff${entity}`);
      entities.hyper.push(Object.values(sample.hyper ?? {}));
      entities.tensors.push(sample.tensors ?? []);
      classes.name.push(cls);
      classes.qualified.push(`pack.${cls}`);
      classes.source.push(`pack/file.py:${entity + 1}`);
      classes.fields.push(Object.keys(sample.hyper ?? {}));
    }
    nodes.entity.push(entity);
    for (const child of [...(sample.inside ?? [])].reverse()) waiting.push({ sample: child, parent: index });
  }
  return readPayload({
    schema_version: 2,
    kind: "model",
    title: root.cls ?? "Module",
    nodes,
    columns: { params },
    column_info: { params: { label: "parameters", aggregate: "sum" } },
    entities,
    classes,
    folds: [],
    links: [],
    tied: [],
    marks: {},
    blocks: {},
    edges: [],
    traced: false,
    error: null,
    flow: null,
    axes: null,
    compare: null,
    ...more
  });
}

export function hierarchyOf(root: Sample, more: Partial<ModelPayload> = {}): Hierarchy {
  return new Hierarchy(payloadOf(root, more));
}

/** Net: conv1, bn1, layer1 (0…3, each conv + relu; folded), fc. Indices 0, 1, 2, 3, 4, 7, 10, 13, 16. */
export function smallNet(more: Partial<ModelPayload> = {}): Hierarchy {
  const block = (name: string): Sample => ({
    name,
    cls: "Block",
    params: 100,
    inside: [
      {
        name: "conv",
        cls: "Conv2d",
        params: 100,
        hyper: { bias: false, stride: 2 },
        tensors: [["weight", "parameter", [4, 5, 5]]]
      },
      { name: "relu", cls: "ReLU" }
    ]
  });
  return hierarchyOf(
    {
      cls: "Net",
      params: 2_000_400,
      inside: [
        { name: "conv1", cls: "Conv2d", params: 1_000_000 },
        { name: "bn1", cls: "BatchNorm2d", params: 128 },
        { name: "layer1", cls: "Sequential", params: 400, inside: ["0", "1", "2", "3"].map(block) },
        { name: "fc", cls: "Linear", params: 1_000_000 }
      ]
    },
    { folds: [[4, 4, "exact", ""]], ...more }
  );
}

/** `count` linear layers side by side. */
export function wideNet(count: number): Hierarchy {
  const inside = Array.from({ length: count }, (_, i) => ({
    name: String(i),
    cls: i % 10 ? "Linear" : "Conv2d",
    params: i
  }));
  return hierarchyOf({ cls: "Wide", inside });
}

/** One container in the other. */
export function deepNet(levels: number): Hierarchy {
  const nodes = { name: [""], parent: [-1], entity: [0] };
  for (let i = 1; i < levels; i += 1) {
    nodes.name.push("inner");
    nodes.parent.push(i - 1);
    nodes.entity.push(0);
  }
  return new Hierarchy(readPayload({ ...payloadOf({ cls: "Deep" }), nodes, columns: {}, column_info: {} }));
}

export function storeOf(initial: Partial<GraphState> = {}): GraphStore {
  return new GraphStore(initial);
}

/** The hostile texts, one a line. */
export function hostileTexts(): string[] {
  const file = join(dirname(fileURLToPath(import.meta.url)), "../../../tests/cases/xss_payloads.txt");
  return readFileSync(file, "utf8")
    .split("\n")
    .filter(line => line && !line.startsWith("#"));
}

/** A model whose modules, classes, hyper-parameters and tensors are called by the given texts. */
export function hostileNet(texts: readonly string[]): Hierarchy {
  const inside = texts.map(text => ({
    name: text,
    cls: text,
    hyper: { [text]: text },
    tensors: [[text, "parameter", [1]] as Tensor],
    inside: [{ name: text, cls: text }]
  }));
  const marks = Object.fromEntries(texts.map((text, i) => [String(1 + 2 * i), [text]]));
  return hierarchyOf({ cls: texts[0], inside }, { marks });
}

/** Elements that no panel of ours makes, and attributes that run script. */
export function foreignParts(root: ParentNode): string[] {
  const found: string[] = [];
  for (const element of Array.from(root.querySelectorAll("*"))) {
    if (/^(script|iframe|object|embed|form|img|audio|style|meta|template|math|base|link)$/i.test(element.tagName)) {
      found.push(element.tagName);
    }
    for (const { name } of Array.from(element.attributes)) {
      if (/^on/i.test(name) || name.startsWith("data-commandlinker")) found.push(name);
    }
  }
  return found;
}

export function press(target: Element, key: string, more: KeyboardEventInit = {}): void {
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
}

/** Let microtasks and timers of `ms` pass. */
export function settle(ms = 0): Promise<void> {
  return new Promise(resolve => setTimeout(resolve, ms));
}
