import "../../testing/media";
import { afterEach, describe, expect, it } from "vitest";
import { goldenKnowledge, largeKnowledge, rawKnowledge } from "../../testing/knowledge";
import { OTHER_VERSION } from "../shared/base/schema";
import { Knowledge } from "./data/knowledge";
import { createKnowledgeExplorer, type KnowledgeExplorer } from "./explorer";
import { type ExplorerState, ExplorerStore } from "./data/state";

let mounted: KnowledgeExplorer | undefined;

function mount(payload: unknown, state: Partial<ExplorerState> = {}) {
  const host = document.createElement("div");
  document.body.append(host);
  const store = new ExplorerStore(state);
  mounted = createKnowledgeExplorer(host, payload, store);
  const find = <T extends HTMLElement = HTMLElement>(selector: string) => host.querySelector<T>(selector) as T;
  const texts = (selector: string) => Array.from(host.querySelectorAll(selector), each => each.textContent ?? "");
  return { host, store, find, texts };
}

const settled = () => new Promise(resolve => setTimeout(resolve, 20));
const press = (target: Element, key: string) =>
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const HOSTILE = "<img src=x onerror=alert(1)>";

afterEach(() => {
  mounted?.dispose();
  mounted = undefined;
  document.body.replaceChildren();
});

describe("createKnowledgeExplorer", () => {
  it("shows the parts of the contract and says when it is ready", () => {
    const { host, texts } = mount(goldenKnowledge());
    expect(host.matches("div.mkg-widget.mkg-knowledge-explorer[data-mkg-id][data-lm-suppress-shortcuts]")).toBe(true);
    for (const part of [
      ".mkg-graph-canvas",
      ".mkg-kg-tree",
      ".mkg-side-panel",
      ".mkg-search input",
      ".mkg-legend",
      ".mkg-minimap",
      ".mkg-status"
    ])
      expect(host.querySelector(part), part).not.toBeNull();
    expect(host.dataset.mkgReady).toBe("true");
    expect(texts(".mkg-kg-views button")).toEqual([
      "Graph",
      "Scatter",
      "Ranking",
      "Communities",
      "Types",
      "Overlap",
      "Rank–frequency",
      "Training"
    ]);
    expect(texts(".mkg-kg-job").join()).toContain("ada trained small on digits: 91.0 %");
  });

  it("explains what cannot be shown", () => {
    expect(mount({ ...rawKnowledge(), schema_version: 9 }).host.textContent).toBe(OTHER_VERSION);
    expect(mount({}).host.textContent).toContain("Run the cell");
    expect(mount({ ...rawKnowledge(), results: null }).host.textContent).toContain("damaged (results)");
  });

  it("shows hostile names as text", () => {
    const { host, store } = mount(goldenKnowledge());
    store.set("selected", `Model:${HOSTILE}`);
    expect(host.querySelector(".mkg-panel-class")?.textContent).toBe(HOSTILE);
    for (const view of ["ranking", "types", "overlap", "frequency", "jobs"] as const) store.set("view", view);
    expect(host.querySelector("img")).toBeNull();
    expect(host.querySelector(".mkg-kg-table")?.textContent).toContain("<i>bo</i>");
  });

  it("leaves nothing behind", () => {
    const { host } = mount(goldenKnowledge());
    mounted?.dispose();
    mounted = undefined;
    expect(host.childElementCount).toBe(0);
    expect(host.dataset.mkgReady).toBeUndefined();
  });

  it("says that the kernel is gone", () => {
    const { host, store, find } = mount(goldenKnowledge());
    store.set("connected", false);
    expect(host.classList.contains("mkg-is-disconnected")).toBe(true);
    expect(find(".mkg-status-text").textContent).toContain("disconnected");
  });
});

