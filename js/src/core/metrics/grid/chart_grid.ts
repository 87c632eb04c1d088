// All metrics in small charts: first what is logged as a loss, each with its own scale; only those in sight are drawn.

import { Disposers, box, button, el, listen, setAttribute, setRole } from "../../shared/ui/dom";
import { isEqual } from "../../shared/base/state_store";
import { pixelRatio } from "../../shared/base/canvas";
import * as words from "../../words/metrics";
import { linesOf, type PanelStore } from "../base/state";
import { valueText } from "../base/value_axis";
import { hasLayers, modulesOf, orderedMetrics } from "../data/selection";
import { callCount, linePicture, type LinesRendered, pointCount, type Shown, type Source, widened } from "../pictures";
import { LineChart } from "../lines/line_chart";

interface GridEvents {
  open(metric: string): void;
  follow(chart: HTMLElement, metric: LinesRendered, step: number | null): void;
}

const AHEAD = 80; // CSS pixels beyond the edge of what is seen

export class ChartGrid {
  private readonly disposers = new Disposers();
  private readonly scroller = el("div", "mkg-metric-grid-scroller");
  private readonly grid = el("div", "mkg-metric-grid");
  private readonly cards = new Map<string, Card>();
  private shown: readonly Card[] = [];
  private source?: Source;

  constructor(
    private readonly host: HTMLElement,
    private readonly store: PanelStore,
    private readonly events: GridEvents
  ) {
    host.setAttribute("role", "group");
    this.scroller.append(this.grid);
    host.append(this.scroller);
    this.disposers.add(listen(this.scroller, "scroll", () => this.paint()));
  }

  dispose(): void {
    this.disposers.dispose();
    this.cards.forEach(card => card.dispose());
    this.host.replaceChildren();
  }

  /** Pictures of all metrics that have values. */
  draw(source: Source): readonly LinesRendered[] {
    this.source = source;
    const metrics = orderedMetrics(source.data).filter(metric => hasPoints(source, metric));
    const cards = metrics.map(metric => this.cardOf(metric));
    if (!isEqual(cards, this.shown)) {
      for (const [metric, card] of this.cards) {
        if (metrics.includes(metric)) continue;
        card.dispose();
        this.cards.delete(metric);
      }
      this.grid.replaceChildren(...cards.map(({ element }) => element));
      this.shown = cards;
    }
    cards.forEach((card, i) => {
      card.element.classList.toggle("mkg-is-first", i === 0 && !hasLayers(source.data, card.metric));
    });
    const drawn = cards.map(card => card.update(source));
    this.paint();
    return drawn;
  }

  point(series: number | null): void {
    this.cards.forEach(card => card.point(series));
  }

  /** What is in sight, as one picture. */
  get canvas(): HTMLCanvasElement | null {
    const { scroller, source } = this;
    const target = el("canvas");
    const context = source && target.getContext("2d");
    if (!context) return null;
    const ratio = pixelRatio();
    target.width = scroller.clientWidth * ratio;
    target.height = scroller.clientHeight * ratio;
    const origin = scroller.getBoundingClientRect();
    for (const card of this.shown) card.paintOn(context, origin, ratio, source);
    return target;
  }

  private cardOf(metric: string): Card {
    const card = this.cards.get(metric) ?? new Card(metric, this.host, this.store, this.events);
    this.cards.set(metric, card);
    return card;
  }

  private paint(): void {
    const { scroller } = this;
    const top = scroller.scrollTop - AHEAD;
    const bottom = scroller.scrollTop + scroller.clientHeight + AHEAD;
    const places = this.shown.map(({ element }) => [element.offsetTop, element.offsetHeight]);
    this.shown.forEach((card, i) => {
      const [start, height] = places[i];
      if (start <= bottom && start + height >= top) card.paint();
      else card.rest();
    });
  }
}

function hasPoints({ data }: Source, metric: string): boolean {
  return data.index("numbers", metric)?.series.some(series => data.line(series)?.length) ?? false;
}

class Card {
  readonly element: HTMLElement;
  private readonly title = button("mkg-metric-card-title", "");
  private readonly value = el("span", "mkg-metric-card-value");
  private readonly stage = el("div", "mkg-metric-card-stage");
  private readonly note = el("div", "mkg-metric-card-note mkg-dim");
  private chart?: LineChart;
  private drawn?: LinesRendered;

  constructor(
    readonly metric: string,
    private readonly tipHost: HTMLElement,
    private readonly store: PanelStore,
    private readonly events: GridEvents
  ) {
    this.title.append(el("bdi", "", metric));
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

  /** What is to be drawn once the card is in sight. */
  update(source: Source): LinesRendered {
    const drawn = linePicture({ ...source, store: linesOf(source.store, this.metric) });
    this.drawn = drawn;
    setText(this.value, valuesText(drawn));
    const { lines, axis } = drawn.picture;
    const counts = hasLayers(source.data, this.metric) ? this.countText(drawn, source) : "";
    const note = [counts, axis.log ? words.LOG_SCALE : "", ...drawn.remarks].filter(Boolean).join(" · ");
    setText(this.note, note);
    this.note.title = note;
    this.note.hidden = note === "";
    setAttribute(this.element, "aria-current", this.store.get("metric") === this.metric ? "true" : null);
    setAttribute(this.stage, "aria-label", words.lineChart(this.metric, lines.length));
    return drawn;
  }

  paint(): void {
    if (!this.drawn) return;
    const { picture } = this.drawn;
    this.chart ??= this.create();
    this.chart.draw({ ...picture, span: widened(picture.span) });
  }

  paintOn(context: CanvasRenderingContext2D, origin: DOMRect, ratio: number, { theme }: Source): void {
    const canvas = this.chart?.canvas;
    if (!canvas?.width) return;
    const [head, stage] = [this.title, this.stage].map(element => element.getBoundingClientRect());
    context.font = `600 ${12 * ratio}px ${theme.font}`;
    context.fillStyle = theme.text;
    context.textBaseline = "top";
    const title = `${this.metric}  ${this.value.textContent}`;
    context.fillText(title, (head.left - origin.left) * ratio, (head.top - origin.top) * ratio, stage.width * ratio);
    context.drawImage(canvas, (stage.left - origin.left) * ratio, (stage.top - origin.top) * ratio);
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
    if (choice) return choice;
    const modules = new Set(shown.map(({ entry }) => entry.module)).size;
    const all = modulesOf(data, linesOf(store, this.metric)).length;
    const calls = callCount(shown);
    return modules < all ? words.shownOf(modules, all, calls) : words.modulesAndCalls(modules, calls);
  }
}

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

function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
