import { describe, expect, it } from "vitest";
import { goldenKnowledge, largeKnowledge, rawKnowledge } from "../../testing/knowledge";
import { OTHER_VERSION } from "../shared/base/schema";
import { DEFAULT_LIMITS, applySettings } from "../shared/base/settings";
import { columnsOf } from "../../testing/knowledge_columns";
import { Knowledge } from "./data/knowledge";
import { chartColumns, decades, laws, rankedUses } from "./scatter/frequency";
import { groupPositions, layoutCircles } from "./map/circle_layout";
import { matrixOrder } from "./overlap_matrix";
import { type KnowledgePayload, readKnowledge } from "./data/payload";
import {
  buildPicture,
  type MapOptions,
  mapOptions,
  MAX_ITEMS,
  itemOf,
  openAlone,
  revealSelected,
  toggle
} from "./map/map_contents";
import { search, suggest } from "./data/search";
import { ExplorerStore } from "./data/state";

const CLOSED: MapOptions = { groups: "communities", expanded: [], query: "", selected: null };
const sample = new Knowledge(goldenKnowledge());
const large = new Knowledge(largeKnowledge(50, 120));
const found = (data: Knowledge, query: string) => search(data, query).things.map(thing => data.name(thing));

describe("the payload", () => {
  it.each(["sample", "empty"])("of %s is read as Python wrote it", name => {
    expect(new Knowledge(goldenKnowledge(name)).size).toBe(rawKnowledge(name).entities.name.length);
  });

  it("of an older notebook, whose communities have no names, calls them by their families", () => {
    const payload = rawKnowledge();
    expect(new Knowledge(readKnowledge(rawKnowledge())).communityName(0)).toBe("0 wide");
    delete payload.communities.names;
    expect(new Knowledge(readKnowledge(payload)).communityName(0)).toBe("0 Sequential");
  });

  it("of another version is refused", () => {
    expect(() => readKnowledge({ ...rawKnowledge(), schema_version: 3 })).toThrow(OTHER_VERSION);
    expect(() => readKnowledge(null)).toThrow(OTHER_VERSION);
  });

  const damages: [string, (payload: KnowledgePayload) => void][] = [
    ["children", p => p.entities.children[0].push(1)],
    ["children", p => (p.entities.children[0] = [999, 1])],
    ["class", p => (p.entities.class[0] = -1)],
    ["community", p => (p.entities.community[0] = 99)],
    ["communities", p => (p.communities.count = 1e9)],
    ["communities", p => p.communities.names?.pop()],
    ["hyper", p => (p.entities.hyper[0] = [9999])],
    ["members", p => (p.models.members[0] = [0, 7, 1])],
    ["root", p => (p.models.root[0] = 1e9)],
    ["analysis", p => ((p.analysis as unknown) = "soon")],
    ["analysis", p => (p.models.root[0] = -1)],
    ["size", p => ((p.size as unknown) = "many")],
    ["nearest", p => (p.models.nearest[0] = [99, 1])],
    ["superfamilies", p => p.superfamilies.of.pop()],
    ["superfamilies", p => (p.superfamilies.of[0] = 99)],
    ["superfamilies", p => (p.superfamilies.links = [0, 0, 2])],
    ["superfamilies", p => (p.superfamilies.links = [0, 0.5, 1])],
    ["results", p => (p.results[0].model[0] = 99)],
    ["results", p => (p.results[0].job[0] = 99)],
    ["value", p => p.results[0].value.pop()],
    ["cost", p => ((p.results[0].cost as unknown) = "yes")],
    ["of", p => p.types[0].of.pop()],
    ["digest", p => ((p.entities.digest as unknown[])[0] = 3)],
    ["importance", p => p.entities.importance.pagerank.pop()],
    ["model", p => ((p.jobs.model as unknown[])[0] = 3)],
    ["fit", p => ((p.fit.verdict as unknown) = null)]
  ];
  it.each(damages)("with damaged %s is refused with a fixed text", (part, damage) => {
    const payload = rawKnowledge();
    damage(payload);
    expect(() => readKnowledge(payload)).toThrow(`Widget data is damaged (${part}). Run the cell again.`);
  });
});

