import { afterEach, describe, expect, it } from "vitest";
import { mount, unmount } from "../../testing/mask_view";
import { confirm, dropped, known, openSession, scoresOf } from "../../testing/masks";
import { press, settle } from "../../testing/sample";

afterEach(unmount);

const OFFERS = { sensitivity: true, recalibrate: true, evaluate: true, batches: 4 };
const RISES = [
  { name: "conv1.weight[0]", scores: [0.5, 0.25, -0.125, 0.125] },
  { name: "conv2.weight[0]", scores: [1, 1, 1, 1, 1, 1, 2, 1, 1, 1] },
  { name: "fc.weight[0]", scores: [NaN, NaN, NaN] }
];
const HOSTILE = "<img src=x onerror=alert(1)>";

/** An editor whose kernel has data of the user. */
async function shown(offers: unknown = OFFERS, increases: readonly (typeof RISES)[number][] | null = RISES) {
  const prepare = (session: ReturnType<typeof openSession>["session"]) => {
    session.setCosts(offers, {}, {});
    if (increases) session.setIncreases(scoresOf(increases, 8));
  };
  const view = mount(undefined, {}, {}, prepare);
  await settle(40);
  return view;
}

const texts = (host: HTMLElement, selector: string) =>
  [...host.querySelectorAll(selector)].map(({ textContent }) => textContent);

describe("without data of the user", () => {
  it("one line says what to pass, and the ratio stands where it always stood", async () => {
    const { host, find } = await shown({}, null);
    expect(find(".mkg-mask-estimate").textContent).toBe(
      "Pass batches= and loss= to MaskEditor to see the loss at each ratio."
    );
    expect(find(".mkg-mask-toolbar .mkg-mask-ratio")).not.toBeNull();
    expect([find(".mkg-mask-trial").hidden, host.querySelector(".mkg-mask-curve")]).toEqual([true, null]);
  });

  it("a file does not ask for what nobody can pass to it, and shows what is known", async () => {
    expect((await shown({}, null)).find(".mkg-mask-estimate").className).toContain("mkg-mask-to-pass");
    unmount();
    expect((await shown()).find(".mkg-mask-estimate").className).not.toContain("mkg-mask-to-pass");
  });
});

