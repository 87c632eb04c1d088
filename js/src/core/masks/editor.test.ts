import { afterEach, describe, expect, it, vi } from "vitest";
import { click, mount, point, slide, spoken, unmount } from "../../testing/mask_view";
import { brush, dropped, known, maskPayload, scoresOf, THREE } from "../../testing/masks";
import { foreignParts, hostileTexts, press, settle } from "../../testing/sample";

afterEach(unmount);

describe("createMaskEditor", () => {
  it("is what the contract says", () => {
    const { host, find } = mount();
    expect(host.matches(".mkg-widget.mkg-mask-editor[data-mkg-id][data-mkg-ready=true]")).toBe(true);
    const names = [...host.querySelectorAll(".mkg-mask-name")].map(name => name.textContent);
    expect(names).toEqual(THREE.map(({ name }) => name));
    const long = mount([{ ...THREE[1], name: "encoder.layers.0.self_attn.heads" }, THREE[0], THREE[2]]);
    const halves = [...long.find(".mkg-mask-name bdi").children].map(({ textContent }) => textContent);
    expect(halves).toEqual(["encoder.layers.0", ".self_attn.heads"]); // the first gives way
    expect(long.find(".mkg-mask-role").title).toBe("Role: heads");
    expect(find(".mkg-is-frozen .mkg-mask-reason").textContent).toBe("the model gives it out");
    expect(find(".mkg-is-frozen").querySelector("canvas, input, .mkg-mask-lock")).toBeNull();
    for (const name of ["check", "mask", "cut", "undo-model", "save", "load"])
      expect(find(`.mkg-mask-${name}`).matches("button[data-mkg-needs-kernel]"), name).toBe(true);
  });

  it("has the free axes first", () => {
    const { host } = mount([THREE[2], THREE[0], THREE[1]]);
    const rows = [...host.querySelectorAll<HTMLElement>(".mkg-mask-row")];
    expect(rows.map(({ dataset }) => dataset.mkgAxis)).toEqual(["1", "2", "0"]);
  });

  it("says when there is nothing, and shows what comes then", () => {
    const { host, session } = mount();
    session.load({}, undefined, undefined, 0);
    expect(host.querySelector("[role=alert]")?.textContent).toContain("Run the cell");
    session.load({ schema_version: 9 }, undefined, undefined, 0);
    expect(host.querySelector("[role=alert]")?.textContent).toContain("Restart the kernel");
    expect(host.querySelector("[role=alert]")?.textContent).toContain("the same version where JupyterLab runs");
  });

  it("leaves nothing behind", () => {
    const { host } = mount();
    unmount();
    expect([host.childElementCount, host.dataset.mkgReady]).toEqual([0, undefined]);
  });
});

describe("the pointer", () => {
  it("drops with a click and keeps with the next, one value each", () => {
    const { session, channel, strip } = mount();
    click(strip(0), 2);
    expect(dropped(session)[0]).toEqual([2]);
    click(strip(0), 2);
    expect([dropped(session)[0], channel.types()]).toEqual([[], ["draw", "draw"]]);
  });

  it("gives all cells that are passed the state of the first", () => {
    const { session, channel, strip } = mount();
    click(strip(1), 3);
    point(strip(1), "pointerdown", 1);
    point(strip(1), "pointermove", 6); // two samples, four cells apart
    point(strip(1), "pointerup", 6);
    expect([dropped(session)[1], channel.sent.length]).toEqual([[1, 2, 3, 4, 5, 6], 2]);
  });

  it("gives a range the state of its start with shift", () => {
    const { session, strip } = mount();
    click(strip(1), 2);
    click(strip(1), 8, { shiftKey: true });
    expect(dropped(session)[1]).toEqual([2, 3, 4, 5, 6, 7, 8]);
    click(strip(1), 8);
    click(strip(1), 6, { shiftKey: true });
    expect(dropped(session)[1]).toEqual([2, 3, 4, 5]);
  });

  it("changes nothing when the gesture is broken off", () => {
    const { session, channel, strip } = mount();
    point(strip(1), "pointerdown", 1);
    point(strip(1), "pointermove", 4);
    point(strip(1), "pointercancel", 4);
    point(strip(1), "pointermove", 7);
    point(strip(1), "pointerdown", 1);
    press(strip(1), "Escape");
    expect([dropped(session)[1], channel.sent]).toEqual([[], []]);
  });

  it("makes the row the current one, and leaves other buttons alone", () => {
    const { session, store, row, strip } = mount();
    click(strip(1), 2, { button: 2 });
    expect(dropped(session)[1]).toEqual([]);
    click(strip(1), 2);
    expect([store.get("axis"), row(1).getAttribute("aria-current")]).toEqual(["conv2.weight[0]", "true"]);
    row(0).querySelector<HTMLElement>(".mkg-mask-name")?.click();
    expect([store.get("axis"), row(1).getAttribute("aria-current")]).toEqual(["conv1.weight[0]", null]);
  });

  it("tells what a cell is", () => {
    const { find, strip } = mount();
    point(strip(0), "pointermove", 2);
    expect(find(".mkg-mask-tip").textContent).toBe("channel 2 of 4, importance 2, kept");
    point(strip(0), "pointerleave", 2);
    expect(find(".mkg-mask-tip").hidden).toBe(true);
  });
});