describe("the tree", () => {
  it("opens and walks by keyboard, and goes out with Escape", async () => {
    const { host, store, find, texts } = mount(goldenKnowledge());
    const row = find('[data-mkg-item="f0"]');
    row.click();
    expect(store.get("selected")).toBe("Family:Sequential");
    press(row, "ArrowRight");
    await settled();
    expect(texts('[role=treeitem][aria-level="2"] .mkg-row-name')).toEqual(["small", "wide", "twin", HOSTILE]);
    expect(Number(host.dataset.mkgDrawn)).toBe(host.querySelectorAll("[role=treeitem]").length);
    press(find('[data-mkg-item="f0"]'), "ArrowDown");
    expect(store.get("selected")).toBe("Model:small");
    expect(document.activeElement).toBe(find('[data-mkg-item="f0/m0"]'));
    press(document.activeElement as Element, "Escape");
    expect(store.get("selected")).toBe("Family:Sequential");
    press(find('[data-mkg-item="f0"]'), "Escape");
    expect(store.get("selected")).toBeNull();
    press(find('[data-mkg-item="f0"]'), "ArrowLeft");
    await settled();
    expect(store.get("expanded")).toEqual([]);
  });

  it("has its keys on the canvas too", async () => {
    const { store, find } = mount(largeKnowledge(12, 120), { groups: "communities" });
    const canvas = find(".mkg-graph-canvas");
    press(canvas, "ArrowRight");
    const first = store.get("selected");
    expect(first).toBe("Community:0");
    const seen = new Set([first]);
    for (const key of ["ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"]) {
      press(canvas, key);
      seen.add(store.get("selected"));
    }
    expect(seen.size).toBeGreaterThan(2);
    const id = store.get("item");
    press(canvas, "Enter");
    expect(store.get("expanded")).toEqual([id]);
  });

  it("refuses more than 500 circles, with an offer", async () => {
    const { host, store, find, texts } = mount(largeKnowledge(12, 120), { groups: "communities" });
    store.set("expanded", [0, 1, 2, 3, 4, 5, 6].flatMap(i => [`c${i}`, `c${i}/t1.0`]).concat("c8"));
    await settled();
    find('[data-mkg-item="c8/t1.0"] .mkg-twisty').click();
    await settled();
    expect(Number(host.dataset.mkgDrawn)).toBeLessThanOrEqual(500);
    expect(texts(".mkg-offer button")).toEqual(["Collapse others", "Search inside", "Dismiss"]);
    find(".mkg-offer button").click();
    await settled();
    expect(store.get("expanded")).toEqual(["c8", "c8/t1.0"]);
    expect(find(".mkg-offer").hidden).toBe(true);
    const more = find('[data-mkg-item="c8/t1.0/+"]');
    expect(more.textContent).toContain("60 more");
    more.click();
    find(".mkg-offer button").click();
    expect(store.get("query")).toBe("class:Conv2d ");
  });
});

describe("the search", () => {
  it("lists what it finds in place of the tree, and selects it", async () => {
    const { host, store, find, texts } = mount(goldenKnowledge());
    press(host, "/");
    expect(document.activeElement).toBe(find(".mkg-search input"));
    store.set("query", "class:Block uses>2");
    expect(texts(".mkg-kg-result-name")).toHaveLength(1);
    expect(find(".mkg-slot-tree").hidden).toBe(true);
    press(find(".mkg-search input"), "Enter");
    await settled();
    expect(store.get("selected")).toMatch(/^[0-9a-f]{32}$/);
    expect(find(".mkg-side-panel").dataset.mkgKey).toBe(store.get("selected"));
    store.set("query", "speed>3");
    expect(find(".mkg-search-count").textContent).toContain("Unknown number “speed”");
    press(find(".mkg-search input"), "Escape");
    expect(store.get("query")).toBe("");
    expect(find(".mkg-slot-tree").hidden).toBe(false);
  });
});

