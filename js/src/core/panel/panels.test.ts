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
import { Breadcrumb, Legend, Toolbar } from "../graph/parts/toolbar";
import { Hierarchy } from "../shared/model/hierarchy";
import { titleOf } from "../shared/stage/color";
import { Facts } from "./parts";
import { ModulePanel } from "./module_panel";
import { breakable } from "./parts";
import { DISCONNECTED, StatusLine as AnyStatusLine } from "../shared/ui/widget_frame";
import type { GraphStore } from "../shared/model/graph_store";
import { PAGE, InstanceStrip } from "../graph/parts/instance_strip";

let host: HTMLElement;
const mounted: { dispose(): void }[] = [];

beforeEach(() => {
  host = document.createElement("div");
  document.body.append(host);
});

afterEach(() => {
  for (const view of mounted.splice(0)) view.dispose();
  expect(host.textContent).toBe("");
  host.remove();
  vi.restoreAllMocks();
});

/** With the arguments that the other parts of a graph have. */
class StatusLine extends AnyStatusLine {
  constructor(host: HTMLElement, _h: Hierarchy, store: GraphStore) {
    super(host, store);
  }
}

function mount(
  Panel: new (host: HTMLElement, h: Hierarchy, store: GraphStore) => { dispose(): void },
  h: Hierarchy,
  store: GraphStore
): void {
  mounted.push(new Panel(host, h, store));
}

const all = (selector: string) => Array.from(host.querySelectorAll<HTMLElement>(selector));
const one = <T extends HTMLElement = HTMLElement>(selector: string) => host.querySelector<T>(selector) as T;
const texts = (selector: string) => all(selector).map(element => element.textContent);

