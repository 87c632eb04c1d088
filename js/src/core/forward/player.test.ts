import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { buffersOf, golden, longPayload, picturesOf, storeWith } from "../../testing/forward";
import { topList } from "./details";
import { MapsFeed } from "./maps_feed";
import { createForwardPlayer, type ForwardPlayer } from "./player";
import { RevealedShapes } from "./quiz";
import type { ForwardState, ForwardStore } from "./state";

let host: HTMLElement;
let store: ForwardStore;
let player: ForwardPlayer;
let feed: MapsFeed;
let sent: unknown[];

function show(raw: unknown, state: Partial<ForwardState> = {}, mayTick = true, pictures: unknown = {}): void {
  store = storeWith(state);
  sent = [];
  feed = new MapsFeed({ isLive: true, send: question => void sent.push(question) });
  feed.begin(pictures);
  player = createForwardPlayer(host, raw, store, { feed, found: new RevealedShapes(), mayTick: () => mayTick });
}

const find = <T extends HTMLElement = HTMLElement>(selector: string) => host.querySelector<T>(selector) as T;
const texts = (selector: string) => Array.from(host.querySelectorAll(selector), element => element.textContent);
const press = (element: HTMLElement, key: string) =>
  element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));

beforeEach(() => {
  host = document.createElement("div");
  document.body.append(host);
});

afterEach(() => {
  player.dispose();
  document.body.replaceChildren();
  vi.useRealTimers();
});

describe("the list of steps", () => {
  it("has each call with what flows into it", () => {
    show(golden("residual").payload);
    expect(texts(".mkg-forward-row .mkg-row-name")).toEqual(["whole model", "conv", "relu", "relu"]);
    expect(texts(".mkg-forward-row .mkg-forward-shape")).toEqual(["2×1×2×2", "2×1×2×2", "2×2×2×2", "2×2×2×2"]);
    expect(texts(".mkg-forward-end")).toEqual(["2×2×2×2 and 1 more · output"]);
    expect(find("[role=option][aria-selected=true]").dataset.mkgStep).toBe("0");
  });

  it("goes where it is clicked", () => {
    show(golden("residual").payload, { playing: true });
    find('[data-mkg-step="3"]').click();
    expect([store.get("step"), store.get("selected"), store.get("playing")]).toEqual([3, "relu", false]);
    expect(document.activeElement).toBe(find('[data-mkg-step="3"]'));
    expect(texts("[role=option][tabindex='0'] .mkg-row-name")).toEqual(["relu"]);
  });

  it("goes to the first call of what is selected, and stays at a later one", () => {
    show(golden("residual").payload, { step: 3, selected: "relu" });
    store.set("selected", "conv");
    expect(store.get("step")).toBe(1);
    store.set("selected", "relu");
    expect(store.get("step")).toBe(2);
    store.set("selected", "nowhere");
    expect(store.get("step")).toBe(2);
  });

  it("has few rows in the page, however long it is", () => {
    show(longPayload(5000), { step: 4321 });
    expect(host.querySelectorAll("[role=option]").length).toBeLessThan(60);
    expect(find("[aria-selected=true]").dataset.mkgStep).toBe("4321");
    expect(find("[aria-selected=true]").getAttribute("aria-setsize")).toBe("5000");
    expect(find(".mkg-forward-space").style.height).toBe(`${5001 * 44}px`);
  });

  it("shows hostile names as they are, and where the pass broke", () => {
    show(golden("stops").payload, { step: 2 });
    expect(find(".mkg-forward-path").textContent).toContain("<img src=x");
    expect(find(".mkg-forward-error").textContent).toContain("The forward pass failed here: ValueError: <img");
    expect(host.querySelector("img")).toBeNull();
    expect(find(".mkg-forward-status").textContent).toContain("failed: ValueError");
    expect(texts(".mkg-forward-end")).toEqual(["stopped here"]);
  });
});

/** A pass of three modules; `figures` are what is not finite of each, `top` the largest outputs of the last one. */
function passOf(notFinite: readonly number[], top: unknown = null): unknown {
  const raw = structuredClone(golden("residual").payload) as { steps: Record<string, unknown[]> };
  raw.steps.statistics = notFinite.map(count => [0, 1, 0.5, 0.5, 0, count, 16]);
  raw.steps.top = notFinite.map(() => top);
  return raw;
}

