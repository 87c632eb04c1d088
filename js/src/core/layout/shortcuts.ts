// Ways of lines from one row to a later one that are shorter than along both rows, and cross nothing: a line below all else
// in its row goes down at once, one above all else comes down only before its card, and others go past rows that they have
// no end in.

import type { Layers, Segment } from "./layers";

export class Shortcuts {
  readonly leaving = new Set<Segment>(); // the first segments of lines that go down behind their source
  readonly arriving = new Set<Segment>(); // the last ones of lines that come down before their target
  readonly past = new Map<number, "left" | "right">(); // by the vertex at which a row begins: where lines go past it
  readonly out = new Set<number>(); // points that no line passes

  /** Takes those points out of the layers. `rows`: the ranks of each. */
  constructor(
    private readonly layers: Layers,
    rows: readonly (readonly number[])[]
  ) {
    rows.forEach((ranks, row) => {
      const last = layers.layers[ranks[ranks.length - 1]];
      if (row < rows.length - 1) this.leaveBelow(ranks, [...last]);
      if (row > 0) this.arriveAbove(ranks, [...layers.layers[ranks[0]]], row < rows.length - 1);
    });
  }

  /** From the lowest line on that leaves a row. */
  private leaveBelow([first]: readonly number[], last: readonly number[]): void {
    const { rank, item } = this.layers;
    let column = -1; // before it lines that go down would cross the one below
    for (const end of [...last].reverse()) {
      const way = this.wayTo(end, first);
      if (!way?.every(({ to }) => this.isOuter(to, false))) return;
      const [{ from }] = way;
      const isPassing = item[from] < 0 && rank[from] === first && this.layers.into[from].length > 0;
      if (isPassing ? !this.isOuter(from, false) || column >= 0 : way.length < 2 || rank[from] < column) return;
      if (isPassing) {
        this.past.set(from, "left");
      } else {
        this.leaving.add(way[0]);
        column = rank[from];
      }
      way.forEach(({ to }) => this.takeOut(to));
      if (isPassing) this.takeOut(from);
    }
  }

  /** The segments to a point on a line from its source, or from where it comes into the row. */
  private wayTo(end: number, first: number): Segment[] | null {
    const { into, segments, item, rank } = this.layers;
    const way: Segment[] = [];
    for (let at = end; item[at] < 0 && rank[at] > first && into[at].length > 0; at = way[0].from) {
      const segment = segments[into[at][0]];
      if (into[at].length > 1 || segment.isJoint) return null;
      way.unshift(segment);
    }
    return way.length > 0 ? way : null;
  }

  /** From the highest line on that comes to a row. */
  private arriveAbove(ranks: readonly number[], begins: readonly number[], isPassed: boolean): void {
    const { rank } = this.layers;
    let column = Infinity; // behind it lines that come down would cross the one before
    let isRight = true; // all lines above go past the row
    for (const begin of begins) {
      const way = this.wayAlong(begin, ranks[ranks.length - 1]);
      if (!way) return;
      const { points, ends, isWhole } = way;
      isRight &&= isWhole && ends.length === 0 && isPassed;
      if (isRight) this.past.set(begin, "right");
      else if (isWhole) return;
      // up to which point the line has to take its way along the row
      const needed = ends.reduce((most, { from, to }) => {
        return from === begin || rank[to] > column ? Math.max(most, points.indexOf(from)) : most;
      }, -1);
      const arriving = ends.filter(({ from }) => points.indexOf(from) > needed);
      arriving.forEach(end => this.arriving.add(end));
      points.slice(needed + 1).forEach(point => this.takeOut(point, true));
      if (needed >= 0) return;
      column = arriving.reduce((first, { to }) => Math.min(first, rank[to]), column);
    }
  }

  /** The points of a line if all are above all else in their columns, and its ends there; whether it leads on to `last`. */
  private wayAlong(begin: number, last: number): { points: number[]; ends: Segment[]; isWhole: boolean } | null {
    const { item, segments, outOf, rank } = this.layers;
    const [points, ends]: [number[], Segment[]] = [[], []];
    for (let at: number | undefined = begin; at !== undefined;) {
      const out: Segment[] = outOf[at].map(link => segments[link]);
      if (!this.isOuter(at, true) || out.some(({ isJoint }) => isJoint)) return null;
      points.push(at);
      if (rank[at] === last) return { points, ends, isWhole: true };
      ends.push(...out.filter(({ to }) => item[to] >= 0));
      at = out.find(({ to }) => item[to] < 0)?.to;
    }
    return { points, ends, isWhole: false };
  }

  private isOuter(vertex: number, isAbove: boolean): boolean {
    const layer = this.layers.layers[this.layers.rank[vertex]];
    return layer[isAbove ? 0 : layer.length - 1] === vertex;
  }

  private takeOut(vertex: number, isWhole = this.layers.outOf[vertex].length < 2): void {
    const layer = this.layers.layers[this.layers.rank[vertex]];
    const at = isWhole ? layer.indexOf(vertex) : -1;
    if (at < 0) return;
    layer.splice(at, 1);
    this.out.add(vertex);
  }
}
