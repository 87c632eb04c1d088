import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  deepNet,
  foreignParts,
  hierarchyOf,
  hostileNet,
  hostileTexts,
  press,
  settle,
  smallNet,
  storeOf,
  wideNet
} from "../../testing/sample";
import type { Hierarchy } from "../shared/model/hierarchy";
import type { GraphStore } from "../shared/model/graph_store";
import { VirtualList } from "../shared/ui/virtual_list";
import { ROW_HEIGHT, TreeView } from "./tree_view";

let host: HTMLElement;
let view: TreeView | undefined;

beforeEach(() => {
  host = document.createElement("div");
  document.body.append(host);
});

afterEach(() => {
  view?.dispose();
  host.remove();
});

function mount(h: Hierarchy, store: GraphStore): void {
  view = new TreeView(host, h, store);
}

const rows = () => Array.from(host.querySelectorAll<HTMLElement>("[role=treeitem]"));
const copies = () => host.querySelector<HTMLElement>("[data-mkg-copies]") as HTMLElement;
const paths = () => rows().flatMap(row => (row === copies() ? [] : [row.dataset.mkgPath]));
const row = (path: string) => rows().find(element => element.dataset.mkgPath === path) as HTMLElement;
const focusOn = (path: string) => row(path).focus();
const key = (name: string) => press(document.activeElement ?? host, name);
const activePath = () => (document.activeElement as HTMLElement).dataset.mkgPath;

describe("the row that is active at first", () => {
  afterEach(() => vi.restoreAllMocks());

  const asked = (store: GraphStore) => {
    const height = vi.spyOn(Element.prototype, "clientHeight", "get").mockReturnValue(2 * ROW_HEIGHT);
    mount(smallNet(), store);
    const before = height.mock.calls.length;
    view?.showActive();
    return [before, height.mock.calls.length];
  };

  it("comes into view when the tree is told that it has its place", () => {
    const [before, after] = asked(storeOf({ selected: "fc" }));
    expect(before).toBe(0);
    expect(after).toBeGreaterThan(0);
    expect(view?.tree.scrollTop).toBeGreaterThan(0);
  });

  it("costs no layout of the page where it is the first", () => {
    expect(asked(storeOf())).toEqual([0, 0]);
  });
});

