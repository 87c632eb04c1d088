// All metrics in small charts: first what is logged as a loss, each with its own scale, the colors those of all. Only charts
// in sight are made, and only those that have changed are made anew.

import { box, button, el, keyLine, nameParts, setAttribute, setRole, setText } from "../../shared/ui/dom";
import { isEqual } from "../../shared/base/state_store";
import { canDraw, fittingRatio, type Picture } from "../../shared/base/canvas";
import * as words from "../../words/metrics";
import { linesOf, type PanelStore } from "../base/state";
import { valueText } from "../base/value_axis";
import { AUTO_COUNT, chosenModules, hasLayers, modulesOf, orderedMetrics, sharedModules } from "../data/selection";
import {
  callCount,
  type ChosenLines,
  chosenLines,
  linePicture,
  type LinesRendered,
  pointCount,
  type Shown,
  type Source,
  widened
} from "../pictures";
import type { ChartLine } from "../lines/chart_picture";
import { lossesWith } from "../data/logged_losses";
import { LineChart } from "../lines/line_chart";

interface GridEvents {
  open(metric: string): void;
  follow(chart: HTMLElement, metric: LinesRendered, step: number | null): void;
  seen(): void; // other charts are in sight
}

const AHEAD = 200; // CSS pixels beyond the edge of what is seen

export class ChartGrid {
  private readonly scroller = el("div", "mkg-metric-grid-scroller");
  private readonly grid = el("div", "mkg-metric-grid");
  private readonly cards = new Map<string, Card>();
  private shown: readonly Card[] = [];
  private source?: Source;
  private choice = ""; // what all charts were made by
  private readonly observer?: IntersectionObserver;

  constructor(
    private readonly host: HTMLElement,
    private readonly store: PanelStore,
    private readonly events: GridEvents
  ) {
    host.setAttribute("role", "group");
    this.scroller.append(this.grid);
    host.append(this.scroller);
    if (typeof IntersectionObserver !== "function") return;
    const around = { root: this.scroller, rootMargin: `${AHEAD}px 0px` };
    this.observer = new IntersectionObserver(entries => this.see(entries), around);
  }

  dispose(): void {
    this.observer?.disconnect();
    this.cards.forEach(card => card.dispose());
    this.host.replaceChildren();
  }

  /**
   * Pictures of all metrics that have values. Those out of sight may be of values that have changed since, unless all are
   * `wanted`.
   */
  draw(source: Source, wanted = false): readonly LinesRendered[] {
    const before = this.source;
    this.source = source;
    const metrics = chartedMetrics(source);
    const cards = metrics.map(metric => this.cardOf(metric));
    if (!isEqual(cards, this.shown)) {
      for (const [metric, card] of this.cards) {
        if (metrics.includes(metric)) continue;
        this.observer?.unobserve(card.element);
        card.dispose();
        this.cards.delete(metric);
      }
      this.grid.replaceChildren(...cards.map(({ element }) => element));
      this.shown = cards;
    }
    cards.forEach((card, i) => {
      card.element.classList.toggle("mkg-is-first", i === 0 && !hasLayers(source.data, card.metric));
    });
    const shared = sharedChoice(source);
    const chosen = { ...this.store.snapshot(), pointed: null, notice: "" };
    const choice = JSON.stringify([source.data.structure, shared, chosen]);
    const isOther = choice !== this.choice || source.theme !== before?.theme;
    this.choice = choice;
    for (const card of cards) if (isOther || wanted || card.isSeen) card.choose(source, shared, choice);
    const slots = slotsOf(source, cards);
    const drawn = cards.map(card => card.update(slots));
    for (const card of cards) if (card.isSeen) card.paint();
    return drawn.filter(one => one !== undefined);
  }

  point(series: number | null): void {
    this.cards.forEach(card => card.point(series));
  }

  /** All charts as one picture; those out of sight are made for it, one after the other. */
  async picture(source: Source): Promise<Picture | null> {
    const { grid } = this;
    const canvas = el("canvas");
    const context = canDraw() ? canvas.getContext("2d") : null;
    if (!context) return null;
    this.draw(source, true);
    const ratio = fittingRatio(grid.offsetWidth, grid.offsetHeight);
    canvas.width = grid.offsetWidth * ratio;
    canvas.height = grid.offsetHeight * ratio;
    context.scale(ratio, ratio);
    for (const card of this.shown) {
      card.paint();
      await Promise.resolve(); // the chart library draws at the end of the present task
      card.paintOn(context, grid.getBoundingClientRect(), source);
      if (!card.isSeen) card.rest();
    }
    return { canvas, ratio };
  }

  private cardOf(metric: string): Card {
    const known = this.cards.get(metric);
    if (known) return known;
    const card = new Card(metric, this.host, this.store, this.events);
    card.isSeen = !this.observer; // else it says so at once
    this.observer?.observe(card.element);
    this.cards.set(metric, card);
    return card;
  }

