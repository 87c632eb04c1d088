import { describe, expect, it } from "vitest";
import { container, leaf, payloadOf, resnet } from "../../../testing/payloads";
import { deepNet, smallNet, wideNet } from "../../../testing/sample";
import { foldBadge, Hierarchy, badgeDescriptions } from "./hierarchy";

const named = (...names: string[]) =>
  new Hierarchy(
    payloadOf(
      container(
        "Net",
        names.map(name => [name, container("Box", [[name, leaf("Linear")]])])
      )
    )
  );

describe("Hierarchy", () => {
  const h = new Hierarchy(resnet());

  it("knows its tree", () => {
    expect(h.size).toBe(423);
    expect(h.children(0).map(child => h.name(child))).toEqual([
      "conv1",
      "bn1",
      "relu",
      "maxpool",
      "layer1",
      "layer2",
      "layer3",
      "layer4",
      "avgpool",
      "fc"
    ]);
    const node = h.find("layer3.17.conv2") ?? -1;
    expect(h.path(node)).toBe("layer3.17.conv2");
    expect(h.depth(node)).toBe(3);
    expect(h.ancestors(node).map(above => h.path(above))).toEqual(["", "layer3", "layer3.17"]);
    expect(h.isContainer(node)).toBe(false);
    expect(h.isInside(node, h.find("layer3") ?? -1)).toBe(true);
    expect(h.isInside(node, h.find("layer2") ?? -1)).toBe(false);
  });

  it("shows one row a fold", () => {
    const layer3 = h.find("layer3") ?? -1;
    expect(h.rows(layer3).map(row => h.path(row))).toEqual(["layer3.0", "layer3.1"]);
    const fold = h.fold(h.find("layer3.17") ?? -1);
    expect(fold).toMatchObject({ count: 35, kind: "exact", first: h.find("layer3.1") });
    expect(fold?.members).toHaveLength(35);
    expect(h.fold(layer3)).toBeUndefined();
  });

  it("reads columns and counts occurrences", () => {
    expect(h.column("params")?.[0]).toBe(60192808);
    const relu = h.find("relu") ?? -1;
    expect(h.column("occurrences")?.[relu]).toBe(51);
    expect(h.column("flops")).toBeUndefined();
    expect(h.column("__proto__")).toBeUndefined();
    expect(h.column("constructor")).toBeUndefined();
  });

  it("leaves out hyper-parameters that an instance lacks", () => {
    expect(h.hyper(h.find("relu") ?? -1)).toEqual([["inplace", true]]);
  });

  it.each(["__proto__", "constructor", "toString", "a.b", ".", "..", "<b>x</b>", "a\nb", "x".repeat(10000)])(
    "finds a module called %j",
    name => {
      const odd = named("first", name, "last");
      const outer = odd.children(0)[1];
      const inner = odd.children(outer)[0];
      expect(odd.find(odd.path(outer))).toBe(outer);
      expect(odd.find(odd.path(inner))).toBe(inner);
    }
  );

  it("tells the root from a child without a name", () => {
    const odd = named("", "x");
    expect(odd.find("")).toBe(0);
    expect(odd.path(odd.children(0)[0])).toBe("");
    expect(odd.find(".")).toBe(2);
    expect(odd.find("nothing")).toBeUndefined();
    expect(odd.find("x.nothing")).toBeUndefined();
    expect(odd.find("x.")).toBeUndefined();
  });

  it("takes a dot in a name for a level only where there is one", () => {
    const odd = new Hierarchy(
      payloadOf(
        container("Net", [
          ["a", container("Box", [["b", leaf("Linear")]])],
          ["a.c", leaf("ReLU")]
        ])
      )
    );
    expect(odd.name(odd.find("a.b") ?? 0)).toBe("b");
    expect(odd.name(odd.find("a.c") ?? 0)).toBe("a.c");
  });

  it("keeps links, ties and marks with their nodes", () => {
    const payload = payloadOf(
      container("Net", [
        ["a", leaf("Linear")],
        ["b", leaf("ReLU")]
      ])
    );
    payload.links = [[0, "again", 1, "shared"]];
    payload.tied = [[1, "weight", 2, "other"]];
    payload.marks = { "2": ["uninitialised"] };
    const odd = new Hierarchy(payload);
    expect(odd.links(0)).toEqual([{ slot: "again", target: 1, kind: "shared" }]);
    expect(odd.tied(1)).toEqual([{ name: "weight", other: 2, otherName: "other" }]);
    expect(odd.tied(2)).toEqual([{ name: "other", other: 1, otherName: "weight" }]);
    expect(odd.marks(2)).toEqual(["uninitialised"]);
    expect([odd.links(1), odd.marks(1)]).toEqual([[], []]);
  });

  it("survives 100,000 siblings", () => {
    const wide = wideNet(100_000);
    expect(wide.children(0)).toHaveLength(100_000);
    expect(wide.find("99999")).toBe(100_000);
    expect(wide.rows(0)).toHaveLength(100_000);
  });

  it("survives 5,000 levels", () => {
    const deep = deepNet(5000);
    const path = deep.path(4999);
    expect(path.split(".")).toHaveLength(4999);
    expect(deep.find(path)).toBe(4999);
    expect(deep.ancestors(4999)).toHaveLength(4999);
  });

  it("remembers its latest answers, also that there is none", () => {
    const deep = deepNet(5000);
    const path = deep.path(4999);
    deep.find(path);
    expect(deep.find(path)).toBe(4999);
    for (let i = 0; i < 500; i++) {
      expect(deep.find(`nothing${i}`)).toBeUndefined();
      expect(deep.find(`nothing${i}`)).toBeUndefined();
    }
    expect(deep.find(path)).toBe(4999);
  });
});

it("says of each sign what it means", () => {
  const h = smallNet({
    marks: { "1": ["not called in this forward pass"] },
    blocks: { "1": "residual branch: it may go as a whole" },
    tied: [[1, "weight", 16, "weight"]]
  });
  expect(badgeDescriptions(h, 1)).toEqual([
    "! not called in this forward pass",
    "tied weight is weight of fc",
    "− residual branch: it may go as a whole"
  ]);
  expect(badgeDescriptions(h, 4, h.fold(4))).toEqual(["×4 same structure, own weights"]);
  expect(badgeDescriptions(h, 2)).toEqual([]);
});

it("tells what is alike from what is equal", () => {
  const h = smallNet({ folds: [[4, 4, "family", "width 1…4"]] });
  const fold = h.fold(4);
  expect(fold && foldBadge(fold)).toBe("≈ ×4");
  expect(badgeDescriptions(h, 4, fold)).toEqual(["≈ ×4 same structure, other sizes: width 1…4"]);
});