describe("the graph of models", () => {
  const place = (name: string) => sample.payload.models.name.indexOf(name);
  const block = sample.payload.entities.name.findIndex(
    (name, i) => name.startsWith("Block") && sample.modelsOf[i].length === 3
  );

  it("counts uses by model and level", () => {
    expect(sample.uses[block]).toBe(5);
    expect(sample.levelUses.map(uses => uses[block])).toEqual([0, 5, 0, 0]);
    expect(sample.modelsOf[block]).toEqual([
      { index: place("small"), count: 2 },
      { index: place("wide"), count: 1 },
      { index: place("twin"), count: 2 }
    ]);
  });

  it("knows what contains what", () => {
    const [conv] = sample.children(block);
    expect(sample.className(conv.index)).toBe("Conv2d");
    expect(sample.parents[conv.index].map(({ index }) => index)).toContain(block);
    expect(new Map(sample.hyper(conv.index)).get("out_channels")).toBe(4);
  });

  it("finds the overlap of any two models, from either side", () => {
    const [small, wide, twin] = ["small", "wide", "twin"].map(place);
    expect(sample.overlap(small, twin)).toBe(1);
    expect(sample.overlap(wide, small)).toBe(sample.overlap(small, wide));
    expect(sample.overlap(wide, wide)).toBe(1);
    expect(sample.shared(small, twin)).toBe(sample.memberSet(small).size);
  });

  it("has a key for everything, and finds it by it", () => {
    for (const kind of ["module", "model", "family", "community"] as const) {
      const thing = { kind, index: 0, level: 0 };
      expect(sample.find(sample.key(thing))).toEqual(thing);
    }
    expect(sample.find("Model:nothing")).toBeUndefined();
  });
});

describe("the search", () => {
  it("finds names, classes and settings, the nearest first", () => {
    expect(found(sample, "small")).toEqual(["small"]);
    expect(found(sample, "block")).toHaveLength(3);
    expect(found(sample, "out_channels=16")).toHaveLength(1);
    expect(found(sample, "wide")[0]).toBe("wide");
    expect(found(sample, '"<b>bold</b>"')).toHaveLength(1);
  });

  it("understands classes, numbers and groups", () => {
    expect(found(sample, "class:conv2d")).toHaveLength(3);
    expect(found(sample, "type:Linear params>20")).toHaveLength(1);
    expect(found(sample, "class:Block models>=3")).toHaveLength(1);
    expect(found(sample, "class:Block uses>2").length).toBe(1);
    expect(found(sample, "model:wide class:Block")).toHaveLength(3);
    expect(found(large, "community:3")).toHaveLength(120);
    expect(found(large, "family:a")).toContain("net5");
    expect(found(large, "pagerank>=0.5")).toEqual(["Net0", "Conv2d1"]);
  });

  it("says what it does not understand, and finds nothing then", () => {
    for (const query of ["speed>3", "params>many", "class:"]) {
      expect(search(sample, query).notice).not.toBe("");
      expect(search(sample, query).things).toEqual([]);
    }
    expect(search(sample, "").things).toEqual([]);
  });
});

describe("what the search says and offers", () => {
  it.each([
    ["nothing-like-it", "Nothing matches “nothing-like-it”"],
    ["class:Linear nothing-like-it", "Nothing matches “nothing-like-it”"],
    ["class:Linear class:Conv2d", "Nothing matches all 2 terms"],
    ["params > 1 TB", "Nothing matches “params > 1 TB”"],
    ["params >", "Enter a number after “params>”, for example params > 1M."],
    ["block", ""],
    ["", ""]
  ])("says why nothing was found by %j", (query, why) => expect(search(sample, query).why).toBe(why));

  it("offers numbers, classes, models and families as one types", () => {
    expect(suggest(sample, "par")).toEqual(["params > 1M"]);
    expect(suggest(sample, "small uses ")).toEqual(["small uses > 1M", "small uses < 1k", "small uses = 0"]);
    expect(suggest(sample, "lin")).toEqual(["class:Linear"]);
    expect(suggest(sample, "model:wi")).toEqual(["model:wide"]);
    expect(suggest(sample, "class:Linear")).toEqual([]);
  });
});

