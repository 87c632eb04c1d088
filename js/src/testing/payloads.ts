// Hand-made payloads for tests: a small tree language and two well-known shapes; and those that Python wrote.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  type Comparison,
  type FlowPayload,
  type FoldRecord,
  type ModelPayload,
  readPayload
} from "../core/shared/payload/payload";
import type { Scalar } from "../core/shared/base/schema";

/** What a test of Python wrote, by its path in the folder of the tests. */
export function goldenFile(path: string): unknown {
  return JSON.parse(readFileSync(join(dirname(fileURLToPath(import.meta.url)), "../../../tests", path), "utf8"));
}

/** A golden payload by the name of its file; `change` works on a copy of its own. */
export function golden(name: string, change: (payload: ModelPayload) => void = () => {}): ModelPayload {
  const payload = goldenFile(`widgets/golden/${name}.json`) as ModelPayload;
  change(payload);
  return readPayload(payload);
}

/** One input, and operators in a row, each in a call of its own; `calls`: the module of each call. */
export function lineOf(calls: readonly number[], name = "aten::relu"): FlowPayload {
  const every = calls.map((_, i) => i);
  const after = (i: number) => i + 1; // values: the input, then what each call gave
  return {
    on: "meta",
    calls: {
      node: [0, ...calls],
      parent: [-1, ...calls.map(() => 0)],
      inputs: [[0], ...every.map(i => [i])],
      outputs: [[calls.length], ...every.map(i => [after(i)])]
    },
    steps: {
      name: every.map(() => 0),
      call: every.map(after),
      inputs: every.map(i => [i]),
      tensors: every.map(() => []),
      source: every.map(() => -1),
      flops: every.map(() => 1),
      view: []
    },
    values: {
      step: [-1, ...every],
      shape: [0, ...every.map(() => 0)],
      dtype: [0, ...every.map(() => 0)],
      axes: [[], ...every.map(() => [])]
    },
    tensors: { node: [], name: [], attributes: [], tied: [] },
    names: [name],
    shapes: [[2, 3]],
    dtypes: ["float32"],
    sources: [],
    inputs: [["x", 0]],
    outputs: [calls.length]
  };
}

export interface Spec {
  cls: string;
  hyper?: Record<string, Scalar>;
  params?: number;
  children?: [string, Spec][];
}

export const leaf = (cls: string, params = 0, hyper: Record<string, Scalar> = {}): Spec => ({ cls, params, hyper });

export const container = (cls: string, children: [string, Spec][]): Spec => ({ cls, children });

export const sequence = (cls: string, items: Spec[]): Spec =>
  container(
    cls,
    items.map((item, i) => [String(i), item])
  );

/** The payload of a tree, with entities, parameter counts and folds worked out as the kernel does. */
export function payloadOf(root: Spec, title = root.cls): ModelPayload {
  return new PayloadWriter().write(root, title);
}

interface Written {
  node: number;
  key: string; // equal keys: same structure
  family: string; // equal families: same classes, sizes may differ
  params: number;
}

class PayloadWriter {
  private readonly name: string[] = [];
  private readonly parent: number[] = [];
  private readonly entity: number[] = [];
  private readonly params: number[] = [];
  private readonly own: number[] = [];
  private readonly folds: FoldRecord[] = [];
  private readonly entities = new Map<string, { cls: string; hyper: Record<string, Scalar> }>();
  private readonly classes = new Map<string, string[]>();

  write(root: Spec, title: string): ModelPayload {
    this.add("", -1, root);
    const known = [...this.entities.values()];
    const names = [...this.classes.keys()];
    return {
      schema_version: 2,
      kind: "model",
      title,
      nodes: { name: this.name, parent: this.parent, entity: this.entity },
      columns: { params: this.params, own_params: this.own, bytes: this.params.map(count => 4 * count) },
      column_info: {
        params: { label: "parameters", aggregate: "sum" },
        own_params: { label: "own parameters", aggregate: "own" },
        bytes: { label: "bytes", aggregate: "sum" }
      },
      entities: {
        class: known.map(({ cls }) => names.indexOf(cls)),
        name: known.map(({ cls }, i) => `${cls}${100 + i}`),
        digest: known.map((_, i) => i.toString(16).padStart(32, "0")),
        hyper: known.map(({ cls, hyper }) => (this.classes.get(cls) ?? []).map(field => hyper[field] ?? null)),
        tensors: known.map(() => [])
      },
      classes: {
        name: names,
        qualified: names.map(name => `torch.nn.${name}`),
        source: names.map(() => null),
        fields: names.map(name => this.classes.get(name) ?? [])
      },
      folds: this.folds,
      links: [],
      tied: [],
      marks: {},
      blocks: {},
      edges: [],
      traced: false,
      error: null,
      flow: null,
      axes: null,
      compare: null
    };
  }

