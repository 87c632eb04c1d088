// The frequency of structures against their rank, on linear or logarithmic axes, with the fitted laws.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { canDraw, oneLine } from "../../shared/base/canvas";
import {
  button,
  el,
  listen,
  nameSpan,
  setAttribute,
  keyLine,
  setRole,
  Part,
  onResize,
  setText
} from "../../shared/ui/dom";
import { exactNumber, shortNumber } from "../../shared/base/format";
import { watchTheme } from "../../shared/stage/theme";
import { type ChartTheme, readChartTheme } from "../../metrics/base/chart_theme";
import { Tooltip } from "../../shared/ui/tooltip";
import { table } from "../../panel/parts";
import { toNumber } from "../../shared/payload/payload";
import type { Knowledge } from "../data/knowledge";
import { emptyNote } from "../data/descriptions";
import { type SearchHits, searchHits, noResultsNote } from "../data/search";
import type { ExplorerStore } from "../data/state";
import { timesPowers } from "../../metrics/base/value_axis";
import * as words from "../../words/knowledge";

// Ranks and uses as points, and the laws that were fitted to them. Pure arithmetic.

interface RankedUses {
  readonly entities: readonly number[]; // by falling uses
  readonly counts: readonly number[];
}

export function rankedUses(data: Knowledge): RankedUses {
  const { names } = { names: data.payload.entities.name };
  const entities = Array.from({ length: data.size }, (_, i) => i).filter(i => data.uses[i] > 0);
  entities.sort((a, b) => data.uses[b] - data.uses[a] || (names[a] < names[b] ? -1 : 1));
  return { entities, counts: entities.map(entity => data.uses[entity]) };
}

interface Law {
  readonly name: string;
  readonly points: readonly (readonly [rank: number, count: number])[]; // by rising rank
}

export function laws(data: Knowledge): Law[] {
  return data.payload.fit.lines.map(([name, flat]) => {
    const points: [number, number][] = [];
    for (let at = 0; at < flat.length; at += 2) {
      const [count, rank] = [toNumber(flat[at]), toNumber(flat[at + 1])];
      if (count !== null && rank !== null && count > 0 && rank > 0.5 && Number.isFinite(rank))
        points.push([rank, count]);
    }
    return { name, points: points.sort((a, b) => a[0] - b[0]) };
  });
}

/** Columns for a chart: one axis for all points, and one of counts for the ranks, each law and the marked structures. */
export function chartColumns(
  { counts, entities }: RankedUses,
  found: readonly Law[],
  logarithmic: boolean,
  marked: ReadonlySet<number> = new Set()
): (number | null)[][] {
  const scale = (value: number) => (logarithmic ? Math.log10(value) : value);
  const rows: [number, number, number][] = counts.map((count, i) => [i + 1, 0, count]); // rank, series, count
  found.forEach(({ points }, law) => points.forEach(([rank, count]) => rows.push([rank, law + 1, count])));
  rows.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const columns: (number | null)[][] = Array.from({ length: found.length + 2 }, () => []);
  for (const [rank, series, count] of rows) {
    columns[0].push(scale(rank));
    for (let i = 1; i < columns.length; i += 1) columns[i].push(i === series + 1 ? scale(count) : null);
  }
  if (marked.size > 0) {
    let rank = 0; // ranks come in their order
    columns.push(columns[1].map(count => (count !== null && marked.has(entities[rank++]) ? count : null)));
  }
  return columns;
}

/** 1, 10, 100… on logarithmic axes; with 2 and 5 between them while there are few. */
export function decades(min: number, max: number): number[] {
  return timesPowers(min, max, max - min < 1.5 ? [1, 2, 5] : [1]);
}

const AXIS_FONT = 11;
const NEAR = 30; // pixels from a point that still count as a click on it
const MIN_SIZE = 80;
const DASHES = [[], [6, 4], [2, 3]];

