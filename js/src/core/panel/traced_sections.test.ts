import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { golden } from "../../testing/payloads";
import { foreignParts, hostileTexts, settle, storeOf } from "../../testing/sample";
import { Hierarchy } from "../shared/model/hierarchy";
import type { ModelPayload } from "../shared/payload/payload";
import { ModulePanel } from "./module_panel";
import type { GraphState, GraphStore } from "../shared/model/graph_store";
import { shortNumber } from "../shared/base/format";
import { Toolbar } from "../graph/parts/toolbar";
import { TraceNotice } from "../graph/parts/notices";
import { TreeView } from "../tree/tree_view";

let host: HTMLElement;
let mounted: { dispose(): void } | undefined;

beforeEach(() => {
  host = document.createElement("div");
  document.body.append(host);
});

afterEach(() => {
  mounted?.dispose();
  mounted = undefined;
  expect(host.textContent).toBe("");
  host.remove();
});

const all = <T extends HTMLElement = HTMLElement>(selector: string) => Array.from(host.querySelectorAll<T>(selector));
const facts = () => Object.fromEntries(all("dt").map(term => [term.textContent, term.nextElementSibling?.textContent]));
const cells = (selector: string) =>
  all(`${selector} tbody tr`).map(row => Array.from(row.children, cell => cell.textContent));

function show(change: (payload: ModelPayload) => void = () => {}, state: Partial<GraphState> = {}): GraphStore {
  const store = storeOf(state);
  mounted = new ModulePanel(host, new Hierarchy(golden("traced", change)), store);
  return store;
}

const axis = (name: string) => all("button").find(button => button.dataset.mkgAxis === name);

describe("what went in and out of a module", () => {
  it("is a table of shapes and types", () => {
    show(undefined, { selected: "left" });
    expect(cells(".mkg-traffic")).toEqual([
      ["input", "2×3 float32"],
      ["output", "2×4 float32"]
    ]);
    expect(facts()).toMatchObject({ FLOPs: "48", "Output size": "32 B" });
  });

  it("is one table for calls of the same shapes, and one for each other kind", () => {
    const store = show(undefined, { selected: "act" });
    expect(all(".mkg-traffic")).toHaveLength(1);
    expect(host.textContent).toContain("Input and output of 2 calls");
    mounted?.dispose();
    const wider = (payload: ModelPayload) => {
      const flow = payload.flow;
      const last = flow?.calls.node.lastIndexOf(3) ?? 0;
      flow?.shapes.push([7, 7]);
      flow?.calls.outputs[last].forEach(value => (flow.values.shape[value] = flow.shapes.length - 1));
    };
    mounted = new ModulePanel(host, new Hierarchy(golden("traced", wider)), store);
    expect(all(".mkg-traffic")).toHaveLength(2);
    expect(host.textContent).toContain("call 2");
    expect(host.textContent).toContain("7×7");
  });

  it("says that a module was not called", () => {
    show(undefined, { selected: "spare" });
    expect(facts().FLOPs).toBe("none: not called in this forward pass");
    expect(host.textContent).toContain("not called in this forward pass");
    expect(all(".mkg-traffic")).toEqual([]);
  });

  it("gives the sum of its children for a list whose children are called one by one", () => {
    show(payload => void (payload.columns.flops[0] = null), { selected: "" });
    const { flops } = golden("traced").columns;
    const children = new Hierarchy(golden("traced")).children(0);
    const sum = children.reduce((all, child) => all + Number(flops[child] ?? 0), 0);
    expect(facts().FLOPs).toBe(`${shortNumber(sum)} (sum of children)`);
    expect(all("dt").find(({ textContent }) => textContent === "FLOPs")?.title).toContain("one by one");
  });

  it("lists operators without a formula, and gives no zero for them", () => {
    const unknown = (known: number | null) => (payload: ModelPayload) => {
      const flow = payload.flow;
      flow?.steps.name.forEach((name, step) => {
        if (flow.names[name] === "aten::convolution") flow.steps.flops[step] = null;
      });
      payload.columns.flops[7] = null;
      payload.columns.flops[5] = known;
    };
    const store = show(unknown(48), { selected: "blocks.0.conv" });
    expect(facts()).toMatchObject({ "FLOPs unknown": "aten::convolution" });
    expect(facts().FLOPs).toBeUndefined();
    store.set("selected", "blocks");
    expect(facts()).toMatchObject({ "FLOPs, known": "48", "FLOPs unknown": "aten::convolution ×3" });
  });

  it("shows the operator that was clicked, for as long as its module is selected", () => {
    const { flow } = golden("traced");
    const step = flow?.steps.name.findIndex(name => flow.names[name] === "aten::cat") ?? -1;
    const store = show(undefined, { selected: "", operators: [step] });
    expect(all(".mkg-operator")[0].dataset.mkgOperator).toBe("aten::cat");
    expect(cells(".mkg-operator .mkg-traffic")).toEqual([
      ["input", "2×4 float32"],
      ["input", "2×4 float32"],
      ["output", "2×8 float32"]
    ]);
    store.set("selected", "left");
    expect(all(".mkg-operator")).toEqual([]);
  });

  it("lists a group that was clicked with all of its operators, and none of them as if it were the group", () => {
    const { flow } = golden("traced");
    const own = (flow?.steps.call ?? []).flatMap((call, step) => (call === 0 ? [step] : []));
    show(undefined, { selected: "", operators: own });
    const [section, ...others] = all(".mkg-operator");
    expect(others).toEqual([]);
    expect(section.querySelector("h4")?.textContent).toBe(`${own.length} operators`);
    expect(section.dataset).toMatchObject({ mkgOperators: String(own.length) });
    expect(section.dataset.mkgOperator).toBeUndefined();
    const listed = [...section.querySelectorAll(".mkg-operators-row bdi:first-child")].map(row => row.textContent);
    expect(listed).toContain("cat");
    expect(section.querySelector(".mkg-operators-line")?.textContent).toContain("file.py");
    expect(section.querySelector<HTMLElement>(".mkg-operators-row")?.title).toContain(" → ");
  });
});