describe("side panel", () => {
  const facts = () =>
    Object.fromEntries(all("dt").map(term => [term.textContent, term.nextElementSibling?.textContent]));

  it("invites when nothing is selected, and when the path is unknown", () => {
    const store = storeOf();
    mount(ModulePanel, smallNet(), store);
    expect(host.textContent).toContain("Click a module");
    expect(host.hasAttribute("data-mkg-path")).toBe(false);
    store.set("selected", "nowhere");
    expect(host.textContent).toContain("no module with the selected path");
    expect(host.hasAttribute("data-mkg-path")).toBe(false);
  });

  it("describes a module", () => {
    mount(ModulePanel, smallNet(), storeOf({ selected: "layer1.2.conv" }));
    expect(host.dataset.mkgPath).toBe("layer1.2.conv");
    expect([one(".mkg-panel-class"), one(".mkg-panel-kind")].map(each => each.textContent)).toEqual(["conv", "Conv2d"]);
    expect(facts()).toMatchObject({ Parameters: "100", Occurrences: "4 in this model", Class: "pack.Conv2d" });
    expect(texts(".mkg-table td")).toEqual(["bias", "False", "stride", "2", "weight", "4×5×5"]);
    expect(host.textContent).not.toContain("FLOPs");
  });

  it("shows later columns by their label, exact numbers in the tooltip, and the overlay", () => {
    const flops = Array.from({ length: 17 }, () => "36893488147419103232");
    const { columns, column_info } = smallNet().payload;
    const h = smallNet({
      columns: { ...columns, flops, bytes: flops.map(() => 4_194_304) },
      column_info: {
        ...column_info,
        flops: { label: "FLOPs", aggregate: "sum" },
        bytes: { label: "bytes", aggregate: "sum" }
      }
    });
    mount(
      ModulePanel,
      h,
      storeOf({ selected: "layer1", colorBy: "overlay", overlay: { "layer1.0": 2, "layer1.1": 4 } })
    );
    expect(facts()).toMatchObject({ FLOPs: "3.69e+19", Memory: "4.00 MiB", Overlay: "3 mean of 2 modules" });
    expect(all("dd span[title]").map(element => element.title)).toEqual(
      expect.arrayContaining(["36,893,488,147,419,103,232", "4,194,304 bytes", "400"])
    );
  });

  it("links what is shared, tied or reached again", () => {
    const store = storeOf({ selected: "fc" });
    const h = smallNet({
      links: [
        [3, "alias", 16, "shared"],
        [16, "self", 0, "cycle"]
      ],
      tied: [[16, "weight", 1, "kernel"]]
    });
    mount(ModulePanel, h, store);
    expect(texts(".mkg-relations li")).toEqual([
      "also used as alias in layer1",
      "the slot self leads back to the whole model",
      "the tensor weight is the same as kernel of conv1"
    ]);
    one("[data-mkg-target='1']").click();
    expect(store.get("selected")).toBe("conv1");
    expect(texts(".mkg-relations li")).toEqual(["the tensor kernel is the same as weight of fc"]);
  });

  it("names place in a fold, marks and comparison", () => {
    const { payload } = smallNet();
    const statuses = payload.nodes.name.map(() => "same" as const);
    const compare = {
      model: { ...payload },
      left: statuses.map((s, i) => (i === 7 ? ("moved" as const) : s)),
      right: statuses,
      pairs: [[7, 10]] as [number, number][]
    };
    const said = { marks: { "7": ["opaque: lock"] }, blocks: { "7": "residual <b>block</b>" } };
    mount(ModulePanel, smallNet({ ...said, compare }), storeOf({ selected: "layer1.1" }));
    expect(facts().Folded).toBe("Copy 2 of 4 · same structure, own weights");
    expect(texts(".mkg-marks li")).toEqual(["opaque: lock"]);
    expect(texts(".mkg-block li")).toEqual(["residual <b>block</b>"]);
    expect(facts()).toMatchObject({ "In the other model": "identical at another place", "Path there": "layer1.2" });
  });

  it("shows what a counterpart has otherwise, beside what is here", () => {
    const other = structuredClone(smallNet().payload);
    const h = smallNet();
    const node = h.find("layer1.0.conv") ?? 0;
    const entity = other.nodes.entity[node];
    other.entities.hyper[entity][1] = 7;
    other.entities.tensors[entity] = [
      ["weight", "parameter", [4, 3, 3]],
      ["scale", "buffer", []]
    ];
    const left = h.payload.nodes.name.map((_, i) => (i === node ? ("changed" as const) : ("same" as const)));
    const pairs = left.map((_, i) => [i, i] as [number, number]);
    const store = storeOf({ selected: "layer1.0.conv" });
    mount(ModulePanel, smallNet({ compare: { model: other, left, right: left, pairs } }), store);
    expect(texts("th")).toEqual(["Name", "Here", "There", "Name", "Here", "There"]);
    const rows = all("tbody tr").map(row => Array.from(row.querySelectorAll("td"), cell => cell.textContent));
    expect(rows).toEqual([
      ["bias", "False", "False"],
      ["stride", "2", "7"],
      ["weight", "4×5×5", "4×3×3"],
      ["scale (buffer)", "–", "a single number"]
    ]);
    expect(texts(".mkg-differs")).toEqual(["2", "7", "4×5×5", "4×3×3", "–", "a single number"]);
    store.set("selected", "conv1");
    expect(texts("th")).not.toContain("There");
  });

  it("copies, with a fallback", async () => {
    const writeText = vi.fn(() => Promise.resolve());
    vi.stubGlobal("navigator", { clipboard: { writeText } });
    const store = storeOf({ selected: "fc" });
    mount(ModulePanel, smallNet(), store);
    one("[aria-label='Copy path']").click();
    await settle();
    expect(writeText).toHaveBeenCalledWith("fc");
    expect(store.get("notice")).toBe("Copied.");
    writeText.mockRejectedValue(new Error("denied") as never);
    one("[aria-label='Copy fingerprint']").click();
    await settle();
    expect(store.get("notice")).toContain("not allow");
    vi.unstubAllGlobals();
  });

  it("can show only the inside", () => {
    const store = storeOf({ selected: "layer1" });
    mount(ModulePanel, smallNet(), store);
    one(".mkg-focus").click();
    expect(store.get("focus")).toBe(3);
    expect(all(".mkg-focus")).toHaveLength(0);
  });
});

/** What stands in no element of its own, where a control of the reading direction would turn its neighbors around. */
const unisolated = (root: Element) =>
  Array.from(root.querySelectorAll("*")).filter(
    element =>
      Array.from(element.childNodes).some(
        ({ nodeType, textContent }) => nodeType === 3 && /\u202e/.test(textContent ?? "")
      ) && !element.closest("bdi")
  );

it("isolates names that turn the reading direction", () => {
  const turned = "a\u202eb";
  const h = hierarchyOf(
    { cls: turned, inside: [{ name: turned, cls: turned, tensors: [[turned, "parameter", [2]]] }, { name: "last" }] },
    { tied: [[2, "other", 1, turned]], marks: { "1": [turned] } }
  );
  const store = storeOf({ selected: "last" });
  mount(ModulePanel, h, store);
  expect(host.textContent).toContain(turned);
  expect(unisolated(host)).toEqual([]);
  store.set("selected", turned);
  expect(unisolated(host)).toEqual([]);
});