export class FrequencyChart extends Part {
  private readonly controls = el("div", "mkg-kg-controls");
  private readonly chart = el("div", "mkg-kg-chart");
  private readonly notes = el("div", "mkg-kg-fit");
  private readonly nothing = el("div", "mkg-kg-nothing-place");
  private readonly said = el("span", "mkg-kg-note");
  private readonly scales = el("div", "mkg-kg-views");
  private readonly tip: Tooltip;
  private readonly ranks: RankedUses;
  private readonly laws: readonly Law[];
  private readonly mark = el("div", "mkg-kg-chart-mark");
  private plot?: uPlot;
  private theme?: ChartTheme;
  private keyRank: number | null = null; // where the keyboard is

  constructor(
    host: HTMLElement,
    private readonly data: Knowledge,
    private readonly store: ExplorerStore
  ) {
    super(host);
    host.classList.add("mkg-kg-frequency-view");
    this.ranks = rankedUses(data);
    this.laws = laws(data);
    this.chart.tabIndex = 0;
    setRole(this.chart, "application", words.FREQUENCY);
    this.chart.setAttribute("aria-keyshortcuts", "ArrowLeft ArrowRight Home End Enter");
    this.said.setAttribute("role", "status");
    this.mark.hidden = true;
    this.addControls();
    this.addNotes();
    host.append(this.controls, this.nothing, this.chart, this.notes);
    this.tip = new Tooltip(this.chart);
    this.listen();
    this.draw();
  }

  override dispose(): void {
    this.plot?.destroy();
    super.dispose();
  }

  private addControls(): void {
    setRole(this.scales, "group", words.SCALE);
    for (const [name, text] of [
      ["log", words.LOG_LOG],
      ["linear", words.LINEAR]
    ] as const) {
      const choice = button("mkg-kg-view", text);
      choice.dataset.mkgScale = name;
      this.disposers.add(listen(choice, "click", () => this.store.set("logarithmic", name === "log")));
      this.scales.append(choice);
    }
    this.controls.append(this.scales, this.said);
  }

  private addNotes(): void {
    const { fit } = this.data.payload;
    const verdict = el("p", "mkg-kg-verdict");
    verdict.append(nameSpan("", fit.verdict));
    const rows = fit.comparisons.map(([law, ratio, p]) =>
      [law, number(ratio), number(p)].map(text => nameSpan("", text))
    );
    this.notes.append(verdict);
    if (rows.length) this.notes.append(table([words.COMPARED_WITH, words.LIKELIHOOD_RATIO, "p"], rows));
  }

  private listen(): void {
    this.disposers.add(
      this.store.on(["logarithmic", "query"], () => this.draw()),
      this.store.on("selected", () => this.showSelected()),
      listen(this.chart, "keydown", event => this.key(event)),
      listen(this.chart, "blur", () => this.moveTo(null)),
      watchTheme(() => {
        this.theme = undefined;
        this.draw();
      })
    );
    this.disposers.add(onResize(this.chart, () => this.resize()));
  }

  private get isLog(): boolean {
    return this.store.get("logarithmic");
  }

  private scaled(value: number): number {
    return this.isLog ? Math.log10(value) : value;
  }

  private get hits(): SearchHits {
    return searchHits(this.data, this.store.get("query"));
  }

  /** What says that nothing is there, where the chart would say it by emptiness alone. */
  private showNothing(): void {
    const { isActive, modules, isEmpty } = this.hits;
    const notes: HTMLElement[] = [];
    if (this.ranks.counts.length === 0) notes.push(emptyNote("models", this.store));
    else if (isActive && modules.size === 0) notes.push(noResultsNote(this.store, isEmpty));
    this.nothing.replaceChildren(...notes);
  }

  private draw(): void {
    this.showNothing();
    for (const choice of this.scales.querySelectorAll<HTMLElement>("button")) {
      setAttribute(choice, "aria-pressed", String((choice.dataset.mkgScale === "log") === this.isLog));
    }
    this.say(null);
    this.plot?.destroy();
    this.plot = undefined;
    this.chart.querySelector(".mkg-kg-plot")?.remove();
    if (!canDraw() || this.ranks.counts.length === 0) return;
    this.theme ??= readChartTheme(this.host);
    const target = el("div", "mkg-kg-plot");
    this.chart.prepend(target);
    const columns = chartColumns(this.ranks, this.laws, this.isLog, this.hits.modules);
    this.plot = new uPlot(this.options(this.theme), columns as unknown as uPlot.AlignedData, target);
    this.plot.over.append(this.mark);
    this.disposePlotListeners(this.plot);
    this.drawKey(this.theme);
    this.showSelected();
  }

