import { afterEach, describe, expect, it } from "vitest";
import { click, mount, unmount } from "../../testing/mask_view";
import { confirm, dropped, maskPayload, THREE } from "../../testing/masks";
import { press, settle } from "../../testing/sample";
import { DISCONNECTED } from "../shared/ui/widget_frame";

afterEach(unmount);

const isDisabled = (element: HTMLElement) => element.matches(":disabled");
const REPORT = {
  revision: 1,
  error: null,
  params: [148, 100],
  flops: [560, 300],
  bytes: [672, 400],
  changes: [{ kind: "tie", text: "index 3 stays with index 2", axes: [1, 0, 99] }],
  kept: [[0, [2]]],
  taken: [[1, [4, 999]]]
};

async function edited() {
  const view = mount();
  click(view.strip(0), 2);
  confirm(view.session, view.channel.sent[0], 1);
  await settle(40);
  return view;
}

describe("the counters", () => {
  it("follow the draft without the kernel", async () => {
    const { find, strip } = mount();
    const shown = (name: string) => find(`[data-mkg-counter=${name}]`);
    expect(shown("params").querySelector(".mkg-mask-amount")?.textContent).toBe("148 → 148");
    click(strip(0), 2);
    await settle(40);
    expect(shown("params").querySelector(".mkg-mask-amount")?.textContent).toBe("148 → 111");
    expect(shown("params").querySelector(".mkg-mask-change")?.textContent).toBe("−25.0 %");
    expect([shown("flops").dataset.mkgAfter, shown("bytes").dataset.mkgAfter]).toEqual(["360", "524"]);
    expect(find(".mkg-mask-dropped").textContent).toBe("1 channel in 1 group removed");
  });

  it("say when FLOPs are approximate", () => {
    const { find } = mount(THREE, {}, { approximate: true });
    expect(find("[data-mkg-counter=flops] .mkg-mask-amount").textContent).toMatch(/^≈ /);
  });
});

describe("the buttons", () => {
  it("wait for something to do, then ask the kernel", async () => {
    const { channel, session, store, find, strip } = mount();
    const buttons = ["check", "mask", "cut"].map(name => find(`.mkg-mask-${name}`));
    expect([...buttons.map(isDisabled), find(".mkg-mask-undo-model").hidden]).toEqual([true, true, true, true]);
    click(strip(0), 2);
    await settle(40);
    expect(buttons.map(isDisabled)).toEqual([false, false, false]);
    buttons[1].click();
    expect(channel.types()).toEqual(["draw"]); // the kernel masks what is seen, and does not have that yet
    confirm(session, channel.sent[0], 1);
    expect(buttons[1].getAttribute("aria-disabled")).toBe("true");
    expect(find(".mkg-status-text").textContent).toContain("mask the model");
    session.receive({ type: "done", action: "mask", text: "1 axis is masked" });
    store.set("stage", "masked");
    expect(find(".mkg-mask-undo-model").textContent).toBe("Undo mask");
    find(".mkg-mask-undo-model").click();
    expect(channel.types()).toEqual(["draw", "mask", "undo"]);
    store.set("stage", "cut");
    expect([find(".mkg-mask-undo-model").textContent, find(".mkg-status-text").textContent]).toEqual([
      "Undo cut",
      "Waiting for the kernel to undo…"
    ]);
  });

  it("save to and load from the file that is named", () => {
    const { channel, session, store, find } = mount();
    const path = find<HTMLInputElement>(".mkg-mask-path");
    expect(path.value).toBe("plan.modulekg.json");
    path.value = " other.json ";
    find(".mkg-mask-save").click();
    session.receive({ type: "done", action: "save", text: "saved" });
    find(".mkg-mask-load").click();
    expect(channel.sent.map(({ content }) => content)).toEqual([
      { type: "save", path: "other.json" },
      { type: "load", path: "other.json" }
    ]);
    expect(store.get("path")).toBe("other.json");
  });

  it("are dead without the kernel; editing is not", async () => {
    const { host, session, store, find, strip, channel } = await edited();
    channel.isLive = false;
    store.set("connected", false);
    const needy = [...host.querySelectorAll<HTMLElement>("[data-mkg-needs-kernel]")];
    expect(needy).toHaveLength(7);
    expect(needy.every(isDisabled)).toBe(true);
    expect(find(".mkg-status-text").textContent).toContain(DISCONNECTED);
    click(strip(0), 1);
    await settle(40);
    expect([dropped(session)[0], isDisabled(find(".mkg-mask-cut")), isDisabled(find(".mkg-mask-undo"))]).toEqual([
      [1, 2],
      true,
      false
    ]);
    store.set("connected", true);
    expect(isDisabled(find(".mkg-mask-cut"))).toBe(false);
  });
});