describe("facts", () => {
  it("break after a slash or a dot, never within a word, and fold when they are long", () => {
    const facts = new Facts();
    facts.text("Source", "torch/nn/modules/container.py:12");
    facts.text("Long", "word ".repeat(100));
    const [source, long] = Array.from(facts.list.querySelectorAll("dd"));
    const parts = Array.from(source.querySelector("bdi")?.childNodes ?? [], ({ textContent }) => textContent);
    expect(parts.filter(Boolean)).toEqual(["torch/", "nn/", "modules/", "container.", "py:12"]);
    expect(long.querySelector("summary")?.textContent).toBe(`${"word ".repeat(24)}…`);
    expect(long.querySelector("details > bdi")?.textContent).toBe("word ".repeat(100));
  });
});

describe("toolbar", () => {
  const input = () => one<HTMLInputElement>(".mkg-search input");
  const type = async (text: string) => {
    input().value = text;
    input().dispatchEvent(new Event("input", { bubbles: true }));
    await settle(120);
  };

  it("offers the views and colors that there are", () => {
    const store = storeOf();
    mount(Toolbar, smallNet(), store);
    expect(texts(".mkg-view option")).toEqual(["Hierarchy", "Unique modules"]);
    expect(all(".mkg-color-by option").map(element => (element as HTMLOptionElement).value)).toEqual([
      "none",
      "params",
      "occurrences"
    ]);
    store.set("overlay", { fc: 1 });
    expect(texts(".mkg-color-by option")).toEqual(["none", "Parameters", "Occurrences", "Overlay"]);
    const select = one<HTMLSelectElement>(".mkg-color-by select");
    select.value = "overlay";
    select.dispatchEvent(new Event("change"));
    expect(store.get("colorBy")).toBe("overlay");
    store.set("view", "deduplicated");
    expect(one<HTMLSelectElement>(".mkg-view select").value).toBe("deduplicated");
  });

  it("searches while typing and walks through the matches", async () => {
    const store = storeOf();
    mount(Toolbar, smallNet(), store);
    input().value = "relu";
    input().dispatchEvent(new Event("input", { bubbles: true }));
    expect(store.get("query")).toBe("");
    press(input(), "Enter");
    expect(store.get("query")).toBe("relu");
    expect(store.get("selected")).toBe("layer1.0.relu");
    press(input(), "Enter");
    expect(store.get("selected")).toBe("layer1.1.relu");
    expect(store.get("shown").get(4)).toBe(7);
    expect(one(".mkg-search-count").textContent).toBe("2 of 4");
    press(input(), "Enter", { shiftKey: true });
    press(input(), "Enter", { shiftKey: true });
    expect(store.get("selected")).toBe("layer1.3.relu");
    press(input(), "Escape");
    expect([store.get("query"), input().value]).toEqual(["", ""]);
  });

  it("says what it does not understand, and follows the kernel", async () => {
    const store = storeOf();
    mount(Toolbar, smallNet(), store);
    await type("params>lots");
    expect(one(".mkg-search-count").textContent).toContain("Write a number");
    expect(() => press(input(), "Enter")).not.toThrow();
    store.set("query", "type:Linear");
    expect(input().value).toBe("type:Linear");
    expect(one(".mkg-search-count").textContent).toBe("1 match");
  });

  it("closes its menu when Tab leads out of it, and by Escape", async () => {
    mount(Toolbar, smallNet(), storeOf());
    const [opener, group] = [one(".mkg-more-opener"), one(".mkg-buttons")];
    const after = document.body.appendChild(document.createElement("button"));
    const tab = async (from: HTMLElement, to: HTMLElement) => {
      press(from, "Tab");
      to.focus();
      await new Promise(resolve => setTimeout(resolve));
      return opener.getAttribute("aria-expanded");
    };
    opener.focus();
    opener.click();
    expect(opener.getAttribute("aria-controls")).toBe(group.id);
    expect(await tab(opener, one(".mkg-expand-all"))).toBe("true");
    expect(await tab(one(".mkg-help"), after)).toBe("false");
    expect(group.classList.contains("mkg-is-open")).toBe(false);
    opener.click();
    one(".mkg-fit").focus();
    press(one(".mkg-fit"), "Escape");
    expect([opener.getAttribute("aria-expanded"), document.activeElement]).toEqual(["false", opener]);
    after.remove();
  });

  it("tells at the choice of views what each shows", () => {
    mount(Toolbar, smallNet(), storeOf());
    const lines = one<HTMLSelectElement>(".mkg-view select").title.split("\n");
    expect(lines.map(line => line.split(": ")[0])).toEqual(["Hierarchy", "Unique modules"]);
    expect(lines[1]).toContain("Each structure once");
  });

  it("has a shortcut and buttons", () => {
    const store = storeOf();
    mount(Toolbar, smallNet(), store);
    press(host, "/");
    expect(document.activeElement).toBe(input());
    const fit = vi.fn();
    document.body.addEventListener("mkg-fit", fit, { once: true });
    one(".mkg-fit").click();
    expect(fit).toHaveBeenCalledOnce();
    one(".mkg-expand-all").click();
    expect(store.get("expanded")).toContain("layer1");
    one(".mkg-collapse-all").click();
    expect(store.get("expanded")).toEqual([]);
  });
});

