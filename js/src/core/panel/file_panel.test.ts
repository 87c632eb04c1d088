import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { filePayload } from "../files/tree/payload";
import type { FileContents, TensorRecord } from "../files/bytes/records";
import { buildScene } from "../graph/scene/hierarchy_scene";
import { FileNotice } from "../graph/parts/notices";
import { Hierarchy } from "../shared/model/hierarchy";
import { exampleClass, matches, search } from "../shared/search/search";
import { GraphStore } from "../shared/model/graph_store";
import { TreeView } from "../tree/tree_view";
import { foreignParts, hostileTexts, settle } from "../../testing/sample";
import { type FileActions, HistogramProblem, readHistogram } from "./file_panel";
import { ModulePanel } from "./module_panel";

let host: HTMLElement;
let store: GraphStore;
const mounted: { dispose(): void }[] = [];

beforeEach(() => {
  host = document.createElement("div");
  document.body.append(host);
  store = new GraphStore({ colorBy: "bytes" });
});

afterEach(() => {
  for (const view of mounted.splice(0)) view.dispose();
  host.remove();
});

const tensor = (name: string, shape: readonly number[], dtype = "float32"): TensorRecord => ({
  name,
  shape,
  dtype,
  nbytes: shape.reduce((product, size) => product * size, 4),
  offset: null,
  file: "",
  strides: null,
  role: null
});

const LAYERS = Array.from({ length: 6 }, (_, i) => tensor(`layers.${i}.fc.weight`, [16, 16]));

function fileOf(tensors: readonly TensorRecord[], more: Partial<FileContents> = {}): Hierarchy {
  const empty = { format: "test", title: "", metadata: {}, modules: [], graph: null, classes: [], warnings: [] };
  return new Hierarchy(filePayload({ ...empty, tensors, ...more }, "net.test"));
}

function showPanel(h: Hierarchy, actions: FileActions = {}): void {
  mounted.push(new ModulePanel(host, h, store, actions));
}

const text = () => host.textContent ?? "";
const buttons = (name: RegExp) =>
  [...host.querySelectorAll<HTMLElement>("button")].filter(button => name.test(button.textContent ?? ""));

describe("the panel of a file", () => {
  it("tells of the file when nothing is selected, and of its root", () => {
    const more = { metadata: { license: "mit" }, classes: ["os.system"] };
    showPanel(fileOf([...LAYERS, tensor("head", [4], "int64")], more));
    for (const part of ["net.test", "test", "license", "mit", "os.system", "6.02 KiB", "float32", "in 6 tensors"]) {
      expect(text()).toContain(part);
    }
    store.set("selected", "");
    expect(text()).toContain("mit");
    store.set("selected", "layers");
    expect(text()).not.toContain("mit");
  });

  it("lists a module's tensors with shape, type and bytes, and what kind it is", () => {
    showPanel(fileOf([tensor("a.weight", [2, 3]), tensor("a.running_mean", [3]), tensor("a.n", [], "int64")]));
    store.set("selected", "a");
    const items = [...host.querySelectorAll(".mkg-file-tensors > li")].map(item => item.textContent);
    expect(items[0]).toContain("2×3float3224 B");
    expect(items[1]).toMatch(/buffer$/);
    expect(items[2]).toContain("int64");
    expect(text()).toContain("batch norm (guessed from its tensors)");
    expect(buttons(/histogram/)).toEqual([]); // nobody to ask
  });

  it("lists many tensors a hundred at a time", () => {
    showPanel(fileOf(Array.from({ length: 250 }, (_, i) => tensor(`w${i}`, [i]))));
    store.set("selected", "");
    const count = () => host.querySelectorAll(".mkg-file-tensors > li").length;
    expect(count()).toBe(100);
    buttons(/150 more/)[0].click();
    expect(count()).toBe(200);
  });

  it("asks for a histogram, and says why there is none", async () => {
    const histogram = vi.fn((name: string) =>
      name === "a.v"
        ? Promise.reject(new HistogramProblem("no kernel <img>"))
        : Promise.resolve(
            readHistogram('{"counts":[1,3],"edges":[0,1,2],"min":0,"max":2,"mean":1.5,"zeros":1,"sampled":4}')
          )
    );
    showPanel(fileOf([tensor("a.w", [4]), tensor("a.v", [4])]), { histogram });
    store.set("selected", "a");
    buttons(/histogram/)[0].focus();
    buttons(/histogram/)[0].click();
    expect(document.activeElement?.textContent).toBe("hide"); // the keyboard stays where it was
    buttons(/histogram/)[0].click();
    await settle();
    expect(histogram.mock.calls).toEqual([["a.w"], ["a.v"]]);
    expect(host.querySelectorAll("rect")).toHaveLength(2);
    expect(text()).toContain("1 (25 %)");
    expect(text()).toContain("no kernel <img>");
    store.set("selected", null);
    store.set("selected", "a");
    expect(host.querySelectorAll("rect")).toHaveLength(2); // kept
    buttons(/hide/)[0].click();
    expect(host.querySelectorAll("rect")).toHaveLength(0);
  });

  it("refuses answers that are no histograms", () => {
    const answers = [
      "",
      "x",
      "[]",
      '{"counts":[1],"edges":[0]}',
      '{"counts":["a"],"edges":[0,1]}',
      '{"counts":{},"edges":[]}'
    ];
    const many = JSON.stringify({ counts: new Array<number>(65).fill(1), edges: new Array<number>(66).fill(1) });
    for (const answer of [...answers, many]) expect(() => readHistogram(answer)).toThrow(HistogramProblem);
    expect(readHistogram('a warning\n{"counts":[],"edges":[],"min":null,"max":"NaN","nan":3,"sampled":3}\n').nan).toBe(
      3
    );
  });
});