describe("rows", () => {
  it("say what they are", () => {
    mount(smallNet(), storeOf({ selected: "layer1.0" }));
    expect(host.querySelector(".mkg-tree")?.getAttribute("role")).toBe("tree");
    expect(paths()).toEqual(["", "conv1", "bn1", "layer1", "fc"]);
    const layer = row("layer1");
    expect(layer.getAttribute("aria-level")).toBe("2");
    expect(layer.getAttribute("aria-posinset")).toBe("3");
    expect(layer.getAttribute("aria-setsize")).toBe("4");
    expect(layer.getAttribute("aria-expanded")).toBe("false");
    expect(row("fc").hasAttribute("aria-expanded")).toBe(false);
    expect(row("").getAttribute("aria-expanded")).toBe("true");
  });

  it("stand for their folds, or for each member", async () => {
    const store = storeOf({ expanded: ["layer1"] });
    mount(smallNet(), store);
    expect(row("layer1.0").textContent).toBe("0×4Block");
    expect(row("layer1.0").getAttribute("aria-label")).toBe("0, Block, 4 identical");
    store.set("shown", new Map([[4, 10]]));
    await settle();
    expect(paths()).toEqual(["", "conv1", "bn1", "layer1", "layer1.2", "fc"]);
    store.set("unfolded", new Set([4]));
    await settle();
    expect(paths().filter(path => path?.startsWith("layer1."))).toHaveLength(4);
    expect(row("layer1.3").getAttribute("aria-label")).toBe("3, Block");
  });

  it("name the other copies of a fold, which a click shows as rows of their own", async () => {
    const store = storeOf({ expanded: ["layer1"], selected: "layer1.0", query: "relu" });
    mount(smallNet(), store);
    expect([copies().textContent, copies().getAttribute("aria-label")]).toEqual(["1–3(3 copies)", "1–3 (3 copies)"]);
    expect([copies().getAttribute("aria-posinset"), copies().getAttribute("aria-selected")]).toEqual(["2", "false"]);
    store.set("selected", "layer1.2");
    await settle();
    expect(paths()).toContain("layer1.2");
    expect(copies().textContent).toBe("0–1, 3(3 copies)");
    store.set("selected", "layer1.0");
    await settle();
    copies().click();
    expect(paths().filter(path => path?.startsWith("layer1."))).toHaveLength(4);
    expect([copies(), store.get("selected"), activePath()]).toEqual([null, "layer1.1", "layer1.1"]);
  });

  it("show copies by the keyboard, and leave the selection as it is on the way", () => {
    const store = storeOf({ expanded: ["layer1"], selected: "layer1.0" });
    mount(smallNet(), store);
    focusOn("layer1.0");
    key("ArrowDown");
    expect([document.activeElement, store.get("selected")]).toEqual([copies(), "layer1.0"]);
    key("ArrowDown");
    expect(activePath()).toBe("fc");
    key("ArrowUp");
    key("ArrowLeft");
    expect(activePath()).toBe("layer1");
    key("ArrowDown");
    key("ArrowDown");
    key("ArrowRight");
    expect([activePath(), store.get("unfolded").size]).toEqual(["layer1.1", 1]);
  });

  it("name families and marks", () => {
    const h = smallNet({ folds: [[4, 4, "family", "width 1…4"]], marks: { "1": ["opaque: lock"] } });
    mount(h, storeOf({ expanded: ["layer1"] }));
    expect(row("layer1.0").getAttribute("aria-label")).toBe("0, Block, 4 similar, width 1…4");
    expect(row("layer1.0").textContent).toContain("≈ ×4");
    expect(row("layer1.0").title).toContain("≈ ×4 same structure, other sizes: width 1…4");
    expect(row("conv1").getAttribute("aria-label")).toBe("conv1, Conv2d, opaque: lock");
  });

  it("mark residual blocks", () => {
    mount(smallNet({ blocks: { "1": "residual <i>block</i>" } }), storeOf({}));
    expect(row("conv1").getAttribute("aria-label")).toBe("conv1, Conv2d, residual <i>block</i>");
    expect(row("conv1").querySelector(".mkg-row-block")?.textContent).toBe("−");
    expect(row("conv1").title).toBe("conv1\npack.Conv2d\n− residual <i>block</i>");
    expect(row("layer1").querySelector(".mkg-row-block")).toBeNull();
  });

  it("show hits and count the hidden ones", async () => {
    const store = storeOf({ expanded: ["layer1"], query: "relu" });
    mount(smallNet(), store);
    expect(row("layer1.0").querySelector(".mkg-row-hits")?.textContent).toBe("4");
    store.set("expanded", ["layer1", "layer1.0"]);
    await settle();
    expect(row("layer1.0").querySelector(".mkg-row-hits")?.textContent).toBe("3");
    expect(Array.from(row("layer1.0.relu").querySelectorAll("mark"), mark => mark.textContent)).toEqual([
      "relu",
      "ReLU"
    ]);
    store.set("query", "");
    await settle();
    expect(host.querySelectorAll("mark, .mkg-row-hits")).toHaveLength(0);
  });
});

describe("keyboard", () => {
  it("walks, opens and closes", () => {
    const store = storeOf();
    mount(smallNet(), store);
    focusOn("");
    key("ArrowDown");
    expect(store.get("selected")).toBe("conv1");
    key("End");
    expect(activePath()).toBe("fc");
    key("ArrowDown");
    expect(activePath()).toBe("fc");
    key("ArrowUp");
    key("ArrowRight");
    expect(store.get("expanded")).toEqual(["layer1"]);
    key("ArrowRight");
    expect(activePath()).toBe("layer1.0");
    key("Enter");
    expect(store.get("expanded")).toEqual(["layer1", "layer1.0"]);
    key("ArrowRight");
    expect(store.get("selected")).toBe("layer1.0.conv");
    key("ArrowLeft");
    expect(store.get("selected")).toBe("layer1.0");
    key("ArrowLeft");
    expect(store.get("expanded")).toEqual(["layer1"]);
    key("ArrowLeft");
    expect(store.get("selected")).toBe("layer1");
    key("Home");
    expect(store.get("selected")).toBe("");
    key("ArrowLeft");
    expect(row("").getAttribute("aria-expanded")).toBe("true");
    expect(rows().filter(element => element.tabIndex === 0)).toEqual([row("")]);
    expect(rows().filter(element => element.getAttribute("aria-selected") === "true")).toEqual([row("")]);
  });

  it("jumps to what is typed, and leaves shortcuts alone", () => {
    const store = storeOf();
    mount(smallNet(), store);
    focusOn("");
    key("l");
    key("a");
    expect(activePath()).toBe("layer1");
    let passed = 0;
    host.addEventListener("keydown", () => (passed += 1));
    key("/");
    press(document.activeElement as Element, "c", { ctrlKey: true });
    expect(passed).toBe(2);
    expect(activePath()).toBe("layer1");
  });

  it("keeps focus when a container around it closes", async () => {
    const store = storeOf({ expanded: ["layer1"] });
    mount(smallNet(), store);
    focusOn("layer1.0");
    row("layer1.0").click();
    store.set("expanded", []);
    await settle();
    expect(activePath()).toBe("layer1");
    expect(store.get("selected")).toBe("layer1.0");
  });
});