  private disposePlotListeners(plot: uPlot): void {
    plot.over.addEventListener("click", () => this.click());
    plot.over.addEventListener("mousemove", () => void (this.keyRank = null));
  }

  private options(theme: ChartTheme): uPlot.Options {
    const { clientWidth: width, clientHeight: height } = this.chart;
    const most = this.ranks.counts.length;
    const x: uPlot.Scale.Range = this.isLog ? [0, Math.log10(most) * 1.02 || 1] : [0, most];
    const highest = this.ranks.counts[0] ?? 1;
    const y: uPlot.Scale.Range = this.isLog ? [0, Math.log10(highest) * 1.05 || 1] : [0, highest * 1.05];
    const axis = (label: string, size: number): uPlot.Axis => ({
      stroke: theme.muted,
      font: `${AXIS_FONT}px ${theme.font}`,
      labelFont: `${AXIS_FONT}px ${theme.font}`,
      label,
      labelSize: 18,
      size,
      grid: { stroke: theme.grid, width: 1 },
      ticks: { stroke: theme.axis, width: 1, size: 4 },
      border: { show: true, stroke: theme.axis, width: 1 },
      values: (_plot, ticks) => ticks.map(tick => exactNumber(this.isLog ? Math.round(10 ** tick) : tick)),
      ...(this.isLog ? { splits: (_plot: uPlot, _axis: number, min: number, max: number) => decades(min, max) } : {})
    });
    return {
      width: Math.max(MIN_SIZE, width),
      height: Math.max(MIN_SIZE, height),
      padding: [14, 18, 0, 0],
      legend: { show: false },
      scales: { x: { time: false, range: () => x as [number, number] }, y: { range: () => y as [number, number] } },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      axes: [axis("rank", 32), axis("uses", 52)],
      series: [
        {},
        {
          stroke: theme.line(0),
          width: 0,
          paths: () => null,
          points: { show: true, size: 5, ...dots(this.hits.modules.size > 0 ? theme.axis : theme.line(0)) }
        },
        ...this.laws.map((_, i) => ({
          stroke: theme.line(i + 1),
          width: 2,
          dash: DASHES[i % DASHES.length],
          spanGaps: true,
          points: { show: false }
        })),
        ...(this.hits.modules.size > 0 ? [hitsSeries(theme.line(0))] : [])
      ],
      hooks: { setCursor: [() => this.follow()] }
    };
  }

  private drawKey(theme: ChartTheme): void {
    const key = el("div", "mkg-kg-chart-key");
    const entry = (color: string, dash: readonly number[], text: string) => {
      const line = el("span", "mkg-kg-chart-entry");
      line.append(keyLine(color, [...dash]), nameSpan("", text));
      key.append(line);
    };
    const { modules } = this.hits;
    entry(modules.size > 0 ? theme.axis : theme.line(0), [1, 3], "structures");
    if (modules.size > 0) entry(theme.line(0), [1, 3], "found");
    this.laws.forEach(({ name }, i) => entry(theme.line(i + 1), DASHES[i % DASHES.length], name));
    this.controls.querySelector(".mkg-kg-chart-key")?.remove();
    this.controls.append(key);
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.chart;
    if (!this.plot) this.draw();
    else if (width > 0) this.plot.setSize({ width: Math.max(MIN_SIZE, width), height: Math.max(MIN_SIZE, height) });
    this.showSelected();
  }

  // ------------------------------------------------------------ pointing