describe("the keyboard", () => {
  it("moves, toggles and says so", () => {
    const { session, strip } = mount();
    strip(0).focus();
    press(strip(0), "ArrowRight");
    expect(spoken(strip(0))).toBe("channel 1 of 4, importance 1, kept");
    press(strip(0), " ");
    expect(dropped(session)[0]).toEqual([1]);
    strip(0).blur();
    press(strip(0), "End");
    expect(strip(0).getAttribute("aria-activedescendant")).toBe(strip(0).querySelector("[role=option]")?.id);
    expect(spoken(strip(0))).toBe("channel 3 of 4, importance 1, kept");
  });

  it("selects a range that space toggles", () => {
    const { session, channel, strip } = mount();
    press(strip(1), "ArrowRight");
    for (let i = 0; i < 3; i += 1) press(strip(1), "ArrowRight", { shiftKey: true });
    expect(strip(1).querySelector("[role=option]")?.getAttribute("aria-selected")).toBe("true");
    press(strip(1), " ");
    expect([dropped(session)[1], channel.sent.length]).toEqual([[1, 2, 3, 4], 1]);
    press(strip(1), " ");
    expect(dropped(session)[1]).toEqual([]);
  });

  it("goes on to the rows below and above", () => {
    const { strip } = mount();
    strip(0).focus();
    press(strip(0), "ArrowRight");
    press(strip(0), "ArrowDown");
    expect(document.activeElement).toBe(strip(1));
    expect(spoken(strip(1))).toContain("channel 1 of 10");
    press(strip(1), "ArrowUp");
    press(strip(0), "ArrowUp");
    expect(document.activeElement).toBe(strip(0));
  });

  it("takes back and makes again, but not in text fields", () => {
    const { session, strip, find } = mount();
    click(strip(0), 0);
    press(find(".mkg-mask-path"), "z", { ctrlKey: true });
    expect(dropped(session)[0]).toEqual([0]);
    press(strip(0), "z", { ctrlKey: true });
    expect(dropped(session)[0]).toEqual([]);
    press(strip(0), "Z", { metaKey: true, shiftKey: true });
    expect(dropped(session)[0]).toEqual([0]);
    press(find(".mkg-mask-undo"), "z", { metaKey: true });
    press(strip(0), "y", { ctrlKey: true });
    expect(dropped(session)[0]).toEqual([0]);
  });
});