describe("a file in the tree and on the canvas", () => {
  it("has bars of the bytes, of a fold those of all its members", () => {
    const h = fileOf([...LAYERS, tensor("head.weight", [16, 32])]);
    store.set("expanded", ["layers"]);
    mounted.push(new TreeView(host, h, store));
    const rows = [...host.querySelectorAll<HTMLElement>("[role=treeitem][data-mkg-path]")];
    const bars = rows.map(row => row.querySelector<HTMLElement>(".mkg-row-filled")?.style.width);
    expect(rows.map(row => row.querySelector(".mkg-row-amount")?.textContent)).toEqual([
      "8.00 KiB",
      "6.00 KiB",
      "6.00 KiB",
      "2.00 KiB"
    ]);
    expect(bars).toEqual(["100%", "75%", "100%", "25%"]);
    expect(rows[2].querySelector<HTMLElement>(".mkg-row-size")?.title).toContain("in 6 modules");
    expect(rows[2].getAttribute("aria-label")).toBe("0, 6 identical, 6.00 KiB");
    expect(rows[1].querySelector(".mkg-row-class")).toBeNull(); // "module" says nothing
  });

  it("has bars of parameters where it is colored by these", async () => {
    mounted.push(new TreeView(host, fileOf(LAYERS), store));
    store.set("colorBy", "params");
    await settle();
    expect(host.querySelector(".mkg-row-amount")?.textContent).toBe("1.54 k");
    store.set("colorBy", "occurrences");
    await settle();
    expect(host.querySelector(".mkg-row-amount")?.textContent).toBe("6.00 KiB");
  });

  it("draws names, and no order that the file does not tell", () => {
    const h = fileOf([tensor("q.weight", [2, 2]), tensor("k.weight", [2, 2])]);
    const scene = buildScene(h, store, text => text.length);
    expect(scene.edges).toEqual([]);
    expect(scene.nodes.map(({ title, subtitle, detail }) => [title, subtitle, detail])).toEqual([
      ["q", "matrix", "2×2"],
      ["k", "matrix", "2×2"]
    ]);
  });

  it("finds modules by their tensors", () => {
    const h = fileOf([tensor("a.weight", [1]), tensor("b.bias", [1])]);
    expect(matches(h, "b.bias").map(node => h.path(node))).toEqual(["b"]);
    expect(matches(h, "a.weight").map(node => h.path(node))).toEqual(["a"]);
  });

  it("shows warnings above, as text", () => {
    mounted.push(
      new FileNotice(host, fileOf([], { warnings: ["it runs <img src=x>", ...new Array<string>(9).fill("more")] }))
    );
    expect(host.getAttribute("role")).toBe("note");
    expect(text()).toContain("It runs <img src=x>");
    expect(text()).toContain("and 5 other warnings");
    expect(foreignParts(host)).toEqual([]);
    const calm = document.createElement("div");
    mounted.push(new FileNotice(calm, fileOf([])));
    expect(calm.hidden).toBe(true);
  });

  it.each([
    ["torch.load(x) would run posix.system: do not load it", "torch.load(x) would", true],
    ["torch.load(x) imports a.B", "torch.load(x) imports", false],
    ["eval() is called", "eval() is", false],
    ["two tensors differ", "Two tensors", false],
    ["tensors, and more", "Tensors, and", false]
  ])("keeps code as it is written, and alarms of danger alone: %s", (warning, start, isDanger) => {
    mounted.push(new FileNotice(host, fileOf([], { warnings: [warning] })));
    expect(text()).toContain(start);
    expect(host.classList.contains("mkg-is-danger")).toBe(isDanger);
    expect(host.getAttribute("role")).toBe(isDanger ? "alert" : "note");
  });

  it("names danger first, and folds up what other warnings list", () => {
    const names = Array.from({ length: 30 }, (_, i) => `pack.Class${i}`).join(", ");
    const long = `torch.load(x) would import these: ${names}. Load it only if you trust it`;
    mounted.push(new FileNotice(host, fileOf([], { warnings: [long, `runs posix.system, ${names}: do not load it`] })));
    const [first, second] = host.querySelector(".mkg-trace-error-text")?.children ?? [];
    expect(first.textContent).toMatch(/^Runs posix.system.*do not load it$/);
    expect(second).toBeInstanceOf(HTMLDetailsElement);
    expect((second as HTMLDetailsElement).open).toBe(false);
    expect(second.querySelector("summary")?.textContent).toBe(
      "torch.load(x) would import these. Load it only if you trust it"
    );
    expect(second.textContent).toContain("pack.Class29");
  });

  it("has no fingerprints, which differ from those of the kernel, and tells the size of the file", () => {
    showPanel(fileOf([tensor("a.weight", [2, 3])]), { size: 2048 });
    expect(text()).toContain("File size2.00 KiB");
    store.set("selected", "a");
    expect(text()).not.toMatch(/fingerprint|display name/i);
    store.set("selected", "");
    expect(text()).toContain("Classnot in the file");
  });

  it("breaks names between words", () => {
    showPanel(fileOf(LAYERS, { metadata: { "llama.embedding_length": 4 } }));
    expect(host.querySelector(".mkg-of-names .mkg-name")?.innerHTML).toBe("llama.<wbr>embedding_<wbr>length");
  });

  it("finds kinds by their beginning and in quotes, and offers one that it has", () => {
    const h = fileOf([tensor("a.weight", [1, 1, 3, 3]), tensor("b.weight", [1, 1, 3, 3]), tensor("c.weight", [3])]);
    const found = (query: string) => search(h, query).nodes.map(node => h.path(node));
    for (const query of ["type:convolution", 'type:"convolution 2d"', 'class:"Convolution 2D"', "type:conv"]) {
      expect(found(query)).toEqual(["a", "b"]);
    }
    expect(found('type:"convolution 2d" b')).toEqual(["b"]);
    expect(found('type:"convolution 1d"')).toEqual([]);
    expect(search(h, 'type:""').notice).toContain("class:convolution");
    expect(exampleClass(h)).toBe("convolution");
    expect(found(`type:${exampleClass(h)}`)).toEqual(["a", "b"]);
  });

  it("shows hostile names, values and classes as they are", () => {
    for (const hostile of hostileTexts()) {
      const name = hostile.replaceAll(".", "").replace(/^\/+/, ""); // a name that begins with a slash is no path
      const h = fileOf([tensor(`${name}.${name}`, [2], hostile)], {
        metadata: { [hostile]: hostile },
        classes: [hostile]
      });
      showPanel(h, { histogram: () => new Promise(() => {}) });
      store.set("selected", null);
      expect(text()).toContain(hostile);
      store.set("selected", name);
      expect(text()).toContain(hostile);
      expect(foreignParts(document)).toEqual([]);
      mounted.pop()?.dispose();
    }
    expect("__xss" in globalThis).toBe(false);
  });
});