describe("names in the details", () => {
  it("break after a dot or an underscore, and within no word", () => {
    const h = hierarchyOf({ inside: [{ name: "encoder_with_a_name", inside: [{ name: "self_attn" }] }] });
    mount(ModulePanel, h, storeOf({ selected: "encoder_with_a_name.self_attn" }));
    const pieces = (selector: string) => one(selector).innerHTML.split("<wbr>");
    expect(pieces(".mkg-panel-class")).toEqual(["self_", "attn"]);
    expect(pieces(".mkg-path")).toEqual(["encoder_", "with_", "a_", "name.", "self_", "attn"]);
  });
});

describe("a name", () => {
  it("is broken behind dots, slashes and underscores alone, and numbers are not", () => {
    const parts = (name: string) => [...breakable("", name).childNodes].map(({ textContent }) => textContent);
    expect(parts("up.0.up.weight")).toEqual(["up.", "", "0.", "", "up.", "", "weight"]);
    expect(parts("in_proj/_x..y")).toEqual(["in_", "", "proj/_", "", "x..", "", "y"]);
    expect(parts("0.25 of conv.0.weight")).toEqual(["0.25 of conv.", "", "0.", "", "weight"]);
    expect(breakable("mkg-name", "a.b").outerHTML).toBe('<bdi class="mkg-name">a.<wbr>b</bdi>');
  });
});

describe("legend", () => {
  it.each([
    ["bytes", "Memory"],
    ["output_bytes", "Output size"],
    ["mine", "mine of the user"]
  ])("calls %s %s", (column, title) => {
    const h = smallNet();
    Object.assign(h.payload.column_info, {
      bytes: { label: "bytes", aggregate: "sum" },
      output_bytes: { label: "bytes of outputs", aggregate: "own" },
      mine: { label: "mine of the user", aggregate: "own" }
    });
    expect(titleOf(h, column)).toBe(title);
  });

  it("names scale, ends, aggregation and what is missing", () => {
    const store = storeOf();
    mount(Legend, smallNet(), store);
    expect(host.hidden).toBe(true);
    store.set("colorBy", "params");
    expect(host.hidden).toBe(false);
    expect(one(".mkg-legend-title").textContent).toBe("Parameters Log color scale");
    expect(texts(".mkg-legend-end")).toEqual(["0", "1.00 M"]);
    expect(one("div.mkg-legend-note").textContent).toBe("Containers show the sum of their children");
    expect(all(".mkg-legend-ramp rect").length).toBeGreaterThan(20);
    store.set("overlay", { fc: 1, bn1: "NaN" });
    store.set("colorBy", "overlay");
    expect(texts(".mkg-legend-key")).toEqual(["No value: 9 modules", "NaN or infinite: 1 module"]);
    expect(texts(".mkg-legend-end")).toEqual(["1"]);
  });
});

describe("breadcrumb", () => {
  it("leads to every ancestor", () => {
    const store = storeOf({ selected: "layer1.2.conv" });
    mount(Breadcrumb, smallNet(), store);
    expect(texts(".mkg-crumb")).toEqual(["Net", "layer1", "2", "conv"]);
    expect(all("[data-mkg-path]").map(element => element.dataset.mkgPath)).toEqual([
      "",
      "layer1",
      "layer1.2",
      "layer1.2.conv"
    ]);
    all(".mkg-crumb")[1].click();
    expect(store.get("selected")).toBe("layer1");
    all(".mkg-crumb")[0].click();
    expect(store.get("selected")).toBe("");
  });

  it("folds deep paths in the middle", () => {
    const h = deepNet(1_000);
    mount(Breadcrumb, h, storeOf({ selected: h.path(999) }));
    expect(all(".mkg-crumb")).toHaveLength(7);
    expect(one(".mkg-crumb-more").title).toBe("994 more levels");
    one(".mkg-crumb-more").click();
    expect(all(".mkg-crumb")).toHaveLength(57);
  });

  it("says what the canvas shows the inside of", () => {
    const store = storeOf({ focus: 3 });
    mount(Breadcrumb, smallNet(), store);
    expect(one(".mkg-inside").textContent).toBe("Focus: layer1");
    one(".mkg-show-all").click();
    expect(store.get("focus")).toBe(0);
    expect(all(".mkg-inside")).toHaveLength(0);
  });
});