describe("rows", () => {
  it("can be locked", () => {
    const { session, channel, store, row, strip } = mount();
    const lock = row(0).querySelector<HTMLElement>(".mkg-mask-lock") as HTMLElement;
    lock.click();
    expect([store.get("locked"), lock.getAttribute("aria-pressed")]).toEqual([["conv1.weight[0]"], "false"]);
    expect(session.isLocked(0)).toBe(true);
    click(strip(0), 1);
    press(strip(0), " ");
    expect([dropped(session)[0], channel.sent]).toEqual([[], []]);
    expect(session.notice).toContain("locked");
    lock.click();
    expect(store.get("locked")).toEqual([]);
  });

  it("have a slider, one message when it is let go", async () => {
    const { session, channel, row } = mount();
    const slider = row(0).querySelector<HTMLInputElement>(".mkg-mask-slider") as HTMLInputElement;
    expect([slider.max, slider.getAttribute("aria-valuetext")]).toEqual(["3", "0 of 4 removed"]);
    slide(slider, 1);
    slide(slider, 2);
    expect([dropped(session)[0], channel.sent.length]).toEqual([[1, 3], 0]);
    slider.dispatchEvent(new Event("change"));
    await settle(40);
    expect([channel.sent.length, row(0).querySelector(".mkg-mask-count")?.textContent]).toEqual([1, "2 / 4"]);
  });

  it("list their members when asked", () => {
    const { row } = mount();
    const more = row(0).querySelector<HTMLElement>(".mkg-mask-more") as HTMLElement;
    expect(more.title).toBe("conv1.weight[0]\nconv2.weight[1]");
    more.click();
    const listed = () => [...row(0).querySelectorAll(".mkg-mask-members li")].map(({ textContent }) => textContent);
    expect([listed(), more.getAttribute("aria-expanded")]).toEqual([["conv1.weight[0]", "conv2.weight[1]"], "true"]);
    more.click();
    expect(listed()).toEqual([]);
  });

  it("are found by name and member", async () => {
    const { host, store, find } = mount();
    const input = find<HTMLInputElement>(".mkg-search input");
    const shown = () =>
      [...host.querySelectorAll<HTMLElement>(".mkg-mask-row:not([hidden])")].map(row => row.dataset.mkgAxis);
    input.value = "BLOCK";
    input.dispatchEvent(new Event("input"));
    await settle(150);
    expect([store.get("query"), shown()]).toEqual(["BLOCK", ["1"]]);
    expect(find(".mkg-search-count").textContent).toBe("1 of 3 groups");
    store.set("query", "nowhere");
    expect([shown(), find(".mkg-mask-empty").hidden]).toEqual([[], false]);
    press(input, "Escape");
    expect(shown()).toEqual(["0", "1", "2"]);
  });

  it("are marked when they have members in the selected module", () => {
    const { host, store } = mount();
    const marked = () => [...host.querySelectorAll<HTMLElement>(".mkg-is-on-module")].map(row => row.dataset.mkgAxis);
    store.set("selected", "block");
    expect(marked()).toEqual(["1"]);
    store.set("selected", "conv2");
    expect(marked()).toEqual(["0"]);
    store.set("selected", "conv");
    expect(marked()).toEqual([]);
  });

  it("come into view when the axis is set from outside only", () => {
    const scrolled = vi.fn();
    const { store, row, strip } = mount();
    row(0).scrollIntoView = row(1).scrollIntoView = scrolled;
    strip(0).focus();
    expect(scrolled).not.toHaveBeenCalled();
    store.set("axis", "conv2.weight[0]");
    expect(scrolled).toHaveBeenCalledTimes(1);
  });
});