describe("axes in the panel", () => {
  it("write every dimension of a module's tensors", () => {
    show(undefined, { selected: "head" });
    const lines = all(".mkg-expression").map(line => Array.from(line.children, dim => dim.textContent));
    expect(lines).toEqual([["head.out=2", "(2 left.out=4)"], ["out=2"]]);
    expect(all(".mkg-axis-tensor-head")[0].textContent).toContain("2×8");
  });

  it("are chosen and let go by a click", () => {
    const store = show(undefined, { selected: "left" });
    axis("left.out")?.click();
    expect(store.get("axis")).toBe("left.out");
    expect(all(".mkg-axis-chip[aria-pressed=true]").map(chip => chip.dataset.mkgAxis)).toEqual([
      "left.out",
      "left.out"
    ]);
    const card = all(".mkg-active-axis")[0];
    expect(card.textContent).toContain("5 tensors");
    expect(card.textContent).toContain("Fixed");
    expect(all(".mkg-members .mkg-link").map(link => link.textContent)).toContain("head.weight");
    all(".mkg-active-axis .mkg-close")[0].click();
    expect(store.get("axis")).toBeNull();
    expect(all(".mkg-active-axis")).toEqual([]);
  });

  it("lead to their members", () => {
    const store = show(undefined, { selected: "left", axis: "left.out" });
    all(".mkg-members .mkg-link")
      .find(link => link.textContent === "head.weight")
      ?.click();
    expect(store.get("selected")).toBe("head");
    expect(store.get("axis")).toBe("left.out");
  });

  const withMembers = (count: number) => (payload: ModelPayload) => {
    const { flow, axes } = payload;
    const [tensors, dims] = [flow?.tensors, axes?.dims];
    const head = tensors?.attributes.indexOf("weight") ?? 0;
    for (let more = 5; more < count; more++) {
      tensors?.node.push(tensors.node[0]);
      tensors?.name.push(head);
      dims?.push(dims[0]);
    }
  };
  const links = () => all(".mkg-members .mkg-link").length;
  const more = () => all<HTMLButtonElement>(".mkg-members-more")[0];

  it("say what the tensors are to the group, and what carries it", () => {
    const store = show(undefined, { axis: "left.out" });
    const legend = () => all(".mkg-axis-roles li").map(line => line.textContent);
    expect(legend()).toEqual([
      "4 tensors: output channels",
      "1 tensor: input channels",
      "Carried by ReLU, cat, Dropout, Conv2d, add (no parameters of the group)"
    ]);
    expect(all(".mkg-members li").map(line => line.textContent)).toContain("head.weight dim 1 · input");
    store.set("axis", "blocks.0.conv.kernel_h"); // no value runs along it
    expect(legend()).toEqual([]);
    expect(all(".mkg-members li").map(line => line.textContent)).toEqual(["blocks.0.conv.weight dim 2"]);
    mounted?.dispose();
    show(payload => payload.axes?.frozen.fill(-1), { axis: "left.out" });
    expect(legend()[0]).toBe("4 tensors: output channels, removed");
    expect(legend()[1]).toBe("1 tensor: input channels, follow");
  });

  it("show few of many members and say how many more there are, which a click lists and hides again", () => {
    const store = show(withMembers(18), { axis: "left.out" });
    expect(all(".mkg-active-axis")[0].textContent).toContain("18 tensors");
    expect([links(), more().textContent]).toEqual([5, "+13 more"]);
    expect(more().getAttribute("aria-expanded")).toBe("false");
    expect(more().getAttribute("aria-label")).toBe("Show 13 more tensors");
    more().click();
    expect([links(), more().textContent, more().getAttribute("aria-expanded")]).toEqual([18, "fewer", "true"]);
    expect(document.activeElement).toBe(more());
    all(".mkg-members .mkg-link")[12].click(); // they stay listed while one goes through them
    expect([store.get("selected"), links()]).toEqual(["left", 18]);
    more().click();
    expect(links()).toBe(5);
  });

  it("show all members where there are few, and say of very many how many are not listed", () => {
    show(withMembers(6), { axis: "left.out" });
    expect([links(), more()]).toEqual([6, undefined]);
    mounted?.dispose();
    show(withMembers(230), { axis: "left.out" });
    expect(more().textContent).toBe("+225 more");
    more().click();
    expect(links()).toBe(200);
    expect(all(".mkg-members > li").at(-1)?.textContent).toBe("and 30 more");
  });

  it("are listed for the whole model when nothing is selected, with the reason of the frozen ones", () => {
    const store = show();
    const free = (payload: ModelPayload) => void payload.axes?.frozen.fill(-1, 0, 1);
    const [fold] = all(".mkg-folded") as HTMLDetailsElement[];
    expect(all(".mkg-axes")).toEqual([]); // made when it is unfolded
    fold.open = true;
    fold.dispatchEvent(new Event("toggle"));
    expect(all(".mkg-axes > li").length).toBe(golden("traced").axes?.name.length);
    expect(host.textContent).toContain("model input x");
    mounted?.dispose();
    mounted = new ModulePanel(host, new Hierarchy(golden("traced", free)), store);
    expect(all(".mkg-axes")[0].textContent).toContain("left.out45 tensors");
  });

  it("keep the focus when they are chosen", () => {
    const store = show(undefined, { selected: "left" });
    const chip = () => all(".mkg-axis-chip").find(each => each.dataset.mkgAxis === "left.out");
    chip()?.focus();
    chip()?.click();
    expect(store.get("axis")).toBe("left.out");
    expect(document.activeElement).toBe(chip());
  });

  it("stay unfolded where one of them is chosen", () => {
    const store = show();
    const folds = () => all(".mkg-folded") as HTMLDetailsElement[];
    expect(folds().map(({ open }) => open)).toEqual([false]);
    store.set("axis", "left.out");
    expect(folds().map(({ open }) => open)).toEqual([true]);
    expect(all(".mkg-axes [aria-pressed=true]").map(line => line.dataset.mkgAxis)).toEqual(["left.out"]);
  });

  it("are not there without a trace that came to its end", () => {
    mounted = new ModulePanel(host, new Hierarchy(golden("stopped")), storeOf({ selected: "first", axis: "x" }));
    expect(all("[data-mkg-axis], .mkg-active-axis")).toEqual([]);
    expect(cells(".mkg-traffic")).toHaveLength(2);
  });

  it("light up their modules in the tree, and what hides them", async () => {
    const store = storeOf({ axis: "blocks.0.conv.kernel_h" });
    mounted = new TreeView(host, new Hierarchy(golden("traced")), store);
    const marked = (name: string) => all(`.${name}`).map(row => row.dataset.mkgPath);
    expect(marked("mkg-holds-axis")).toEqual(["blocks"]);
    store.set("axis", "left.out");
    await settle();
    expect(marked("mkg-is-on-axis")).toEqual(["left", "right", "act", "drop", "head"]); // also what has no tensors
    expect(marked("mkg-holds-axis")).toEqual(["blocks"]);
    store.set("axis", null);
    await settle();
    expect(marked("mkg-is-on-axis")).toEqual([]);
  });
});