describe("what is not finite", () => {
  it("is marked in words at each step that gives it, and said of the first", () => {
    show(passOf([3, 0, 1200, 0]));
    expect(texts(".mkg-forward-row .mkg-row-mark")).toEqual(["3 NaN or infinite", "1.20 k NaN or infinite"]);
    const rows = [...host.querySelectorAll(".mkg-forward-row")];
    expect(rows.map(row => row.classList.contains("mkg-is-broken"))).toEqual([true, false, true, false]);
    expect(rows[2].getAttribute("aria-label")).toContain("1,200 output values NaN or infinite");
    expect(rows[1].getAttribute("aria-label")).not.toContain("NaN or infinite");
    expect(find(".mkg-forward-status").textContent).toBe("First NaN or infinite values: relu (1,200)");
    expect(find(".mkg-forward-not-finite dd").textContent).toBe("3");
  });

  it("is said of the innermost module that gave it", () => {
    show(passOf([1, 0, 0, 1])); // the model gives what its last module does
    expect(find(".mkg-forward-status").textContent).toContain("First NaN or infinite values: relu");
  });

  it("is not mentioned where all is finite", () => {
    show(passOf([0, 0, 0, 0]));
    expect(texts(".mkg-forward-row .mkg-row-mark")).toEqual([]);
    expect(find(".mkg-forward-status").hidden).toBe(true);
    expect(host.querySelector(".mkg-forward-not-finite")).toBeNull();
  });
});

describe("the bars of the largest outputs", () => {
  const bars = (entries: readonly (readonly [number | string, number | null])[]) => {
    const kind = entries[0][1] === null ? "element" : "class";
    const list = topList([kind, entries.map(([value, share], at) => [[at], value, share])]);
    return Array.from(list.querySelectorAll<HTMLElement>(".mkg-forward-bar"), ({ style }) => [
      style.marginInlineStart,
      style.width
    ]);
  };

  it("are as long as the percentages", () => {
    expect(bars([[-0.0878, 0.516], [-0.152, 0.484]])).toEqual([["0%", "51.6%"], ["0%", "48.4%"]]); // prettier-ignore
  });

  it("go from one zero to the values else", () => {
    expect(bars([[4, null], [1, null]])).toEqual([["0%", "100%"], ["0%", "25%"]]); // prettier-ignore
    expect(bars([[3, null], [-1, null]])).toEqual([["25%", "75%"], ["0%", "25%"]]); // prettier-ignore
    expect(bars([[-1, null], [-4, null]])).toEqual([["75%", "25%"], ["0%", "100%"]]); // prettier-ignore
    expect(bars([["Infinity", null], [1, null], [0, null]])).toEqual([["0%", "100%"], ["0%", "100%"], ["0%", "0%"]]); // prettier-ignore
  });
});

describe("keys and buttons", () => {
  it("steps, and plays with space", () => {
    show(golden("residual").payload);
    const row = () => find("[aria-selected=true]");
    const visited = ["ArrowDown", "ArrowRight", "ArrowLeft", "End", "ArrowDown", "Home", "ArrowUp", "PageDown"].map(
      key => {
        press(row(), key);
        return store.get("step");
      }
    );
    expect(visited).toEqual([1, 2, 1, 3, 3, 0, 0, 1]);
    press(row(), " ");
    expect(store.get("playing")).toBe(true);
    press(row(), "ArrowLeft");
    expect([store.get("playing"), store.get("step")]).toEqual([false, 0]);
  });

  it("leaves keys to the controls that have their own", () => {
    show(golden("residual").payload, { hideShapes: true });
    for (const selector of [".mkg-forward-slider", ".mkg-forward-speed", ".mkg-forward-sample", ".mkg-forward-guess"])
      for (const key of [" ", "ArrowRight", "End"]) press(find(selector), key);
    press(find(".mkg-forward-play"), " ");
    expect([store.get("step"), store.get("playing")]).toEqual([0, false]);
    press(find(".mkg-forward-play"), "ArrowRight");
    expect(store.get("step")).toBe(1);
  });

  it("has buttons for all of it", () => {
    show(golden("residual").payload);
    const visited = ["next", "next", "back", "last", "next", "first", "back"].map(name => {
      find(`.mkg-forward-${name}`).click();
      return store.get("step");
    });
    expect(visited).toEqual([1, 2, 1, 3, 3, 0, 0]);
    expect(find(".mkg-forward-back").getAttribute("aria-disabled")).toBe("true");
  });

  it("offers a speed that is not in the list, and chooses items", () => {
    show(golden("residual").payload, { speed: 3.5 });
    const speed = find<HTMLSelectElement>(".mkg-forward-speed");
    expect(speed.value).toBe("3.5");
    speed.value = "10";
    speed.dispatchEvent(new Event("change"));
    const item = find<HTMLInputElement>(".mkg-forward-sample");
    item.value = "7";
    item.dispatchEvent(new Event("change"));
    expect([store.get("speed"), store.get("sample"), item.value]).toEqual([10, 1, "2"]);
  });
});