describe("the curve", () => {
  it("stands beside the ratio, and says where the draft is and where that comes from", async () => {
    const { find, session } = await shown();
    const curve = find(".mkg-mask-curve");
    expect(find(".mkg-mask-estimate .mkg-mask-ratio").nextElementSibling).toBe(curve);
    expect([curve.hidden, curve.tabIndex, curve.getAttribute("role")]).toEqual([false, 0, "slider"]);
    expect(find(".mkg-mask-curve-line").getAttribute("d")).toMatch(/^M46 .*(L[\d.]+ [\d.]+){90}$/);
    expect(find(".mkg-mask-estimate-text").textContent).toContain(
      "Sum: loss ±0 at 100.0 % of FLOPsSum of single channels on 4 batches; removing them together usually costs more."
    );
    session.begin();
    session.dropRatio(0.5, "local");
    session.commit();
    await settle(40);
    expect(find(".mkg-mask-estimate-figure").textContent).toBe("Sum: loss +5.38 at 19.6 % of FLOPs");
    expect(curve.getAttribute("aria-valuetext")).toBe("ratio 0.5: 19.6 % of FLOPs left, sum of single channels +5.38");
    expect(curve.getAttribute("aria-valuenow")).toBe("0.5");
  });

  it("sets the ratio by a click, as one gesture", async () => {
    const { find, session, channel } = await shown();
    const curve = find(".mkg-mask-curve");
    curve.dispatchEvent(new MouseEvent("click", { bubbles: true, clientX: 253 })); // jsdom places it at 0
    expect(find<HTMLInputElement>(".mkg-mask-ratio-field").value).toBe("0.9");
    expect(dropped(session).map(own => own.length)).toEqual([3, 9, 0]);
    expect(channel.types()).toEqual(["draw"]);
    session.step("undo");
    expect(dropped(session)).toEqual([[], [], []]);
  });

  it("tells values under the pointer", async () => {
    const { find } = await shown();
    const curve = find(".mkg-mask-curve");
    curve.dispatchEvent(new MouseEvent("pointermove", { bubbles: true, clientX: 40 }));
    expect(find(".mkg-mask-tip").textContent).toBe("ratio 0: 100.0 % of FLOPs left, sum of single channels ±0");
    expect(find(".mkg-mask-tip").hidden).toBe(false);
    curve.dispatchEvent(new MouseEvent("pointerleave"));
    expect(find(".mkg-mask-tip").hidden).toBe(true);
  });

  it("is walked on with keys", async () => {
    const { find, session } = await shown();
    const curve = find(".mkg-mask-curve");
    const ratio = () => find<HTMLInputElement>(".mkg-mask-ratio-field").value;
    const seen = ["PageUp", "ArrowRight", "ArrowUp", "ArrowLeft", "End", "ArrowRight", "Home", "ArrowDown"].map(key => {
      press(curve, key);
      return ratio();
    });
    expect(seen).toEqual(["0.1", "0.11", "0.12", "0.11", "0.9", "0.9", "0", "0"]);
    expect(dropped(session)).toEqual([[], [], []]);
    const space = new KeyboardEvent("keydown", { key: " ", cancelable: true });
    curve.dispatchEvent(space);
    expect([space.defaultPrevented, ratio()]).toEqual([true, "0"]); // the page does not scroll
  });

  it("is drawn anew by another importance, and goes with its numbers", async () => {
    const { find, session } = await shown();
    const before = find(".mkg-mask-curve-line").getAttribute("d");
    session.setScores(scoresOf(RISES, 8), true);
    await settle(40);
    expect(find(".mkg-mask-curve-line").getAttribute("d")).not.toBe(before);
    session.setIncreases(new DataView(new ArrayBuffer(0)));
    await settle(40);
    expect(find(".mkg-mask-curve").hidden).toBe(true);
    expect(find(".mkg-mask-estimate-source").textContent).toContain("not computed");
  });

  it("is computed by a button, with its progress and a way to end it", async () => {
    const { find, session, channel, store } = await shown(OFFERS, null);
    const [compute, cancel] = [".mkg-mask-sense", ".mkg-mask-sense-cancel"].map(name => find<HTMLButtonElement>(name));
    expect([compute.textContent, compute.hidden, cancel.hidden]).toEqual(["Compute", false, true]);
    compute.focus();
    compute.click();
    session.setCosts(OFFERS, { done: 5, total: 40 }, {});
    await settle(40);
    expect([compute.hidden, cancel.hidden, document.activeElement === cancel]).toEqual([true, false, true]);
    expect(find(".mkg-mask-estimate-figure").textContent).toBe("Sensitivity: 5 of 40");
    const bar = find<HTMLProgressElement>(".mkg-mask-sense-progress");
    expect([bar.hidden, bar.value, bar.max]).toEqual([false, 5, 40]);
    cancel.click();
    expect(channel.types()).toEqual(["sense", "cancel"]);
    session.setCosts(OFFERS, {}, {});
    session.setIncreases(scoresOf(RISES, 8));
    await settle(40);
    expect([compute.textContent, compute.hidden, cancel.hidden]).toEqual(["Measure", false, true]);
    expect(document.activeElement).toBe(compute);
    session.setCosts(OFFERS, { done: 5, total: 40 }, {});
    store.set("connected", false); // a saved notebook may say that it is being computed
    await settle(40);
    expect([compute.hidden, compute.disabled, cancel.hidden]).toEqual([false, true, true]);
  });
});