  private add(name: string, parent: number, spec: Spec): Written {
    const node = this.name.length;
    this.name.push(name);
    this.parent.push(parent);
    this.entity.push(-1);
    this.params.push(0);
    this.own.push(spec.params ?? 0);
    const inside = (spec.children ?? []).map(([slot, child]) => ({ slot, ...this.add(slot, node, child) }));
    this.fold(inside);
    const hyper = spec.hyper ?? {};
    const fields = this.classes.get(spec.cls) ?? [];
    this.classes.set(spec.cls, [...new Set([...fields, ...Object.keys(hyper)])]);
    const key = JSON.stringify([spec.cls, hyper, spec.params ?? 0, inside.map(({ slot, key: own }) => [slot, own])]);
    const family = JSON.stringify([spec.cls, inside.map(child => [child.slot, child.family])]);
    this.entities.set(key, this.entities.get(key) ?? { cls: spec.cls, hyper });
    this.entity[node] = [...this.entities.keys()].indexOf(key);
    this.params[node] = inside.reduce((sum, child) => sum + child.params, spec.params ?? 0);
    return { node, key, family, params: this.params[node] };
  }

  private fold(siblings: Written[]): void {
    for (let at = 0; at < siblings.length;) {
      const exact = runLength(siblings, at, "key");
      const family = siblings[at].family.includes("],[") ? runLength(siblings, at, "family") : 1;
      const count = Math.max(exact, family);
      if (count > 1) {
        const kind = exact === count ? "exact" : "family";
        this.folds.push([siblings[at].node, count, kind, kind === "exact" ? "" : "sizes vary"]);
      }
      at += count;
    }
  }
}

function runLength(items: Written[], from: number, by: "key" | "family"): number {
  let end = from + 1;
  while (end < items.length && items[end][by] === items[from][by]) {
    end++;
  }
  return end - from;
}

const conv = (from: number, to: number, size: number, stride = 1): Spec =>
  leaf("Conv2d", from * to * size * size, {
    in_channels: from,
    out_channels: to,
    kernel_size: `(${size}, ${size})`,
    stride: `(${stride}, ${stride})`,
    bias: false
  });
const norm = (width: number): Spec => leaf("BatchNorm2d", 2 * width, { num_features: width, eps: 1e-5 });
const relu = (): Spec => leaf("ReLU", 0, { inplace: true });

function bottleneck(from: number, width: number, stride: number, shrink: boolean): Spec {
  const out = 4 * width;
  const parts: [string, Spec][] = [
    ["conv1", conv(from, width, 1)],
    ["bn1", norm(width)],
    ["conv2", conv(width, width, 3, stride)],
    ["bn2", norm(width)],
    ["conv3", conv(width, out, 1)],
    ["bn3", norm(out)],
    ["relu", relu()]
  ];
  if (shrink) {
    parts.push(["downsample", sequence("Sequential", [conv(from, out, 1, stride), norm(out)])]);
  }
  return container("Bottleneck", parts);
}

/** ResNet-152 for depths [3, 8, 36, 3]. */
export function resnet(depths: readonly number[] = [3, 8, 36, 3]): ModelPayload {
  const children: [string, Spec][] = [
    ["conv1", conv(3, 64, 7, 2)],
    ["bn1", norm(64)],
    ["relu", relu()],
    ["maxpool", leaf("MaxPool2d", 0, { kernel_size: 3, stride: 2, padding: 1 })]
  ];
  let from = 64;
  depths.forEach((depth, stage) => {
    const width = 64 << stage;
    const blocks = Array.from({ length: depth }, (_, i) => {
      const block = bottleneck(from, width, i === 0 && stage > 0 ? 2 : 1, i === 0);
      from = 4 * width;
      return block;
    });
    children.push([`layer${stage + 1}`, sequence("Sequential", blocks)]);
  });
  children.push(["avgpool", leaf("AdaptiveAvgPool2d", 0, { output_size: "(1, 1)" })]);
  children.push(["fc", leaf("Linear", 2049000, { in_features: 2048, out_features: 1000, bias: true })]);
  return payloadOf(container("ResNet", children));
}

/** `model` with `other` as its comparison; nodes correspond by path. */
export function compared(model: ModelPayload, other: ModelPayload): ModelPayload {
  const paths = (payload: ModelPayload) => {
    const found: string[] = [];
    payload.nodes.parent.forEach((parent, i) => {
      found[i] = parent < 0 ? "" : `${found[parent]}.${payload.nodes.name[i]}`;
    });
    return found;
  };
  const [left, right] = [paths(model), paths(other)];
  const places = new Map(right.map((path, i) => [path, i]));
  const pairs = left.flatMap((path, i) => {
    const partner = places.get(path);
    return partner === undefined ? [] : [[i, partner] as [number, number]];
  });
  const leftStatus: Comparison["left"] = left.map(() => "removed");
  const rightStatus: Comparison["right"] = right.map(() => "added");
  for (const [i, j] of pairs) {
    const same = model.columns.params[i] === other.columns.params[j];
    leftStatus[i] = rightStatus[j] = same ? "same" : "changed";
  }
  return { ...model, compare: { model: other, left: leftStatus, right: rightStatus, pairs } };
}
