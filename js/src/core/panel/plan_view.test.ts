// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { savedPlan } from "../../testing/saved";
import { ranges, ROWS, showPlan } from "./plan_view";
import { readSavedFile } from "../shared/payload/saved_file";
import { UNTRANSLATED } from "../shared/payload/file_problem";

function shown(plan: unknown): HTMLElement {
  const file = readSavedFile(JSON.stringify(plan));
  const host = document.createElement("div");
  if (file.kind === "plan") {
    showPlan(host, file.plan, UNTRANSLATED);
  }
  return host;
}

const texts = (host: HTMLElement, selector: string) =>
  Array.from(host.querySelectorAll(selector), element => element.textContent);

describe("the view of a plan", () => {
  it("says what the plan saves", () => {
    expect(texts(shown(savedPlan()), "dd")).toEqual([
      "1.00 k → 750 (−25.0 %)",
      "2.00 M → 1.50 M (−25.0 %)",
      "1.00 M → 750 k (−25.0 %)",
      "1 of 2 channel groups; tensors: 1"
    ]);
  });

  it("has a row for each axis", () => {
    const rows = shown(savedPlan()).querySelectorAll("section:first-of-type tbody tr");
    expect(Array.from(rows, row => Array.from(row.children, cell => cell.textContent))).toEqual([
      ["conv1.weight[0]", "8", "4", "0–2, 5", "conv1.weight[0], bn1.weight[0], fc.weight[1] and 1 more"],
      ["fc.weight[0]", "10", "10", "–", "fc.weight[0]"]
    ]);
  });

  it("lists corrections and attributes", () => {
    const host = shown(savedPlan());
    expect(texts(host, "caption")).toEqual([
      "Channel groups (2)",
      "Corrections of the dry run (1)",
      "Sizes stored in modules (2)"
    ]);
    expect(texts(host, "section:last-of-type tbody tr")).toEqual([
      "conv1.out_channels84",
      "norm.normalized_shape(8)(4)"
    ]);
    expect(host.querySelectorAll("thead th[scope=col]")).toHaveLength(11);
  });

  it("shows hostile texts verbatim and makes no element of them", () => {
    const plan = savedPlan();
    const text = '<img src=x onerror="alert(1)"><script>1</script>';
    plan.axes[0].name = plan.changes[0].what = text;
    const host = shown(plan);
    expect(host.querySelectorAll("img, script")).toHaveLength(0);
    expect(texts(host, ".mkg-plan-axis")[0]).toBe(text);
  });

  it("draws many axes part by part", () => {
    const plan = savedPlan();
    plan.axes = Array.from({ length: ROWS + 20 }, (_, i) => ({ ...plan.axes[1], name: `axis ${i}` }));
    const host = shown(plan);
    const count = () => host.querySelectorAll("section:first-of-type tbody tr").length;
    expect(count()).toBe(ROWS);
    host.querySelector<HTMLButtonElement>(".mkg-plan-more")?.click();
    expect(count()).toBe(ROWS + 20);
    expect(host.querySelector(".mkg-plan-more")).toBeNull();
  });

  it("takes a second plan in the place of the first", () => {
    const host = shown(savedPlan());
    const file = readSavedFile(JSON.stringify({ ...savedPlan(), axes: [] }));
    if (file.kind === "plan") showPlan(host, file.plan, UNTRANSLATED);
    expect(texts(host, "caption")[0]).toBe("Channel groups (0)");
  });
});

describe("ranges", () => {
  it.each([
    [[], ""],
    [[4], "4"],
    [[4, 5], "4, 5"],
    [[0, 1, 2, 9], "0–2, 9"],
    [Array.from({ length: 40 }, (_, i) => 2 * i), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, …"]
  ])("of %j", (numbers, text) => {
    expect(ranges(numbers)).toBe(text);
  });
});