  private see(entries: readonly IntersectionObserverEntry[]): void {
    for (const { target, isIntersecting } of entries) {
      const card = this.shown.find(({ element }) => element === target);
      if (!card) continue;
      card.isSeen = isIntersecting;
      if (!isIntersecting) card.rest();
    }
    this.events.seen();
  }
}

interface Choice {
  readonly modules?: readonly string[]; // of all charts, where the choice is not left to each
  readonly isAuto: boolean;
}

function sharedChoice({ data, store }: Source): Choice {
  const { modules, isAuto } = chosenModules(data, store);
  if (modules.length > AUTO_COUNT) return { modules: sharedModules(data, store, modules), isAuto };
  return { modules: isAuto && modules.length ? modules : undefined, isAuto };
}

const CHARTS = { module: "\n", run: "\nruns", metric: "\nlosses" }; // in the book of colors

/** The colors of modules, of runs and of losses: one for each in all charts. */
function slotsOf({ colors }: Source, cards: readonly Card[]): (lines: ChosenLines) => number[] {
  const slotsBy = (colorsBy: ChosenLines["colorsBy"]) => {
    const keys = [...new Set(cards.flatMap(({ lines }) => (lines?.colorsBy === colorsBy ? lines.keys : [])))];
    const slots = colors.slotsOf(keys, CHARTS[colorsBy]);
    return new Map(keys.map((key, i) => [key, slots[i]]));
  };
  const found = { module: slotsBy("module"), run: slotsBy("run"), metric: slotsBy("metric") };
  return ({ keys, colorsBy }) => keys.map(key => found[colorsBy].get(key) ?? 0);
}

/** The metrics with a chart of their own: of losses that are drawn together the first. */
function chartedMetrics(source: Source): string[] {
  const found = orderedMetrics(source.data).filter(metric => hasPoints(source, metric));
  return found.filter(metric => lossesWith(source.data, metric).find(one => found.includes(one)) === metric);
}

function hasPoints({ data }: Source, metric: string): boolean {
  return data.index("numbers", metric)?.series.some(series => data.line(series)?.length) ?? false;
}

class Card {
  readonly element: HTMLElement;
  private readonly title = button("mkg-metric-card-title", "");
  private readonly name = el("bdi");
  private readonly value = el("span", "mkg-metric-card-value");
  private readonly stage = el("div", "mkg-metric-card-stage");
  private readonly note = el("div", "mkg-metric-card-note mkg-dim");
  isSeen = false;
  lines?: ChosenLines;
  private chart?: LineChart;
  private drawn?: LinesRendered;
  private painted?: LinesRendered;
  private built = ""; // what the lines were chosen from
  private source?: Source;
  private slots: readonly number[] = [];
  private size = "";
  private isAuto = false;
  private chosen = 0; // modules of all charts

  constructor(
    readonly metric: string,
    private readonly tipHost: HTMLElement,
    private readonly store: PanelStore,
    private readonly events: GridEvents
  ) {
    this.title.append(this.name);
    this.title.title = `${metric}\n${words.ENLARGE}`;
    this.title.addEventListener("click", () => events.open(metric));
    const head = box("mkg-metric-card-head", this.title, this.value);
    this.element = box("mkg-metric-card", head, this.stage, this.note);
    this.element.dataset.mkgMetric = metric;
    setRole(this.element, "group", metric);
    this.stage.setAttribute("role", "group");
    this.stage.tabIndex = 0; // also while it rests: the focus brings it in sight
  }

  dispose(): void {
    this.rest();
    this.element.remove();
  }

  /** Out of sight it has no chart. */
  rest(): void {
    this.chart?.dispose();
    this.chart = undefined;
  }

  point(series: number | null): void {
    this.chart?.point(series);
  }

  /** Which series are drawn; `choice`: what all charts are made by. */
  choose(source: Source, { modules, isAuto }: Choice, choice: string): void {
    const { data, store } = source;
    this.isAuto = isAuto;
    this.chosen = modules?.length ?? 0;
    const built = `${data.index("numbers", this.metric)?.revision} ${data.alertCount} ${choice}`;
    if (built === this.built && this.source?.theme === source.theme) return;
    this.built = built;
    this.source = { ...source, store: linesOf(store, this.metric, modules) };
    this.lines = chosenLines(this.source);
    this.drawn = undefined;
  }