describe("playing", () => {
  beforeEach(() => void vi.useFakeTimers());

  it("goes on at its speed, and stops at the end", () => {
    show(golden("residual").payload, { speed: 4 });
    find(".mkg-forward-play").click();
    vi.advanceTimersByTime(510);
    expect([store.get("step"), store.get("playing")]).toEqual([2, true]);
    store.set("speed", 1);
    vi.advanceTimersByTime(990);
    expect(store.get("step")).toBe(2);
    vi.advanceTimersByTime(20);
    expect([store.get("step"), store.get("playing")]).toEqual([3, false]);
    find(".mkg-forward-play").click();
    expect([store.get("step"), store.get("playing")]).toEqual([0, true]);
  });

  it("is left to one of several views, and ends with the view", () => {
    show(golden("residual").payload, { playing: true }, false);
    vi.advanceTimersByTime(5000);
    expect(store.get("step")).toBe(0);
    player.dispose();
    expect(vi.getTimerCount()).toBe(0);
  });
});

describe("pictures", () => {
  it("are asked for, and drawn when they come", () => {
    show(golden("residual").payload, { step: 1, sample: 1 });
    expect(sent).toEqual([{ kind: "maps", run: 1, step: 1, sample: 1, page: 0 }]);
    expect(find(".mkg-forward-message").textContent).toBe("Loading the pictures of sample 2…");
    feed.receive(golden("residual").reply, buffersOf(golden("residual")));
    expect(find(".mkg-forward-pictures").dataset.mkgMaps).toBe("1,1,1,0");
    expect(texts(".mkg-forward-map-name")).toEqual(["channel 0", "channel 1"]);
    expect(texts(".mkg-forward-map-range")).toEqual(["0 to 3", "−6 to 0"]);
    expect(texts(".mkg-forward-which")).toEqual(["channel 0 at 1, 1", "channel 1 at 0, 0"]);
    expect(find(".mkg-forward-message").hidden).toBe(true);
  });

  it("that came with the steps are drawn at once, and not asked for", () => {
    const sample = golden("residual");
    show(sample.payload, { step: 0, busy: true }, true, picturesOf(sample));
    for (const step of [0, 1, 2, 3]) {
      store.set("step", step);
      expect(find(".mkg-forward-pictures").dataset.mkgMaps).toBe(`1,${step},0,0`);
      expect(texts(".mkg-forward-map-name")).toEqual(["channel 0", "channel 1"]);
      expect(find(".mkg-forward-message").hidden).toBe(true);
    }
    expect(sent).toEqual([]);
  });

  it("say what is missing, and what it waits for", () => {
    const sample = golden("residual");
    const maps = { ...(sample.pictures.each as { maps: object }[])[1].maps, total: 7, sizes: [9, 9] };
    const each = [{ steps: [1], whole: false, maps }];
    const pixels = new DataView(Uint8Array.from(sample.pictures.pixels.slice(8, 16)).buffer);
    show(sample.payload, { step: 1, busy: true }, true, picturesOf(sample, { each, pixels }));
    const [note, message] = [find(".mkg-forward-maps-head + p"), find(".mkg-forward-message")];
    const shown = () => [find(".mkg-forward-pictures").dataset.mkgCoarse, texts(".mkg-forward-map-name").length];
    const what = "averaged from 9×9 to 2×2 · first 2 shown";
    expect([note.textContent, message.hidden, shown()]).toEqual([
      `${what} · finer pictures when the kernel is free`,
      true,
      ["1,1,0,0", 2]
    ]);
    store.set("busy", false);
    expect(note.textContent).toBe(what);
    feed.receive({ kind: "maps", run: 1, step: 1, sample: 0, page: 0, later: true }, []);
    expect(note.textContent).toBe(`${what} · finer pictures when the running cell ends (the model runs again)`);
    store.set("connected", false);
    expect(note.textContent).toBe(`${what} · finer pictures need the kernel, which is disconnected`);

    store.set("connected", true);
    store.set("busy", true);
    store.set("sample", 1);
    expect([message.textContent, shown()]).toEqual([
      "Kernel busy. Waiting for the pictures of sample 2.",
      [undefined, 0]
    ]);
    feed.receive({ kind: "maps", run: 1, step: 1, sample: 1, page: 0, later: true }, []);
    expect(message.textContent).toBe(
      "Waiting for the running cell to end. The model then runs again for the pictures of sample 2."
    );
  });

  it("are shown large by a click, and small again by Escape", () => {
    show(golden("residual").payload, { step: 1, sample: 1 });
    feed.receive(golden("residual").reply, buffersOf(golden("residual")));
    const maps = host.querySelectorAll<HTMLElement>(".mkg-forward-map");
    maps[1].click();
    expect(find(".mkg-forward-large canvas").getAttribute("aria-label")).toBe("channel 1, −6 to 0");
    expect(maps[1].getAttribute("aria-pressed")).toBe("true");
    press(find(".mkg-forward-large button"), "Escape");
    expect(find(".mkg-forward-large").hidden).toBe(true);
    expect(document.activeElement).toBe(maps[1]);
  });

  it("are not asked for where there is none", () => {
    show(golden("stops").payload, { step: 2 });
    expect(sent).toEqual([]);
  });

  it("say why they do not come", () => {
    show(golden("residual").payload, { step: 1 });
    feed.receive({ kind: "maps", run: 1, step: 1, sample: 0, page: 0, error: "the model <b>changed</b>" }, []);
    expect(find(".mkg-forward-message").textContent).toBe("the model <b>changed</b>");
    store.set("step", 2);
    store.set("connected", false);
    expect(find(".mkg-forward-message").textContent).toContain("Kernel disconnected");
    expect(host.classList.contains("mkg-is-disconnected")).toBe(true);
    expect(find(".mkg-forward-status").textContent).toContain("disconnected");
    const needing = Array.from(host.querySelectorAll<HTMLButtonElement>("[data-mkg-needs-kernel]"));
    expect(needing.length).toBe(3);
    expect(needing.every(element => element.disabled)).toBe(true);
  });
});