describe("the question before a cut", () => {
  it("says what will change, in the editor's numbers", async () => {
    const { find, host } = await edited();
    find(".mkg-mask-cut").click();
    const dialog = find("[role=dialog]");
    expect(dialog.getAttribute("aria-modal")).toBe("true");
    expect(document.getElementById(dialog.getAttribute("aria-labelledby") ?? "")?.textContent).toBe(
      "Cut 1 channel in 1 group?"
    );
    expect(dialog.textContent).toMatch(/148 → 111.*may correct.*Undo cut/s);
    expect(document.activeElement).toBe(find(".mkg-mask-cancel"));
    expect([...host.children].filter(child => !(child as HTMLElement).inert)).toEqual([find(".mkg-mask-veil")]);
  });

  it("has the dry run's numbers when they are of this draft", async () => {
    const { find, session } = await edited();
    session.setReport(REPORT);
    find(".mkg-mask-cut").click();
    expect(find("[role=dialog]").textContent).toMatch(/148 → 100.*Sizes from the dry run/s);
  });

  it("keeps the focus, and is gone with Escape", async () => {
    const { find, channel, host } = await edited();
    find(".mkg-mask-cut").click();
    press(find(".mkg-mask-cancel"), "Tab");
    expect(document.activeElement).toBe(find(".mkg-mask-confirm"));
    press(find(".mkg-mask-confirm"), "Tab");
    expect(document.activeElement).toBe(find(".mkg-mask-cancel"));
    press(find(".mkg-mask-cancel"), "Escape");
    expect([host.querySelector("[role=dialog]"), document.activeElement]).toEqual([null, find(".mkg-mask-cut")]);
    expect([...host.children].some(child => (child as HTMLElement).inert)).toBe(false);
    expect(channel.types()).toEqual(["draw"]);
  });

  it("cuts once when confirmed, and not without the kernel", async () => {
    const { find, channel, store } = await edited();
    find(".mkg-mask-cut").click();
    store.set("connected", false);
    expect(isDisabled(find(".mkg-mask-confirm"))).toBe(true);
    store.set("connected", true);
    find(".mkg-mask-confirm").click();
    find(".mkg-mask-cut").click();
    expect(channel.types()).toEqual(["draw", "cut"]);
    expect(document.querySelector("[role=dialog]")).toBeNull();
  });

  it("goes with the model that it asked about", async () => {
    const { find, session, host, channel } = await edited();
    find(".mkg-mask-cut").click();
    session.load(maskPayload(), undefined, undefined, 0);
    expect([host.querySelector("[role=dialog]"), channel.types()]).toEqual([null, ["draw"]]);
    expect(host.contains(document.activeElement)).toBe(true);
  });
});