  /** What is to be drawn once the card is in sight. */
  update(slotsOf: (lines: ChosenLines) => number[]): LinesRendered | undefined {
    const { source, lines: own } = this;
    if (!source || !own) return undefined;
    const slots = slotsOf(own);
    if (this.drawn && isEqual(slots, this.slots)) return this.drawn;
    this.slots = slots;
    const drawn = linePicture(source, own, slots);
    this.drawn = drawn;
    const { lines } = drawn.picture;
    const isShared = drawn.shown.some(({ logged }) => logged);
    setText(this.name, isShared ? words.LOSSES : this.metric);
    if (isShared) this.showKeys(lines);
    else setText(this.value, valuesText(drawn));
    const counts = hasLayers(source.data, this.metric) ? this.countText(drawn, source) : "";
    const note = [counts, ...drawn.remarks].filter(Boolean).join(" · ");
    setText(this.note, note);
    this.note.title = note;
    this.note.hidden = note === "";
    const isChosen = lossesWith(source.data, this.metric).includes(this.store.get("metric"));
    setAttribute(this.element, "aria-current", isChosen ? "true" : null);
    setAttribute(this.stage, "aria-label", words.lineChart(this.name.textContent ?? "", lines.length));
    return drawn;
  }

  /** The lines with their names and latest values: several share the chart. */
  private showKeys(lines: readonly ChartLine[]): void {
    this.value.replaceChildren(
      ...lines.flatMap(line => {
        const key = box("mkg-metric-card-key", ...nameParts(line));
        key.prepend(keyLine(line.color, line.dash));
        key.append(" ", el("span", "mkg-metric-card-number", lastText(line, 4)));
        return [key, " "];
      })
    );
  }

  paint(): void {
    const { drawn, stage } = this;
    const size = `${stage.clientWidth} ${stage.clientHeight}`;
    if (!drawn || (this.chart && this.painted === drawn && this.size === size)) return;
    [this.painted, this.size] = [drawn, size];
    this.chart ??= this.create();
    this.chart.draw({ ...drawn.picture, span: widened(drawn.picture.span) });
  }

  /** With its title above and its note below, in CSS pixels. */
  paintOn(context: CanvasRenderingContext2D, origin: DOMRect, { theme }: Source): void {
    const canvas = this.chart?.canvas;
    if (!canvas?.width) return;
    const [head, stage, note] = [this.title, this.stage, this.note].map(part => part.getBoundingClientRect());
    const write = (text: string, { left, top }: DOMRect) =>
      context.fillText(text, left - origin.left, top - origin.top, stage.width);
    context.textBaseline = "top";
    context.font = `600 12px ${theme.font}`;
    context.fillStyle = theme.text;
    write(`${this.name.textContent}  ${this.value.textContent}`, head);
    context.drawImage(canvas, stage.left - origin.left, stage.top - origin.top, stage.width, stage.height);
    context.font = `11px ${theme.font}`;
    context.fillStyle = theme.muted;
    if (!this.note.hidden) write(this.note.title, note);
  }

  private create(): LineChart {
    const { store, events, tipHost } = this;
    const hooks = {
      zoom: (span: Parameters<PanelStore["set"]>[1] & null) => store.set("zoom", span),
      hover: (step: number | null) => this.drawn && events.follow(this.stage, this.drawn, step),
      pick: () => undefined
    };
    return new LineChart(this.stage, hooks, { tipHost, open: () => events.open(this.metric) });
  }

  private countText({ shown, choice }: LinesRendered, { data, store }: Source): string {
    if (choice && !this.chosen) return choice;
    const modules = new Set(shown.map(({ entry }) => entry.module)).size;
    const all = modulesOf(data, store).length;
    const calls = callCount(shown);
    if (modules >= all) return words.modulesAndCalls(modules, calls);
    if (this.isAuto && modules < this.chosen) return words.unusualWithIt(modules, this.chosen, calls);
    return this.isAuto ? words.unusual(modules, all, calls) : words.shownOf(modules, all, calls);
  }
}

const lastText = ({ data, range }: ChartLine, digits: number) =>
  range.end > range.start ? shortText(data.values[range.end - 1], digits) : "";

/** The latest value, or from where to where those of several lines reach. */
function valuesText({ picture: { lines } }: LinesRendered): string {
  const values = lines
    .filter(({ range }) => range.end > range.start)
    .map(({ data, range }) => data.values[range.end - 1]);
  const finite = values.filter(Number.isFinite);
  if (values.length === 1) return shortText(values[0], 4);
  if (!finite.length) return "";
  const [low, high] = [Math.min(...finite), Math.max(...finite)].map(value => shortText(value, 3));
  return low === high ? low : `${low} – ${high}`;
}

const shortText = (value: number, digits: number) =>
  valueText(Number(value.toPrecision(digits))).replace(/\.?0+(?=e)/, "");

/** All series of all charts, once each. */
export const shownIn = (drawn: readonly LinesRendered[]): Shown[] => drawn.flatMap(({ shown }) => shown);

export const pointsIn = ({ data }: Source, drawn: readonly LinesRendered[]): number => pointCount(data, shownIn(drawn));
