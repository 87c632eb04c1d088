import { afterEach, describe, expect, it } from "vitest";
import { click, mount, unmount } from "../../../testing/mask_view";
import { confirm, scoresOf, THREE } from "../../../testing/masks";
import { press, settle } from "../../../testing/sample";
import { COLOR_LEVELS, UNSCORED, readCellColors, cellLayout, CELL_FLAGS, paintCell } from "../cell_drawing";
import { MARKS } from "./cell_legend";

afterEach(unmount);

/** What is drawn for a look: every call and every color, in order. */
function drawn(look: number): string {
  const steps: string[] = [];
  const context = new Proxy({} as CanvasRenderingContext2D, {
    get:
      (_, name) =>
      (...values: unknown[]) =>
        void steps.push(`${String(name)}(${values.join()})`),
    set: (_, name, value) => steps.push(`${String(name)} = ${String(value)}`) > 0
  });
  paintCell(context, cellLayout(1, 100), 0, look, readCellColors(document.body));
  return steps.join("\n");
}

const painted = MARKS.flatMap(({ look }) => (typeof look === "number" ? look : []));
const flags = Object.entries(CELL_FLAGS);

describe("the marks of cells", () => {
  it.each(flags)("%s has an entry of its own in the legend", (_, flag) => {
    const withIt = painted.filter(look => look & flag);
    const first = withIt.find(
      look => !painted.some(other => other !== look && (other & look) === other && other & flag)
    );
    expect(first).toBeDefined();
    expect(drawn(first ?? 0)).not.toBe(drawn((first ?? 0) & ~flag));
  });

  it("are told apart by their drawings, as are cells with and without a score", () => {
    expect(painted).toContain(UNSCORED);
    expect(new Set(painted.map(drawn)).size).toBe(painted.length);
    expect(new Set(MARKS.map(({ text }) => text)).size).toBe(MARKS.length);
  });

  it("are the only difference between cells that stay: each has the same frame, whatever its shade", () => {
    const { frame } = readCellColors(document.body);
    for (let level = 0; level < COLOR_LEVELS; level += 1) {
      expect(drawn(level).split("\n").slice(1, 3)).toEqual([`fillStyle = ${frame}`, "fillRect(0,0,14,14)"]);
      expect(drawn(level).match(/fillRect|stroke/g)).toHaveLength(2);
    }
  });
});

describe("the legend", () => {
  const shown = (host: HTMLElement) =>
    [...host.querySelectorAll<HTMLElement>("[data-mkg-mark]:not([hidden])")].map(({ dataset }) => dataset.mkgMark);
  const complete = THREE.map(axis => ({ ...axis }));

  it("says what a cell is, which score it has, and both ends", async () => {
    const { find, store } = mount();
    const text = () => find(".mkg-mask-legend").textContent;
    expect(text()).toMatch(/1 square = 1 channel.*low.*high importance.*l1, one scale per row/);
    store.set("scope", "global");
    store.set("importance", "taylor");
    await settle(40);
    expect(text()).toContain("(taylor from the current gradients, one scale for all rows)");
  });

  it("says on which data scores stand, and which they still are while the sensitivity is computed", async () => {
    const { find, session, store } = mount();
    const text = () => find(".mkg-mask-scale").textContent;
    const offers = { sensitivity: true, batches: 2, on_batches: ["taylor"] };
    session.setCosts(offers, {}, {});
    store.set("importance", "taylor");
    await settle(40);
    expect(text()).toBe("(taylor on 2 batches, one scale per row)");
    store.set("importance", "l2");
    await settle(40);
    store.set("importance", "sensitivity");
    session.setCosts(offers, { done: 1, total: 9 }, {});
    await settle(40);
    expect(text()).toBe("(l2 until the sensitivity is ready, one scale per row)");
    session.setScores(scoresOf(THREE, 8), true);
    session.setCosts(offers, {}, {});
    await settle(40);
    expect(text()).toBe("(sensitivity on 2 batches, one scale per row)");
  });

  it("has what stays and what goes, and every other mark while it is in use", async () => {
    const { host, session, channel, store, strip } = mount(complete);
    const now = async () => {
      await settle(40);
      return shown(host);
    };
    const usual = ["stays", "goes"];
    expect(await now()).toEqual(usual);
    click(strip(0), 2);
    confirm(session, channel.sent[0], 1);
    const report = { revision: 1, error: null, changes: [], kept: [[0, [2]]], taken: [] as unknown[] };
    session.setReport(report);
    expect(await now()).toEqual([...usual, "kept", "stale"]);
    session.setReport({ ...report, kept: [], taken: [[1, [4]]] });
    expect(await now()).toEqual([...usual, "taken", "stale"]);
    session.setReport({});
    press(strip(0), "ArrowRight");
    expect(await now()).toEqual([...usual, "cursor"]);
    press(strip(0), "ArrowRight", { shiftKey: true });
    expect(await now()).toEqual([...usual, "range", "cursor"]);
    strip(0).blur();
    store.set("locked", ["conv1.weight[0]"]);
    store.set("selected", "block");
    expect(await now()).toEqual([...usual, "locked", "module"]);
    store.set("locked", []);
    store.set("selected", null);
    session.setScores(undefined);
    expect(await now()).toEqual(["stays", "goes", "unscored"]);
    // all of them have been seen
    const seen = new Set([...usual, "kept", "taken", "stale", "cursor", "range", "locked", "module", "unscored"]);
    expect(new Set(MARKS.map(({ name }) => name))).toEqual(seen);
  });

  it("waits while a hand brushes", async () => {
    const { host, session, strip } = mount();
    session.begin();
    session.setReport({ revision: 0, error: null, changes: [], kept: [[0, [2]]], taken: [] });
    await settle(40);
    expect(shown(host)).toEqual(["stays", "goes"]);
    session.cancel();
    await settle(40);
    expect(shown(host)).toContain("kept");
    expect(strip(0).matches(".mkg-has-cursor")).toBe(false);
  });

  it("has a cursor for the keyboard alone: under a pointer no cell has an outline", () => {
    const { strip } = mount();
    click(strip(0), 2);
    expect([document.activeElement, strip(0).matches(".mkg-has-cursor")]).toEqual([strip(0), false]);
    press(strip(0), "ArrowRight");
    expect(strip(0).matches(".mkg-has-cursor")).toBe(true);
    click(strip(0), 2);
    expect(strip(0).matches(".mkg-has-cursor")).toBe(false);
  });
});
