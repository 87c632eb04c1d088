// The payloads that Python wrote must be read here without a change.

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { measurer } from "../shared/base/canvas";
import { dataflowOf } from "../shared/model/dataflow";
import { buildDedupScene, buildScene } from "./scene/hierarchy_scene";
import { buildFlowScene } from "./flow/flow_scene";
import { Hierarchy } from "../shared/model/hierarchy";
import { readPayload } from "../shared/payload/payload";
import { GraphStore } from "../shared/model/graph_store";

const folder = join(dirname(fileURLToPath(import.meta.url)), "../../../../tests/widgets/golden");
const files = readdirSync(folder).filter(file => file.endsWith(".json"));

it("has golden payloads", () => {
  expect(files.length).toBeGreaterThan(0);
});

describe.each(files)("%s", file => {
  const payload = readPayload(JSON.parse(readFileSync(join(folder, file), "utf8")));
  const models = payload.compare ? [payload, payload.compare.model] : [payload];

  it.each(models.map(model => [new Hierarchy(model)]))("is a tree", h => {
    for (let i = 0; i < h.size; i++) {
      expect(h.parent(i)).toBeLessThan(i);
      expect(i === 0 || h.children(h.parent(i)).includes(i)).toBe(true);
      expect(h.path(h.find(h.path(i)) ?? -1)).toBe(h.path(i));
      expect(h.hyper(i).every(([, value]) => value !== null)).toBe(true);
    }
  });

  it.each(models.map(model => [new Hierarchy(model)]))("has folds of like siblings", h => {
    for (let i = 0; i < h.size; i++) {
      const fold = h.fold(i);
      expect(!fold || (fold.members.includes(i) && fold.members.length === fold.count)).toBe(true);
      expect(fold?.members.every(member => h.className(member) === h.className(i)) ?? true).toBe(true);
      if (fold?.kind === "exact") {
        expect(new Set(fold.members.map(member => h.entity(member))).size).toBe(1);
      }
    }
  });

  it.each(models.map(model => [new Hierarchy(model)]))("can be drawn", h => {
    const everything = Array.from({ length: h.size }, (_, i) => h.path(i));
    const scene = buildScene(h, new GraphStore({ expanded: everything }), measurer());
    expect(scene.count).toBeGreaterThan(0);
    expect(new Set(scene.nodes.map(node => node.id)).size).toBe(scene.nodes.length);
    expect(buildDedupScene(h, measurer()).count).toBeGreaterThan(0);
  });

  it.each(["dataflow", "operators"] as const)("can be drawn as %s, where it was traced", level => {
    const h = new Hierarchy(payload);
    const flow = dataflowOf(h);
    expect(flow !== null).toBe(["traced.json", "stopped.json"].includes(file));
    const everything = Array.from({ length: h.size }, (_, i) => h.path(i));
    const scene =
      flow &&
      buildFlowScene(h, flow, new GraphStore({ expanded: everything }), measurer(), { level, pages: new Map() });
    expect(new Set(scene?.nodes.map(node => node.id)).size).toBe(scene?.nodes.length ?? 0);
    expect(scene?.edges.every(({ source, target }) => source !== target) ?? true).toBe(true);
  });
});