describe("the measured loss", () => {
  const figure = (find: (selector: string) => HTMLElement) => find(".mkg-mask-estimate-figure").textContent;

  it("takes the place of the sum, as a change of the loss of the whole model", async () => {
    const { find, session, store } = await shown();
    session.setMeasured({ base: 0.037, revision: 0, loss: 0.037 });
    await settle(40);
    expect(figure(find)).toBe("Measured: loss 0.037 → 0.037 (±0) at 100.0 % of FLOPs");
    expect(find(".mkg-mask-estimate-source").textContent).toContain("together usually costs more");
    session.begin();
    session.dropRatio(0.5, "local");
    session.commit();
    await settle(40);
    expect(figure(find)).toBe("Measured: loss 0.037 → … at 19.6 % of FLOPs"); // no sum in its place
    session.setDraft({ ...session.drawing(), revision: 1, by: "other" });
    session.setMeasured({ base: 0.037, revision: 1, loss: 3.537 });
    await settle(40);
    expect(figure(find)).toBe("Measured: loss 0.037 → 3.54 (+3.5) at 19.6 % of FLOPs");
    expect(find(".mkg-mask-curve").getAttribute("aria-valuetext")).toContain("measured loss +3.5");
    session.setDraft({ ...known(2, { 0: [1] }), by: "other" });
    store.set("stage", "masked"); // then other weights than those of the draft would be measured
    await settle(40);
    expect(figure(find)).toContain("Sum: loss 0.037 → 0.537 (+0.5)");
    expect(find(".mkg-mask-estimate-source").textContent).toContain("Not measured while the model is masked");
  });

  it("of ratios is asked for when the sensitivity is there, and drawn as dots in that ranking alone", async () => {
    const { find, host, session, channel, store } = await shown();
    session.receive({ type: "done", action: "sense", text: "Sensitivity: computed" });
    await settle(40);
    expect(channel.types()).toEqual(["measure"]);
    const { key, points } = channel.sent[0].content as { key: string; points: unknown[] };
    expect(points).toHaveLength(7);
    session.setMeasured({
      base: 1,
      revision: 0,
      loss: 1,
      key,
      points: [
        [0.2, 1.5],
        [0.5, 9],
        [0.8, "NaN"]
      ]
    });
    await settle(40);
    expect(host.querySelectorAll(".mkg-mask-curve-dots circle")).toHaveLength(2);
    expect(find(".mkg-mask-curve-measured").getAttribute("d")).toMatch(/^M46 .*L.*L/);
    expect(find(".mkg-mask-sense").textContent).toBe("Update");
    find(".mkg-mask-curve").dispatchEvent(new MouseEvent("pointermove", { bubbles: true, clientX: 253 }));
    expect(find(".mkg-mask-tip").textContent).not.toContain("measured"); // there none is near
    store.set("scope", "global");
    await settle(40);
    expect([host.querySelectorAll(".mkg-mask-curve-dots circle").length, find(".mkg-mask-sense").textContent]).toEqual([
      0,
      "Measure"
    ]);
    find(".mkg-mask-sense").click();
    expect(channel.types()).toEqual(["measure", "measure"]);
    expect((channel.sent[1].content as { key: string }).key).not.toBe(key);
  });

  it("is on a square-root scale, which is said, with a value in between", async () => {
    const { find, host } = await shown();
    const labels = texts(host, ".mkg-mask-curve-label");
    expect(labels).toContain("loss increase, square-root scale");
    expect(labels.slice(0, 3)).toEqual(["0", expect.stringMatching(/^\+/), expect.stringMatching(/^\+/)]);
    const [middle, most] = labels.slice(1, 3).map(Number);
    expect(middle).toBeCloseTo(most / 4, 1);
    const tops = [...host.querySelectorAll(".mkg-mask-curve-label")]
      .slice(0, 3)
      .map(own => Number(own.getAttribute("y")));
    expect(tops[0] - tops[1]).toBeCloseTo(tops[1] - tops[2], 0);
    expect(find(".mkg-mask-curve")).not.toBeNull();
  });
});

describe("FLOPs", () => {
  it("are said to be of the input that was traced", async () => {
    const { find } = await shown({ ...OFFERS, inputs: ["8×1×8×8", "8"] });
    expect(find("[data-mkg-counter=flops] .mkg-label").textContent).toBe("FLOPs for an input of 8×1×8×8 and 1 more");
    expect(find("[data-mkg-counter=params] .mkg-label").textContent).toBe("Parameters");
  });
});

describe("a row", () => {
  it("says what its axis costs", async () => {
    const { row, session } = await shown();
    const cost = (axis: number) => row(axis).querySelector(".mkg-mask-cost") as HTMLElement;
    expect([cost(0).textContent, cost(1).textContent]).toEqual(["+0.188 per channel", "+1.1 per channel"]);
    session.begin();
    session.paint(0, [0, 2], true);
    session.commit();
    await settle(40);
    expect(cost(0).textContent).toBe("loss +0.375");
    expect(cost(0).title).toBe(
      "Estimated loss increase: +0.375 for 2 channels removed (+0.188 each); removing them together usually costs more. Single channel: +0.188 on average"
    );
    session.setIncreases(new DataView(new ArrayBuffer(0)));
    await settle(40);
    expect(cost(0).hidden).toBe(true);
  });
});

const entry = (state: string, values: unknown[], error = "") => ({ state, values, error });