describe("the tables", () => {
  it("sort by their heads, and a row selects", () => {
    const { store, find, texts } = mount(goldenKnowledge(), { view: "ranking" });
    expect(find("[role=columnheader][aria-sort=descending]").textContent).toContain("Uses");
    find('[data-mkg-column="name"]').click();
    const names = texts("[role=gridcell]:first-child");
    expect(names).toEqual([...names].sort());
    find('[role=row][data-mkg-row="2"]').click();
    const { name, digest } = goldenKnowledge().entities;
    expect(store.get("selected")).toBe(digest[name.indexOf(names[2])]);
    press(find('[role=row][data-mkg-row="2"]'), "ArrowUp");
    expect(store.get("selected")).toBe(digest[name.indexOf(names[1])]);
    store.set("rows", "models");
    expect(texts("[role=gridcell]:first-child")).toHaveLength(4);
    store.set("query", "wide");
    expect(texts("[role=gridcell]:first-child")).toEqual(["wide"]);
  });

  it("have few rows in the page, however many there are", () => {
    const { host } = mount(largeKnowledge(50, 120), { view: "ranking" });
    expect(host.querySelector("[role=grid]")?.getAttribute("aria-rowcount")).toBe("6001");
    expect(host.querySelectorAll("[role=row]").length).toBeLessThan(60);
  });

  it("count uses at one level", () => {
    const { store, texts } = mount(goldenKnowledge(), { view: "ranking", level: "stage" });
    expect(texts("[role=gridcell]:first-child").every(name => /^(Block|Holder)/.test(name))).toBe(true);
    store.set("level", "model");
    expect(texts("[role=gridcell]:first-child")).toHaveLength(3);
  });
});

describe("the overlap", () => {
  it("is read and chosen by keys", () => {
    const { store, find, texts } = mount(goldenKnowledge(), { view: "overlap" });
    const matrix = find(".mkg-kg-matrix");
    press(matrix, "ArrowRight");
    press(matrix, "ArrowRight");
    const said = find(".mkg-kg-matrix-view .mkg-kg-note").textContent ?? "";
    expect(said).toMatch(/^small × \w+: \d\.\d{3}, \d+ structures? shared$/);
    press(matrix, "Enter");
    expect(store.get("selected")).toBe("Model:small");
    expect(store.get("other")).toMatch(/^Model:/);
    const other = store.get("other")?.slice("Model:".length) ?? "";
    expect(texts("h4")).toContain(`Only in ${other} 6`);
  });
});

describe("a search", () => {
  const search = (query: string, view: ExplorerState["view"] = "ranking") => mount(goldenKnowledge(), { query, view });
  const data = new Knowledge(goldenKnowledge());
  const wide = data.payload.models.name.indexOf("wide");

  it("for a model leaves its structures in the ranking, with their uses there", () => {
    const { texts, find, store } = search("wide");
    expect(texts("[role=gridcell]:first-child")).toHaveLength(data.memberSet(wide).size);
    expect(find(".mkg-kg-controls .mkg-kg-note").textContent).toBe(
      `${data.memberSet(wide).size} structures of ${data.size}, from wide`
    );
    find('[data-mkg-column="there"]').click();
    expect(texts("[role=gridcell]:nth-child(4)").reduce((sum, uses) => sum + Number(uses), 0)).toBe(
      data.payload.models.modules[wide]
    );
    expect(store.get("query")).toBe("wide");
  });

  it.each(["communities", "types"] as const)("for a model leaves the %s that have its structures", view => {
    const { texts } = search("wide", view);
    const at = texts("[role=columnheader]").indexOf("Matches");
    const found = texts(`.mkg-kg-td:nth-child(${at + 1})`).map(Number);
    expect(found.length).toBeGreaterThan(0);
    expect(found.every(count => count > 0)).toBe(true);
    if (view === "communities") expect(found.reduce((a, b) => a + b)).toBe(data.memberSet(wide).size);
  });

  it("for structures leaves the models that have them, and their jobs", () => {
    const { texts, store, find } = search("class:Linear", "ranking");
    store.set("rows", "models");
    expect(texts("[role=gridcell]:first-child").sort()).toEqual(["small", "twin", "wide"]);
    expect(find(".mkg-kg-controls .mkg-kg-note").textContent).toContain("with matching structures");
    store.set("view", "jobs");
    expect(texts("[role=gridcell]:first-child").sort()).toEqual(["first", "second"]);
    store.set("query", "ada digits");
    expect(texts("[role=gridcell]:first-child")).toEqual(["first"]);
  });

  it("shows one model in the matrix beside those most like it, several by themselves", () => {
    const { store, find } = search("wide", "overlap");
    const note = () => find(".mkg-kg-matrix-view .mkg-kg-note").textContent;
    expect(note()).toBe("wide and 3 models with most overlap");
    store.set("query", "class:Linear");
    expect(note()).toBe("3 of 4 models, with matching structures");
  });

  it("marks what it found among the ranks", () => {
    const { find } = search("wide", "frequency");
    expect(find(".mkg-kg-frequency-view .mkg-kg-note").textContent).toMatch(/^\d+ of 16 structures marked, from wide$/);
  });

  it.each(["graph", "ranking", "communities", "types", "overlap", "frequency", "jobs"] as const)(
    "that finds nothing says so in %s, and how to clear it",
    view => {
      const { find, store, host } = search("nothing like it <b>", view);
      expect(find(".mkg-kg-nothing").textContent).toContain("No results for “nothing like it <b>”.");
      find(".mkg-kg-clear").click();
      expect(store.get("query")).toBe("");
      expect(host.querySelector(".mkg-kg-nothing")).toBeNull();
    }
  );
});

