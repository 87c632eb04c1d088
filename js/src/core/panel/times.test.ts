import { afterEach, beforeEach, expect, it } from "vitest";
import { smallNet, storeOf } from "../../testing/sample";
import { Toolbar } from "../graph/parts/toolbar";
import type { Hierarchy } from "../shared/model/hierarchy";
import { search } from "../shared/search/search";
import { ModulePanel } from "./module_panel";

let host: HTMLElement;
let view: { dispose(): void };

beforeEach(() => {
  host = document.createElement("div");
  document.body.append(host);
});

afterEach(() => {
  view.dispose();
  host.remove();
});

/** A net that was measured: 12.5 ms everywhere, but for one quick module and one that was not called. */
function profiled(): Hierarchy {
  const { columns, column_info } = smallNet().payload;
  const time = columns.params.map((_, node) => (node === 3 ? 0.25 : node === 16 ? null : 12.5));
  const info = { ...column_info, time: { label: "time", aggregate: "sum" as const } };
  return smallNet({ columns: { ...columns, time }, column_info: info });
}

it("shows measured times with their unit, and nothing of a module that was not called", () => {
  const h = profiled();
  const store = storeOf({ selected: h.path(3) });
  view = new ModulePanel(host, h, store);
  const facts = () =>
    Array.from(host.querySelectorAll("dt")).map(term => `${term.textContent}: ${term.nextElementSibling?.textContent}`);
  expect(facts()).toContain("Time: 250 µs");
  const titles = Array.from(host.querySelectorAll<HTMLElement>("dd span[title]")).map(element => element.title);
  expect(titles).toContain("0.25 ms");
  store.set("selected", h.path(16));
  expect(facts().filter(fact => fact.startsWith("Time"))).toEqual([]);
});

it("offers the times to color by and to search for", () => {
  const h = profiled();
  view = new Toolbar(host, h, storeOf());
  const offered = Array.from(host.querySelectorAll("option")).map(option => option.value);
  expect(offered).toContain("time");
  expect(search(h, "time<1").nodes).toEqual([3]);
});