describe("mouse and selection", () => {
  it("selects on click, toggles on the triangle and on double click", () => {
    const store = storeOf();
    mount(smallNet(), store);
    row("layer1").click();
    expect(store.get("selected")).toBe("layer1");
    (row("layer1").querySelector(".mkg-twisty") as HTMLElement).click();
    expect(store.get("expanded")).toEqual(["layer1"]);
    row("layer1").dispatchEvent(new MouseEvent("dblclick", { bubbles: true }));
    expect(store.get("expanded")).toEqual([]);
  });

  it("reveals what was selected elsewhere, in the very instance", async () => {
    const store = storeOf();
    mount(smallNet(), store);
    store.set("selected", "layer1.2.conv");
    expect(row("layer1.2.conv").getAttribute("aria-selected")).toBe("true");
    expect(paths()).not.toContain("layer1.0");
    store.set("selected", "nowhere");
    await settle();
    expect(rows().some(element => element.getAttribute("aria-selected") === "true")).toBe(false);
  });

  it("lists what lies around the focus, and leaves it when that is closed", async () => {
    const store = storeOf({ focus: 4 });
    mount(smallNet(), store);
    expect(paths()).toContain("layer1.0.conv");
    (row("layer1").querySelector(".mkg-twisty") as HTMLElement).click();
    await settle();
    expect(store.get("focus")).toBe(0);
    expect(paths()).not.toContain("layer1.0");
  });

  it("draws its rows once where none has to come into view", () => {
    const store = storeOf();
    mount(smallNet(), store);
    const render = vi.spyOn(VirtualList.prototype, "render");
    store.set("selected", "fc");
    expect(render).toHaveBeenCalledTimes(1);
    render.mockRestore();
  });

  it("stops listening when it goes", () => {
    const store = storeOf();
    mount(smallNet(), store);
    view?.dispose();
    store.set("expanded", ["layer1"]);
    expect(host.childElementCount).toBe(0);
  });
});

describe("size", () => {
  it("keeps few rows of 100,000 in the page, the active one among them", async () => {
    const store = storeOf();
    mount(wideNet(100_000), store);
    expect(rows().length).toBeLessThan(120);
    expect((host.querySelector(".mkg-tree-space") as HTMLElement).style.height).toBe(`${100_001 * ROW_HEIGHT}px`);
    focusOn("");
    const tree = host.querySelector(".mkg-tree") as HTMLElement;
    tree.scrollTop = 50_000 * ROW_HEIGHT;
    tree.dispatchEvent(new Event("scroll"));
    await settle();
    expect(paths()).toContain("50003");
    expect(activePath()).toBe("");
    key("End");
    expect(activePath()).toBe("99999");
    expect(row("99999").getAttribute("aria-setsize")).toBe("100000");
    expect(rows().length).toBeLessThan(120);
  });

  it("shows a module 3,000 levels down", () => {
    const store = storeOf();
    const h = deepNet(3_001);
    mount(h, store);
    store.set("selected", h.path(3_000));
    expect(row(h.path(3_000)).getAttribute("aria-level")).toBe("3001");
  });
});

it("shows hostile names verbatim and nothing else", async () => {
  const texts = hostileTexts();
  const h = hostileNet(texts);
  const store = storeOf({ expanded: texts });
  mount(h, store);
  for (const text of texts) {
    store.set("query", text);
    await settle();
    const shown = row(h.path(h.find(text) as number));
    expect(shown.querySelector(".mkg-row-name")?.textContent).toBe(text);
    expect(shown.querySelector(".mkg-row-class")?.textContent).toBe(text);
    expect(foreignParts(document)).toEqual([]);
  }
  expect("__xss" in globalThis).toBe(false);
});

it("keeps strange names apart", () => {
  const h = hierarchyOf({
    cls: "A",
    inside: [{ name: "__proto__" }, { name: "a.b" }, { name: "x\ny" }, { name: " " }]
  });
  const store = storeOf();
  mount(h, store);
  for (const name of ["__proto__", "a.b", "x\ny", " "]) {
    row(name).click();
    expect(store.get("selected")).toBe(name);
  }
});