describe("strip", () => {
  it("shows the instances around the selection and selects one exactly", () => {
    const store = storeOf();
    mount(InstanceStrip, smallNet(), store);
    expect(host.hidden).toBe(true);
    store.set("selected", "layer1.1.conv");
    expect(host.hidden).toBe(false);
    expect(texts(".mkg-instance")).toEqual(["0", "1", "2", "3"]);
    expect(texts("[aria-current]")).toEqual(["1"]);
    all(".mkg-instance")[3].click();
    expect(store.get("selected")).toBe("layer1.3");
    expect(store.get("shown").get(4)).toBe(13);
    all(".mkg-instance")[3].focus();
    press(all(".mkg-instance")[3], "ArrowLeft");
    expect(store.get("selected")).toBe("layer1.2");
    expect(document.activeElement).toBe(all(".mkg-instance")[2]);
  });

  it("unfolds and folds", () => {
    const store = storeOf({ selected: "layer1.2" });
    mount(InstanceStrip, smallNet(), store);
    one(".mkg-unfold").click();
    expect([...store.get("unfolded")]).toEqual([4]);
    one(".mkg-unfold").click();
    expect([...store.get("unfolded")]).toEqual([]);
    expect(store.get("shown").get(4)).toBe(10);
  });

  it("pages through long folds and refuses to unfold them", () => {
    const wide = wideNet(1_000);
    const h = new Hierarchy({ ...wide.payload, folds: [[1, 1_000, "family", "n 0…999"]] });
    const store = storeOf({ selected: "250" });
    mount(InstanceStrip, h, store);
    expect(all(".mkg-instance")).toHaveLength(PAGE);
    expect(texts("[aria-current]")).toEqual(["250"]);
    one(".mkg-next").click();
    expect(texts(".mkg-instance")[0]).toBe("400");
    const number = one<HTMLInputElement>(".mkg-strip-number");
    number.value = "1000";
    number.dispatchEvent(new Event("change", { bubbles: true }));
    expect(store.get("selected")).toBe("999");
    expect(one<HTMLButtonElement>(".mkg-next").disabled).toBe(true);
    one(".mkg-unfold").click();
    expect(store.get("unfolded").size).toBe(0);
    expect(store.get("notice")).toContain("more than 500");
  });
});

describe("status line", () => {
  it("tells of a lost kernel and of notices", () => {
    const store = storeOf({ notice: "150 nodes are shown" });
    mount(StatusLine, smallNet(), store);
    expect(host.getAttribute("role")).toBe("status");
    expect(one(".mkg-status-text").textContent).toBe("150 nodes are shown");
    store.set("connected", false);
    expect(one(".mkg-status-text").textContent).toBe(`${DISCONNECTED} · 150 nodes are shown`);
    one(".mkg-close").click();
    expect(store.get("notice")).toBe("");
    store.set("connected", true);
    expect(one(".mkg-status-text").textContent).toBe("");
  });
});

it.each([Breadcrumb, Legend, ModulePanel, StatusLine, InstanceStrip, Toolbar])(
  "%o shows hostile texts verbatim",
  Panel => {
    const names = hostileTexts();
    const base = hostileNet(names);
    const labels = Object.fromEntries(names.map(name => [name, { label: name, aggregate: "sum" as const }]));
    const columns = Object.fromEntries(names.map(name => [name, base.payload.nodes.name.map(() => 1)]));
    const h = hostileNet(names);
    Object.assign(h.payload, {
      title: names[0],
      columns,
      column_info: labels,
      folds: [],
      links: names.map((name, i) => [0, name, 1 + 2 * i, "shared"])
    });
    const store = storeOf();
    mount(Panel, h, store);
    for (const name of names) {
      store.set("notice", name);
      store.set("query", name);
      store.set("colorBy", name);
      store.set("selected", h.path(h.find(name) as number));
      const shown = [host.textContent, ...all("input").map(field => (field as HTMLInputElement).value)].join(" ");
      const expected = Panel === InstanceStrip ? "" : name;
      expect(shown).toContain(expected);
      expect(foreignParts(document)).toEqual([]);
    }
    expect("__xss" in globalThis).toBe(false);
  }
);