describe("hostile texts of a forward pass", () => {
  it("stay text", () => {
    const texts = hostileTexts();
    const at = (i: number) => texts[i % texts.length];
    const hostile = (payload: ModelPayload) => {
      const { flow, axes } = payload;
      if (!flow || !axes) return;
      flow.names = flow.names.map((_, i) => at(i));
      flow.dtypes = flow.dtypes.map((_, i) => at(i));
      flow.sources = flow.sources.map((_, i) => at(i));
      flow.tensors.attributes = flow.tensors.attributes.map((_, i) => at(i));
      flow.inputs = flow.inputs.map(([, value], i) => [at(i), value]);
      axes.name = axes.name.map((_, i) => `${i}${at(i)}`);
      axes.label = axes.label.map((_, i) => at(i));
      axes.role = axes.role.map((_, i) => at(i));
      axes.reasons = axes.reasons.map((_, i) => at(i));
      flow.steps.flops = flow.steps.flops.map(() => null);
      payload.error = texts.join(" ");
    };
    const payload = golden("traced", hostile);
    const store = show(hostile, { selected: "", operators: [6], axis: payload.axes?.name[0] ?? null });
    for (const path of ["", "left", "head", "act"]) {
      store.set("selected", path);
      expect(foreignParts(host)).toEqual([]);
    }
    mounted?.dispose();
    mounted = new TraceNotice(host, new Hierarchy(payload));
    expect(host.textContent).toContain(texts[0]);
    expect(foreignParts(host)).toEqual([]);
  });
});