describe("the comparison", () => {
  it("is chosen by keys, says how much is shared, and comes back from a structure", () => {
    const { store, find, texts, host } = mount(goldenKnowledge(), { selected: "Model:small" });
    find(".mkg-kg-compare-with").click();
    const field = find<HTMLInputElement>("[role=combobox]");
    expect(document.activeElement).toBe(field);
    expect(texts("[role=listbox] [role=option]").slice(0, 2)).toEqual(["twin", "wide"]);
    field.value = "wi";
    field.dispatchEvent(new Event("input", { bubbles: true }));
    expect(texts(".mkg-kg-picker [role=option]")).toEqual(["wide", "twin"]); // what begins so comes first
    press(field, "ArrowDown");
    press(field, "ArrowUp");
    expect(field.getAttribute("aria-activedescendant")).toBe(
      host.querySelector(".mkg-kg-picker [aria-selected=true]")?.id
    );
    press(field, "Enter");
    expect([store.get("selected"), store.get("other")]).toEqual(["Model:small", "Model:wide"]);
    expect(document.activeElement).toBe(find(".mkg-kg-answer"));
    expect(find(".mkg-kg-answer").textContent).toContain("In common with wide: 3 structures");
    const rows = texts(".mkg-kg-row-name");
    find(".mkg-kg-row").click();
    const { name, digest } = goldenKnowledge().entities;
    expect(store.get("selected")).toBe(digest[name.indexOf(rows[0])]);
    find(".mkg-kg-back").click();
    expect(store.get("selected")).toBe("Model:small");
    expect(texts(".mkg-kg-row-name")).toEqual(rows);
  });

  it("is left with Escape, and needs two models", () => {
    const { find, host } = mount(goldenKnowledge(), { selected: "Model:small" });
    find(".mkg-kg-compare-with").click();
    press(find("[role=combobox]"), "Escape");
    expect(host.querySelector("[role=combobox]")).toBeNull();
    expect(document.activeElement).toBe(find(".mkg-kg-compare-with"));
    const alone = mount(largeKnowledge(1, 4), { selected: "Model:net0" });
    expect(alone.host.querySelector(".mkg-kg-compare-with")).toBeNull();
    expect(alone.find(".mkg-kg-compare .mkg-kg-code").textContent).toContain("kg.add_model(");
  });
});

describe("where there is nothing yet", () => {
  it.each(["graph", "ranking", "communities", "types", "overlap", "frequency"] as const)(
    "%s says what to write",
    view => {
      const { find } = mount(goldenKnowledge("empty"), { view });
      expect(find(".mkg-kg-code").textContent).toContain("kg.add_model(");
      expect(find(".mkg-kg-copy-code").textContent).toBe("Copy code");
    }
  );

  it("training runs are added by code, even while a search is on", () => {
    const { find, store } = mount(largeKnowledge(2, 4), { view: "jobs" });
    expect(find(".mkg-kg-code").textContent).toContain("kg.add_job(");
    store.set("query", "net0");
    expect(find(".mkg-kg-code").textContent).toContain("kg.add_job(");
  });
});