describe("the picture", () => {
  it("starts with communities and families", () => {
    const { items, links } = buildPicture(sample, CLOSED);
    expect(new Set(items.map(({ kind }) => kind))).toEqual(new Set(["community", "family"]));
    expect(items.reduce((sum, item) => sum + (item.kind === "community" ? item.count : 0), 0)).toBe(sample.size);
    expect(links.every(({ from, to }) => items[from].kind === "family" && items[to].kind === "community")).toBe(true);
  });

  it("folds small communities into one group", () => {
    const { items } = buildPicture(large, CLOSED);
    expect(items.filter(({ kind }) => kind === "community")).toHaveLength(40);
    expect(items.find(({ id }) => id === "c+")).toMatchObject({ count: 10, isGroup: true });
    expect(buildPicture(large, { ...CLOSED, expanded: ["c+"] }).items.filter(({ depth }) => depth === 1)).toHaveLength(
      10
    );
  });

  it("shows the members of a group, folded when there are many", () => {
    const inside = buildPicture(large, { ...CLOSED, expanded: ["c0", "c0/t1.0"] }).items.filter(
      ({ depth }) => depth > 0
    );
    expect(
      inside
        .filter(({ depth }) => depth === 1)
        .map(({ kind }) => kind)
        .sort()
    ).toEqual(["module", "type"]);
    expect(inside.filter(({ depth }) => depth === 2)).toHaveLength(60);
    expect(inside.find(({ kind }) => kind === "more")).toMatchObject({ count: 60, isGroup: false });
  });

  it("brings what was found and what is selected among the members that are shown", () => {
    const last = large.key({ kind: "module", index: 119, level: 0 });
    const expanded = ["c0", "c0/t1.0"];
    const ids = (choice: Partial<MapOptions>) =>
      buildPicture(large, { ...CLOSED, expanded, ...choice }).items.map(({ id }) => id);
    expect(ids({})).not.toContain("c0/t1.0/e119");
    expect(ids({ selected: last })).toContain("c0/t1.0/e119");
    expect(ids({ query: "params=119" })).toContain("c0/t1.0/e119");
  });

  it("keeps a model of a large family where it was while something in it is selected", () => {
    const many = new Knowledge(largeKnowledge(400, 3)); // 80 models in each of five families
    const store = new ExplorerStore({ selected: "Model:net399" });
    revealSelected(many, store);
    const id = itemOf(many, buildPicture(many, mapOptions(store)).items, "Model:net399", null)?.id ?? "";
    expect(toggle(many, store, id)).toBe("done");
    const [inside] = buildPicture(many, mapOptions(store)).items.filter(item => item.id.startsWith(`${id}/`));
    const before = store.get("expanded");
    store.set("selected", inside.thing && many.key(inside.thing));
    revealSelected(many, store);
    expect(store.get("expanded")).toEqual(before);
    expect(buildPicture(many, mapOptions(store)).items.some(item => item.id === inside.id)).toBe(true);
  });

  it("never has more than 500 circles, whatever is asked for", () => {
    const expanded = Array.from({ length: 50 }, (_, i) => [
      `c${i}`,
      `c${i}/t1.0`,
      `f${i % 5}`,
      `f${i % 5}/m${i}`
    ]).flat();
    const { items, isCut } = buildPicture(large, { ...CLOSED, expanded });
    expect(items.length).toBeLessThanOrEqual(MAX_ITEMS);
    expect(isCut).toBe(true);
    const store = new ExplorerStore({ groups: "communities" });
    const outcomes = Array.from({ length: 12 }, (_, i) => [
      toggle(large, store, `c${i}`),
      toggle(large, store, `c${i}/t1.0`)
    ]).flat();
    expect(outcomes).toContain("too-many");
    const { expanded: open } = { expanded: store.get("expanded") };
    expect(buildPicture(large, { ...CLOSED, expanded: open }).items.length).toBeLessThanOrEqual(MAX_ITEMS);
    expect(openAlone(large, store, "c11/t1.0")).toBe(true);
    expect(store.get("expanded")).toEqual(["c11", "c11/t1.0"]);
  });

  it("has few groups at the start, however many families there are and however little may be drawn", () => {
    const payload = largeKnowledge(300, 4);
    payload.families = Array.from({ length: 150 }, (_, i) => `family ${i}`);
    payload.models.family = payload.models.family.map((_, m) => m % 150);
    const data = new Knowledge(payload);
    const start = () => buildPicture(data, CLOSED).items;
    expect(start()).toHaveLength(82);
    expect(start().find(({ id }) => id === "f+")).toMatchObject({ count: 220, title: "Other models" });
    applySettings({ limits: { notice: 20, refusal: 40 } });
    try {
      expect(start()).toHaveLength(22);
      expect(buildPicture(data, { ...CLOSED, expanded: ["f+", "c0", "c1", "c+"] }).items.length).toBeLessThanOrEqual(
        40
      );
    } finally {
      applySettings({ limits: DEFAULT_LIMITS });
    }
  });

  it("opens what a selection from elsewhere lies in", () => {
    const store = new ExplorerStore();
    for (const key of [
      large.key({ kind: "module", index: 247, level: 0 }),
      "Model:net7",
      "Type:Conv2d*1",
      "Community:49"
    ]) {
      store.set("selected", key);
      revealSelected(large, store);
      const choice = { groups: store.get("groups"), expanded: store.get("expanded"), query: "", selected: key };
      expect(itemOf(large, buildPicture(large, choice).items, key, null)).toBeDefined();
    }
  });
});