describe("an evaluation", () => {
  it("is asked for, and stands beside the button with those before it", async () => {
    const { find, host, session, channel } = await shown();
    expect(find(".mkg-mask-trial").contains(find(".mkg-mask-evaluate"))).toBe(true);
    find(".mkg-mask-evaluate").click();
    expect(channel.types()).toEqual(["evaluate"]);
    expect(find(".mkg-status-text").textContent).toContain("evaluate the model");
    expect(find(".mkg-mask-evaluate").getAttribute("aria-disabled")).toBe("true");
    session.setCosts(
      OFFERS,
      {},
      {
        recalibrated: true,
        evaluations: [
          entry("uncut", [["accuracy", 0.968]]),
          entry("cut", [
            ["accuracy", 0.41],
            [HOSTILE, "NaN"]
          ]),
          entry("recalibrated", [["accuracy", 0.8515]])
        ]
      }
    );
    session.receive({ type: "done", action: "evaluate", text: "" });
    expect(texts(host, ".mkg-mask-found-values th")).toEqual(["uncut", "cut", "recalibrated", "accuracy", HOSTILE]);
    expect(texts(host, ".mkg-mask-found-values tr:not(:first-child) td")).toEqual([
      "0.968",
      "0.41",
      "0.852",
      "–",
      "NaN",
      "–"
    ]);
    expect(host.querySelector("img")).toBeNull();
    const status = find(".mkg-mask-trial [role=status]");
    expect(status.textContent).toBe(
      `uncut: accuracy 0.968; cut: accuracy 0.41, ${HOSTILE} NaN; recalibrated: accuracy 0.852`
    );
    session.setCosts(OFFERS, {}, { evaluations: [entry("uncut", [["accuracy", 0.968]])] }); // undone
    expect(texts(host, ".mkg-mask-found-values td:not(:empty)")).toEqual(["0.968"]);
  });

  it("that fails says why, as text", async () => {
    const { find, host, session } = await shown();
    session.setCosts(OFFERS, {}, { evaluations: [entry("uncut", [], `evaluate stopped: ValueError: ${HOSTILE}`)] });
    expect(find(".mkg-mask-failure").textContent).toBe(`uncut: evaluate stopped: ValueError: ${HOSTILE}`);
    expect([host.querySelector("img"), host.querySelector(".mkg-mask-found-values")]).toEqual([null, null]);
  });

  it("may take long: what the kernel has accepted is waited for", async () => {
    const { find, session, channel } = await shown();
    find(".mkg-mask-evaluate").click();
    session.receive({ type: "accepted", action: "evaluate" });
    channel.sent[0].taken?.();
    await settle(1100);
    expect(session.action).toBe("evaluate");
    session.receive({ type: "done", action: "evaluate", text: "" });
    expect(session.action).toBeNull();
  });
});

describe("recalibration", () => {
  it("goes with a cut, or follows one", async () => {
    const { find, session, store, channel } = await shown();
    const check = find<HTMLInputElement>(".mkg-mask-recalibrating");
    const again = find<HTMLButtonElement>(".mkg-mask-recalibrate");
    expect([check.checked, again.hidden]).toEqual([false, true]);
    store.set("recalibrating", true);
    expect(check.checked).toBe(true);
    check.click();
    expect(store.get("recalibrating")).toBe(false);
    store.set("stage", "cut");
    expect(again.hidden).toBe(false);
    again.focus();
    again.click();
    expect(channel.types()).toEqual(["recalibrate"]);
    session.receive({ type: "done", action: "recalibrate", text: "Recalibrated" });
    session.setCosts(OFFERS, {}, { recalibrated: true, evaluations: [] });
    expect([again.hidden, document.activeElement === check]).toEqual([true, true]);
  });

  it("is not offered to a model without running statistics, which is said", async () => {
    const { host, find } = await shown({ ...OFFERS, recalibrate: false, statistics: false });
    expect([host.querySelector(".mkg-mask-recalibrating"), host.querySelector(".mkg-mask-recalibrate")]).toEqual([
      null,
      null
    ]);
    expect(find(".mkg-mask-trial").textContent).toContain("no running statistics");
  });

  it("is in what is asked before a cut", async () => {
    const { find, strip, session, store, channel } = await shown();
    session.begin();
    session.paint(0, [1], true);
    session.commit();
    confirm(session, channel.sent[0], 1);
    await settle(40);
    find(".mkg-mask-cut").click();
    expect(find(".mkg-mask-dialog").textContent).not.toContain("statistics");
    find(".mkg-mask-cancel").click();
    store.set("recalibrating", true);
    find(".mkg-mask-cut").click();
    expect(find(".mkg-mask-dialog").textContent).toContain("Running statistics are then recomputed from the batches.");
    expect(strip(0)).not.toBeNull();
  });
});