describe("the quiz", () => {
  const guess = (text: string) => {
    find<HTMLInputElement>(".mkg-forward-guess").value = text;
    press(find(".mkg-forward-guess"), "Enter");
    return find(".mkg-forward-verdict").textContent;
  };

  it("hides shapes and all that tells them, until they are found", () => {
    show(golden("residual").payload, { step: 1, sample: 1 });
    feed.receive(golden("residual").reply, buffersOf(golden("residual")));
    find<HTMLInputElement>(".mkg-forward-hide").click();
    expect(texts(".mkg-forward-row .mkg-forward-shape")).toEqual(["2×1×2×2", "2×1×2×2", "?", "?"]);
    expect(find(".mkg-forward-details").textContent).not.toMatch(/2×2×2×2|channel|elements/);
    expect(find(".mkg-forward-controls").textContent).not.toContain("of 2");
    expect(guess("7")).toBe("Incorrect: different number of dimensions.");
    expect(guess("seven")).toBe("Enter the sizes, for example 1, 64, 56, 56.");
    expect(guess("2 2 2 2")).toBe("Correct. 2×2×2×2");
    expect(find(".mkg-forward-question").hidden).toBe(true);
    expect(texts(".mkg-forward-row .mkg-forward-shape")).toEqual(["2×1×2×2", "2×1×2×2", "2×2×2×2", "?"]);
    expect(texts(".mkg-forward-map-name")).toEqual(["channel 0", "channel 1"]);
    expect(find(".mkg-forward-score").textContent).toBe("0 of 1 correct");
  });

  it("counts, shows an answer, and begins anew", () => {
    show(golden("residual").payload, { step: 1, hideShapes: true });
    guess("2,2,2,2");
    find(".mkg-forward-next").click();
    find(".mkg-forward-show").click();
    expect(find(".mkg-forward-verdict").textContent).toBe("Answer: 2×2×2×2");
    expect(store.get("quiz")).toEqual({ asked: 2, right: 1 });
    expect(find(".mkg-forward-score").textContent).toBe("1 of 2 correct");
    find(".mkg-forward-restart").click();
    expect(store.get("quiz")).toEqual({ asked: 0, right: 0 });
    expect(find(".mkg-forward-question").hidden).toBe(false);
  });
});

describe("what cannot be shown", () => {
  it.each([
    [{}, "Nothing to show yet. Run the cell."],
    [{ schema_version: 9, kind: "forward_player" }, "Made by another version"],
    [{ ...golden("residual").payload, steps: {} }, "damaged (steps)"],
    ["<img>", "Made by another version"]
  ])("is explained by a fixed text", (raw, text) => {
    show(raw);
    expect(host.textContent).toContain(text);
  });

  it("is a model that calls none of its modules", () => {
    const { steps, ...rest } = golden("residual").payload;
    const empty = Object.fromEntries(Object.keys(steps as object).map(name => [name, []]));
    show({ ...rest, steps: empty });
    expect(find(".mkg-forward-facts").textContent).toContain("No module was called.");
    press(host, "ArrowRight");
    press(host, " ");
    expect([store.get("step"), store.get("playing")]).toEqual([0, false]);
  });
});
