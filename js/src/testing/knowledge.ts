// Payloads of knowledge graphs for tests: those that Python wrote, and large ones made here.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type KnowledgePayload, readKnowledge } from "../core/knowledge/data/payload";

const folder = join(dirname(fileURLToPath(import.meta.url)), "../../../tests/widgets/golden_knowledge");

export function rawKnowledge(name = "sample"): KnowledgePayload {
  return JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8")) as KnowledgePayload;
}

export function goldenKnowledge(name = "sample"): KnowledgePayload {
  return readKnowledge(rawKnowledge(name));
}

/** So many models of as many structures each, half of them shared with the model before; a community per model. */
export function largeKnowledge(models: number, each: number, className = "Conv2d"): KnowledgePayload {
  const size = models * each;
  const every = Array.from({ length: size }, (_, i) => i);
  const model = (i: number) => Math.floor(i / each);
  const members = (m: number) => {
    const own = Array.from({ length: each }, (_, k) => m * each + k);
    const shared = m === 0 ? [] : Array.from({ length: each >> 1 }, (_, k) => (m - 1) * each + k);
    return [...own, ...shared].flatMap(entity => [entity, entity % each === 0 ? 0 : 3, 1]);
  };
  const families = ["a", "b", "c", "d", "e"].slice(0, Math.max(1, Math.min(5, models)));
  const names = Array.from({ length: models }, (_, m) => `net${m}`);
  return readKnowledge({
    schema_version: 2,
    kind: "knowledge",
    title: `${models} models`,
    analysis: "done",
    size,
    entities: {
      class: every.map(i => (i % each === 0 ? 0 : 1)),
      name: every.map(i => `${i % each === 0 ? "Net" : className}${i}`),
      digest: every.map(i => i.toString(16).padStart(32, "0")),
      params: every.map(i => i),
      bytes: every.map(i => 4 * i),
      hyper: every.map(i => (i % each === 0 ? [] : [i % 3])),
      children: every.map(i =>
        i % each === 0 ? Array.from({ length: each - 1 }, (_, k) => [i + k + 1, 1]).flat() : []
      ),
      community: every.map(model),
      importance: { pagerank: every.map(i => 1 / (i + 1)) }
    },
    classes: { name: ["Net", className], qualified: ["made.Net", `made.${className}`], fields: [[], ["width"]] },
    values: [4, 8, "(3, 3)"],
    models: {
      name: names,
      root: names.map((_, m) => m * each),
      params: names.map(() => 1000),
      bytes: names.map(() => 4000),
      flops: names.map(() => null),
      family: names.map((_, m) => m % families.length),
      modules: names.map((_, m) => members(m).length / 3),
      structures: names.map((_, m) => members(m).length / 3),
      members: names.map((_, m) => members(m)),
      module_flops: names.map(() => []),
      nearest: names.map((_, m) => (m === 0 ? [] : [m - 1, 500]))
    },
    families,
    superfamilies: { name: families, of: families.map((_, f) => f), links: families.length > 1 ? [0, 1, 0.5] : [] },
    results: [],
    communities: { modularity: 0.5, count: models },
    types: [
      {
        level: 1,
        name: [`${className}*1`],
        of: every.map(i => (i % each === 0 ? -1 : 0)),
        differs: every.map(() => 0),
        texts: [""]
      }
    ],
    fit: { alpha: 2, xmin: 1, verdict: "A law.", comparisons: [], lines: [] },
    jobs: {
      name: [],
      user: [],
      dataset: [],
      model: [],
      accuracy: [],
      convergence: [],
      started: [],
      ended: [],
      metrics: [],
      training: []
    },
    datasets: { name: [], properties: [] },
    users: { name: [], properties: [] }
  });
}