describe("the dry run", () => {
  it("lists its corrections, which lead to their axes", async () => {
    const { find, session, store, host, strip } = await edited();
    session.setReport(REPORT);
    await settle(40);
    expect(find(".mkg-mask-found").textContent).toBe(
      "Dry run passed with 1 correction. " +
        "Parameters 148 → 100 (−32.4 %), FLOPs 560 → 300 (−46.4 %), Bytes 672 B → 400 B (−40.5 %)"
    );
    const details = find(".mkg-mask-details");
    expect([details.textContent, details.hidden, find(".mkg-mask-report-body").hidden]).toEqual([
      "1 correction",
      false,
      true
    ]);
    details.click();
    expect([details.getAttribute("aria-expanded"), find(".mkg-mask-report-body").hidden]).toEqual(["true", false]);
    expect(find(".mkg-mask-changes li").textContent).toContain("index 3 stays with index 2");
    const links = [...host.querySelectorAll<HTMLElement>(".mkg-mask-changes button")];
    expect(links.map(({ textContent }) => textContent)).toEqual(["conv2.weight[0]", "conv1.weight[0]"]);
    links[0].click();
    expect(store.get("axis")).toBe("conv2.weight[0]");
    press(strip(0), "Home");
    press(strip(0), "ArrowRight");
    press(strip(0), "ArrowRight");
    expect(strip(0).querySelector("[role=option]")?.textContent).toBe(
      "channel 2 of 4, importance 2, removed, kept by the dry run"
    );
  });

  it("is of an earlier draft after the next edit", async () => {
    const { find, session, strip } = await edited();
    session.setReport(REPORT);
    await settle(40);
    expect(find(".mkg-mask-report").classList.contains("mkg-is-stale")).toBe(false);
    click(strip(1), 0);
    await settle(40);
    expect(find(".mkg-mask-report").classList.contains("mkg-is-stale")).toBe(true);
    expect(find(".mkg-mask-report-head").textContent).toContain("Outdated");
  });

  it("says why a draft does not run", async () => {
    const { find, session } = await edited();
    session.setReport({ revision: 1, error: "model.py:3 takes 4 channels" });
    await settle(40);
    expect(find(".mkg-mask-error").textContent).toBe("model.py:3 takes 4 channels");
    expect(find(".mkg-mask-report").classList.contains("mkg-is-failed")).toBe(true);
    find(".mkg-mask-details").click();
    expect(find(".mkg-mask-whole-error").textContent).toBe("model.py:3 takes 4 channels");
  });

  it("says what to do before there is one", async () => {
    const { find, strip } = mount();
    expect(find(".mkg-mask-hint").textContent).toContain("No channels selected");
    expect(find(".mkg-mask-details").hidden).toBe(true);
    click(strip(0), 1);
    await settle(40);
    expect(find(".mkg-mask-hint").textContent).toContain("A dry run tests");
  });

  it("leaves the place to what a cut has done, and says what can follow", async () => {
    const { find, session, store } = mount();
    store.set("stage", "cut");
    session.receive({ type: "done", action: "cut", text: "Cut: parameters 148 → 111" });
    await settle(40);
    expect(find(".mkg-mask-hint").textContent).toBe("");
    expect(find(".mkg-mask-dropped").textContent).toBe("No more channels selected");
    session.say("");
    await settle(40);
    expect(find(".mkg-mask-hint").textContent).toContain("Select more channels, or undo the cut");
  });
});

describe("what a button came to", () => {
  it("stands in the block of the buttons, before the rows", async () => {
    const { host, find, session } = await edited();
    session.setReport(REPORT);
    session.receive({ type: "done", action: "cut", text: "Cut: parameters 148 → 100" });
    await settle(40);
    const bar = find(".mkg-mask-bar");
    for (const part of [".mkg-mask-check", ".mkg-mask-cut", ".mkg-mask-found", ".mkg-status-text"])
      expect(bar.contains(find(part)), part).toBe(true);
    expect([...host.children].map(({ className }) => className.split(" ")[0])).toEqual([
      "mkg-mask-head",
      "mkg-mask-rows",
      "mkg-mask-tip"
    ]);
  });

  it("is heard: finished outcomes, also one that is the same again, and no steps on the way", async () => {
    const { find, session, channel } = await edited();
    for (const said of [".mkg-mask-found", ".mkg-status-text"])
      expect(find(said).getAttribute("role"), said).toBe("status");
    session.setReport(REPORT);
    await settle(40);
    const before = find(".mkg-mask-found").firstChild;
    session.check();
    await settle(40);
    expect(find(".mkg-mask-found").textContent).not.toContain("checking");
    expect(find(".mkg-mask-note").textContent).toBe("Dry run…");
    expect(channel.types()).toContain("check");
    session.receive({ type: "done", action: "check", text: "" });
    await settle(40);
    expect(find(".mkg-mask-found").firstChild).not.toBe(before);
    expect(find(".mkg-mask-note").textContent).toBe("");
  });

  it("tells what failed from what was done", () => {
    const { find, session } = mount();
    const status = find(".mkg-mask-status");
    session.receive({ type: "failed", action: "mask", text: "nothing is cut" });
    expect([find(".mkg-status-text").textContent, status.matches(".mkg-is-failed")]).toEqual(["nothing is cut", true]);
    session.receive({ type: "done", action: "mask", text: "Masked" });
    expect(status.matches(".mkg-is-failed")).toBe(false);
  });
});