describe("the notice of a forward pass that failed", () => {
  it("says why, as an alert, until it is dismissed", () => {
    mounted = new TraceNotice(host, new Hierarchy(golden("stopped")));
    expect(host.getAttribute("role")).toBe("alert");
    expect(host.textContent).toContain("stopped in 'second.1'");
    expect(host.textContent).toContain("up to there");
    all("button")[0].click();
    expect(host.hidden).toBe(true);
  });

  it("tells when nothing ran at all", () => {
    const nothing = golden("stopped", payload => Object.assign(payload, { flow: null, traced: false, edges: [] }));
    mounted = new TraceNotice(host, new Hierarchy(nothing));
    expect(host.textContent).toContain("Only the structure is shown.");
  });

  it("is not there otherwise", () => {
    mounted = new TraceNotice(host, new Hierarchy(golden("traced")));
    expect(host.hidden).toBe(true);
    expect(host.textContent).toBe("");
  });
});

describe("the views of a traced model", () => {
  const offered = (name: string) => {
    mounted = new Toolbar(host, new Hierarchy(golden(name)), storeOf());
    return all(".mkg-view option").map(option => (option as HTMLOptionElement).value);
  };

  it("are offered", () => expect(offered("traced")).toEqual(["hierarchy", "dataflow", "operators", "deduplicated"]));
  it("are offered for what ran of a forward pass", () => expect(offered("stopped")).toContain("operators"));
  it("are not offered otherwise", () => expect(offered("folded")).toEqual(["hierarchy", "deduplicated"]));

  it("come with columns to color by", () => {
    mounted = new Toolbar(host, new Hierarchy(golden("traced")), storeOf());
    const columns = all(".mkg-color-by option").map(option => (option as HTMLOptionElement).value);
    expect(columns).toEqual(expect.arrayContaining(["flops", "bytes", "output_bytes"]));
  });
});