describe("the layout", () => {
  const closed = buildPicture(large, CLOSED);
  const homes = groupPositions(closed.items, closed.links);
  const overlapping = (choice: Partial<MapOptions>) => {
    const { items } = buildPicture(large, { ...CLOSED, ...choice });
    const circles = layoutCircles(items, homes);
    return items.flatMap((item, i) =>
      items.flatMap((other, k) => {
        const { x, y, r } = circles[i];
        const gap = Math.hypot(x - circles[k].x, y - circles[k].y) - r - circles[k].r;
        return k < i && item.parent === other.parent && gap < 0 ? [`${item.id} ${other.id}`] : [];
      })
    );
  };

  it("keeps groups apart, closed and open", () => {
    expect(overlapping({})).toEqual([]);
    expect(overlapping({ expanded: ["c0", "c0/t1.0", "f1", "c7"] })).toEqual([]);
  });

  it("keeps members inside of their group", () => {
    const { items } = buildPicture(large, { ...CLOSED, expanded: ["c0", "c0/t1.0"] });
    const circles = layoutCircles(items, homes);
    items.forEach(({ parent }, i) => {
      if (parent < 0) return;
      const { x, y, r } = circles[parent];
      expect(Math.hypot(circles[i].x - x, circles[i].y - y) + circles[i].r).toBeLessThan(r);
    });
  });

  it("is the same for the same graph", () => {
    expect(groupPositions(closed.items, closed.links)).toEqual(homes);
  });
});

describe("tables, matrix and ranks", () => {
  it("has one block of models for each family, and every model once", () => {
    const { models, blocks } = matrixOrder(large);
    expect([...models].sort((a, b) => a - b)).toEqual(Array.from({ length: 50 }, (_, i) => i));
    expect(blocks.map(({ count }) => count)).toEqual([10, 10, 10, 10, 10]);
    expect(matrixOrder(new Knowledge(goldenKnowledge("empty"))).models).toEqual([]);
  });

  it("ranks by uses, and draws the laws that were fitted", () => {
    const ranks = rankedUses(sample);
    expect(ranks.counts[0]).toBe(Math.max(...sample.uses));
    expect([...ranks.counts].sort((a, b) => b - a)).toEqual(ranks.counts);
    const found = laws(sample);
    expect(found.map(({ name, points }) => [name, points.length])).toEqual([
      ["power law", 2],
      ["log-normal", 1]
    ]);
    const [xs, ...columns] = chartColumns(ranks, found, true);
    expect(columns.map(column => column.filter(value => value !== null).length)).toEqual([ranks.counts.length, 2, 1]);
    expect(xs.every((x, i) => i === 0 || (x ?? 0) >= (xs[i - 1] ?? 0))).toBe(true);
    expect(decades(0, 3)).toEqual([0, 1, 2, 3]);
  });

  it("says in tables what the graph has", () => {
    const { modules, models, types, communities, jobs } = columnsOf(sample);
    const relu = sample.payload.entities.name.findIndex(name => name.startsWith("ReLU"));
    expect(modules.uses(relu)).toBe(String(sample.uses[relu]));
    expect(models.accuracy(sample.payload.models.name.indexOf("small"))).toBe("91.0 %");
    expect(types.differs(sample.payload.types[0].name.findIndex(name => name.startsWith("Block")))).toBe("width");
    expect(communities.size(0)).toBe(String(sample.members({ kind: "community", index: 0, level: 0 }).length));
    expect([jobs.user(0), jobs.dataset(0), jobs.started(0)]).toEqual(["ada", "digits", "2001-09-09"]);
  });
});
