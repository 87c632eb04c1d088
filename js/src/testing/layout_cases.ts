// Large requests for the layout worker, by name: what test_layout_speed.py measures.

import { requestOf, seeded, type Sketch } from "./layouts";
import type { LayoutRequest, Size } from "../core/layout/types";

const CARDS = 2000;
const LABEL = "1×64×56×56";

export function largeRequests(): Record<string, LayoutRequest> {
  const sketches = { mixture: mixture(), chain: chain(), skips: dag(30), "skips of any length": dag(CARDS), branches: branches(400), dense: dense(60) }; // prettier-ignore
  return Object.fromEntries(Object.entries(sketches).map(([name, sketch]) => [name, requestOf(sketch)]));
}

const lot = (seed: number) => {
  const next = seeded(seed);
  const below = (count: number) => Math.floor(next() * count);
  return { next, below, card: (): Size => [100 + below(140), 40 + below(30)] };
};

function flat(count: number, links: Sketch["links"]): Sketch {
  const { card } = lot(count);
  return { parent: new Array<number>(count).fill(-1), sizes: Array.from({ length: count }, card), links };
}

const chain = (): Sketch =>
  flat(
    CARDS,
    Array.from({ length: CARDS - 1 }, (_, at) => [at, at + 1, LABEL])
  );

/** Frames with a chain, a skip and branches in each, and small cards between them. */
function mixture(): Sketch {
  const { next, below, card } = lot(1);
  const sketch: Sketch = { parent: [], sizes: [], links: [] };
  const add = (parent: number, size: Size) => {
    sketch.parent.push(parent);
    return sketch.sizes.push(size) - 1;
  };
  for (let last = -1; sketch.parent.length < CARDS;) {
    const frame = add(-1, [160, 0]);
    const inside = Array.from({ length: 6 + below(14) }, () => add(frame, card()));
    const [first, end] = [inside[0], inside[inside.length - 1]];
    inside.slice(1).forEach((to, at) => sketch.links.push([inside[at], to, LABEL]));
    if (next() < 0.6) sketch.links.push([first, end, LABEL]);
    for (let branch = next() < 0.4 ? 4 : 0; branch > 0; branch--) {
      const middle = add(frame, card());
      sketch.links.push([first, middle, ""], [middle, end, ""]);
    }
    if (last >= 0) sketch.links.push([last, first, LABEL]);
    last = end;
    if (next() < 0.5) {
      last = add(-1, [40, 26]);
      sketch.links.push([end, last, LABEL]);
    }
  }
  return sketch;
}

/** Every card reads one just before it, and three of ten another one, at most `longest` before. */
function dag(longest: number): Sketch {
  const { next, below } = lot(2);
  const links: Sketch["links"] = [];
  for (let at = 1; at < CARDS; at++) {
    links.push([at - 1 - below(Math.min(at, 3)), at, LABEL]);
    if (next() < 0.3) links.push([at - 1 - below(Math.min(at, longest)), at, ""]);
  }
  return flat(CARDS, links);
}

function branches(count: number): Sketch {
  const each = (at: number): Sketch["links"] => [[0, at + 1, LABEL], [at + 1, count + 1, LABEL]]; // prettier-ignore
  return flat(count + 2, Array.from({ length: count }, (_, at) => each(at)).flat());
}

/** Every card reads all before it. */
function dense(count: number): Sketch {
  const all = Array.from({ length: count }, (_, at) => at);
  return flat(
    count,
    all.flatMap(to => all.slice(0, to).map((from): Sketch["links"][number] => [from, to, ""]))
  );
}