describe("the ratio", () => {
  it("previews, and is one step", async () => {
    const { session, channel, find } = mount();
    const slider = find<HTMLInputElement>(".mkg-mask-ratio-slider");
    slide(slider, 0.9);
    slide(slider, 0.5);
    expect([dropped(session), channel.sent.length]).toEqual([[[1, 3], [0, 1, 2, 3, 4], []], 0]);
    slider.dispatchEvent(new Event("change"));
    expect(channel.sent.length).toBe(1);
    await settle(40);
    expect(find<HTMLInputElement>(".mkg-mask-ratio-field").value).toBe("0.5");
    find(".mkg-mask-undo").click();
    expect(dropped(session)).toEqual([[], [], []]);
    await settle(40);
    expect(slider.value).toBe("0");
  });

  it("follows the scope, and refuses what is no ratio", () => {
    const { session, store, find } = mount();
    store.set("scope", "global");
    const field = find<HTMLInputElement>(".mkg-mask-ratio-field");
    field.value = "0.5";
    field.dispatchEvent(new Event("change"));
    expect(dropped(session).map(({ length }) => length)).toEqual([2, 5, 0]);
    field.value = "1.5";
    field.dispatchEvent(new Event("change"));
    expect([field.getAttribute("aria-invalid"), dropped(session)[0].length]).toEqual(["true", 2]);
  });

  it("is the chosen one again when the same indices go, by a step or by the undo of a cut", async () => {
    const { session, find } = mount();
    const field = () => find<HTMLInputElement>(".mkg-mask-ratio-field");
    field().value = "0.35";
    field().dispatchEvent(new Event("change"));
    await settle(40);
    find(".mkg-mask-undo").click();
    await settle(40);
    expect(field().value).toBe("0");
    find(".mkg-mask-redo").click();
    await settle(40);
    expect(field().value).toBe("0.35"); // and not the 4 of 14 that it came to
    const goes = { 0: [0b1010], 1: [0b111, 0] };
    session.load(maskPayload(THREE, { generation: 2 }), known(5, {}), scoresOf(THREE), 5);
    await settle(40);
    expect(field().value).toBe("0");
    session.load(maskPayload(THREE, { generation: 3 }), known(6, { 0: [0b10], 1: [0b111, 0] }), scoresOf(THREE), 6);
    await settle(40);
    expect([dropped(session).map(({ length }) => length), field().value]).toEqual([[1, 3, 0], "0.35"]);
    session.load(maskPayload(THREE, { generation: 4 }), known(7, goes), scoresOf(THREE), 7);
    await settle(40);
    expect(field().value).toBe("0.357"); // of what nobody chose the share
  });

  it("is not drawn anew from the share that it came to, when the field is left", async () => {
    const { session, find } = mount();
    const field = find<HTMLInputElement>(".mkg-mask-ratio-field");
    brush(session, 0, [1]);
    const chosen = dropped(session);
    await settle(40);
    const shown = field.value;
    expect(shown).toBe("0.071");
    field.dispatchEvent(new Event("change"));
    expect([dropped(session), field.value]).toEqual([chosen, shown]);
    field.value = "0.9";
    field.dispatchEvent(new Event("change"));
    expect(dropped(session)).not.toEqual(chosen);
  });
});

describe("the importances", () => {
  it("are explained, the chosen one also on the field", () => {
    const { find } = mount(undefined, { importance: "l2" }, { importances: ["l1", "l2", "mine"] });
    const field = find<HTMLSelectElement>(".mkg-mask-importance");
    expect([...field.options].map(({ title }) => title.slice(0, 11))).toEqual(["Sum of the ", "Root mean s", ""]);
    expect(field.title).toContain("\nRoot mean square of the weights of a channel");
  });
});

describe("hostile texts", () => {
  it("come out verbatim", async () => {
    const texts = hostileTexts();
    const axes = texts.map((text, at) => ({
      name: text,
      role: text,
      scores: [1, 2],
      members: [[text, 0]] as const,
      ...(at % 2 ? { frozen: text } : {})
    }));
    const chosen = { path: texts[0], importance: texts[1] };
    const { host, session, find, channel } = mount(axes, chosen, { importances: texts });
    host.querySelectorAll<HTMLElement>(".mkg-mask-more").forEach(more => more.click());
    session.setReport({
      revision: 0,
      error: null,
      changes: texts.map(text => ({ kind: text, text, axes: [0] })),
      kept: [],
      taken: []
    });
    session.receive({ type: "failed", action: "save", text: texts[2] });
    await settle(40);
    const all = (selector: string) => [...host.querySelectorAll(selector)].map(({ textContent }) => textContent);
    expect(new Set(all(".mkg-mask-name"))).toEqual(new Set(texts));
    expect(new Set(all(".mkg-mask-role"))).toEqual(new Set(texts));
    expect(all(".mkg-mask-reason")).toEqual(texts.filter((_, at) => at % 2));
    expect(new Set(all(".mkg-mask-members li"))).toEqual(new Set(texts.map(text => `${text}[0]`)));
    expect(all(".mkg-mask-kind")).toEqual(texts);
    expect(all(".mkg-mask-changes li > bdi:nth-of-type(2)")).toEqual(texts);
    expect(find(".mkg-status-text").textContent).toContain(texts[2]);
    session.setReport({ revision: 0, error: texts[3] });
    await settle(40);
    expect(find(".mkg-mask-error").textContent).toBe(texts[3]);
    expect([foreignParts(host), channel.sent]).toEqual([[], []]);
    session.setDraft(known(1, {}, texts[0]));
    expect(foreignParts(host)).toEqual([]);
  });
});