  /** The rank, from 1, that is nearest to the cursor. */
  private cursorRank(): number | null {
    if (this.keyRank !== null) return this.keyRank;
    const left = this.plot?.cursor.left ?? -1;
    if (left < 0 || !this.plot) return null;
    const value = this.plot.posToVal(left, "x");
    const rank = Math.round(this.isLog ? 10 ** value : value);
    return Math.max(1, Math.min(this.ranks.counts.length, rank));
  }

  private place(rank: number): { x: number; y: number } {
    const { plot } = this;
    if (!plot) return { x: 0, y: 0 };
    return {
      x: plot.valToPos(this.scaled(rank), "x"),
      y: plot.valToPos(this.scaled(this.ranks.counts[rank - 1]), "y")
    };
  }

  private follow(): void {
    const rank = this.cursorRank();
    if (rank === null || !this.plot) {
      this.tip.hide();
      this.say(null);
      return;
    }
    const { x, y } = this.place(rank);
    const { over } = this.plot;
    const entity = this.ranks.entities[rank - 1];
    const rows = [
      { name: words.RANK_ROW, value: exactNumber(rank) },
      { name: words.USES_ROW, value: exactNumber(this.ranks.counts[rank - 1]) },
      { name: words.MODELS_ROW, value: exactNumber(this.data.modelsOf[entity].length) }
    ];
    this.tip.show(
      x + over.offsetLeft,
      Math.max(0, y + over.offsetTop - 20),
      oneLine(this.data.payload.entities.name[entity]),
      rows
    );
    if (this.keyRank !== null) this.say(rank);
  }

  private say(rank: number | null): void {
    const { entities, counts } = this.ranks;
    const text =
      rank === null
        ? this.summary()
        : words.atRank(rank, this.data.payload.entities.name[entities[rank - 1]], counts[rank - 1]);
    setText(this.said, text);
  }

  private summary(): string {
    const { isActive, modules, byModels, source } = this.hits;
    const every = words.structures(this.ranks.counts.length);
    if (!isActive || modules.size === 0) return every;
    return words.marked(words.outOf(exactNumber(modules.size), every)) + (byModels ? words.ofSource(source) : "");
  }

  private click(): void {
    const rank = this.cursorRank();
    if (rank === null || !this.plot) return;
    const { y } = this.place(rank);
    if (Math.abs(y - (this.plot.cursor.top ?? -NEAR)) <= NEAR) this.choose(rank);
  }

  private choose(rank: number): void {
    this.store.set("item", null);
    this.store.set("selected", this.data.payload.entities.digest[this.ranks.entities[rank - 1]]);
  }

  private showSelected(): void {
    const thing = this.data.find(this.store.get("selected"));
    const at = thing?.kind === "module" ? this.ranks.entities.indexOf(thing.index) : -1;
    this.mark.hidden = at < 0 || !this.plot;
    if (this.mark.hidden) return;
    const { x, y } = this.place(at + 1);
    this.mark.style.transform = `translate(${x}px, ${y}px)`;
  }

  private key(event: KeyboardEvent): void {
    const last = this.ranks.counts.length;
    const from = this.keyRank ?? this.cursorRank() ?? 0;
    const places: Record<string, number> = { ArrowRight: from + 1, ArrowLeft: from - 1, Home: 1, End: last };
    if (event.ctrlKey || event.metaKey || event.altKey || (!(event.key in places) && event.key !== "Enter")) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") {
      if (this.keyRank !== null) this.choose(this.keyRank);
    } else this.moveTo(Math.max(1, Math.min(last, places[event.key])));
  }

  private moveTo(rank: number | null): void {
    this.keyRank = rank;
    const { plot } = this;
    if (!plot) return;
    const { x, y } = rank === null ? { x: -10, y: -10 } : this.place(rank);
    plot.setCursor({ left: x, top: y });
    if (rank !== null) this.say(rank);
  }
}

const dots = (color: string) => ({ stroke: color, fill: color });

const hitsSeries = (color: string): uPlot.Series => ({
  stroke: color,
  width: 0,
  paths: () => null,
  points: { show: true, size: 7, ...dots(color) }
});

function number(value: number | string | null): string {
  const found = value === null ? null : toNumber(value);
  return found === null ? "–" : shortNumber(found);
}
