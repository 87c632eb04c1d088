// The axes of a scatter plot: scale and ticks of each, and the controls that choose what it shows.

import { oneLine } from "../../shared/base/canvas";
import { button, Disposers, el, listen, option, setAttribute } from "../../shared/ui/dom";
import { firstPair, isWide, type Quantity } from "../data/quantities";
import type { ExplorerStore } from "../data/state";
import { logTicks, roundTicks } from "../../metrics/base/value_axis";

// One axis of a scatter: from values to the picture and back, and its ticks. Pure arithmetic.

export interface Scale {
  readonly isLog: boolean;
  /** The place of a value in the picture. */
  at(value: number): number;
  /** Values of the axis between two places, with their places. */
  ticks(from: number, to: number, most: number): readonly { readonly value: number; readonly place: number }[];
}

const ROOM = 0.04; // at both ends, of the whole

/** The values over so much of the picture, from `start`; `isDown`: the largest comes first. */
export function scaleOf(
  values: readonly number[],
  wantsLog: boolean,
  start: number,
  length: number,
  isDown: boolean
): Scale {
  const isLog = wantsLog && values.length > 0 && values.every(value => value > 0);
  const raise = (value: number) => (isLog ? Math.log10(value) : value);
  let [least, most] = [Infinity, -Infinity];
  for (const value of values) [least, most] = [Math.min(least, raise(value)), Math.max(most, raise(value))];
  if (!(most > least)) {
    const half = isLog || most === 0 ? 0.5 : Math.abs(most) / 2;
    [least, most] = Number.isFinite(most) ? [most - half, most + half] : [0, 1];
  }
  const room = (most - least) * ROOM;
  const [low, span] = [least - room, most - least + 2 * room];
  const share = (raised: number) => (isDown ? 1 - (raised - low) / span : (raised - low) / span);
  const back = (place: number) => {
    const part = (place - start) / length;
    return low + span * (isDown ? 1 - part : part);
  };
  const at = (value: number) => start + length * share(raise(value));
  return {
    isLog,
    at,
    ticks: (from, to, count) => {
      const [a, b] = [back(from), back(to)].sort((one, other) => one - other);
      const found = isLog ? logTicks(a, b, count).map(power => 10 ** power) : roundTicks(a, b, count);
      return found.map(value => ({ value, place: at(value) })).filter(({ place }) => Number.isFinite(place));
    }
  };
}

export type Side = "x" | "y";
const SIDES: readonly (readonly [Side, string])[] = [
  ["y", "Up"],
  ["x", "Across"]
];

export class ScatterAxes {
  private readonly disposers = new Disposers();
  private readonly followers: ((scales: Readonly<Record<Side, Scale>>) => void)[] = [];

  constructor(
    private readonly host: HTMLElement,
    private readonly every: readonly Quantity[],
    private readonly store: ExplorerStore
  ) {
    if (every.length >= 2) for (const [side, word] of SIDES) this.addChoice(side, word);
  }

  dispose(): void {
    this.disposers.dispose();
  }

  /** What an axis shows; undefined where models have no two numbers. */
  quantity(side: Side): Quantity | undefined {
    const chosen = this.every.find(({ key }) => key === this.store.get("scatter")[side]);
    return chosen ?? firstPair(this.every)?.[side];
  }

  /** Whether less of it is better. */
  isLess(quantity: Quantity): boolean {
    return this.store.get("less")[quantity.key] ?? quantity.isCost;
  }

  /** Whether its axis goes by powers of ten. */
  isLog(quantity: Quantity, values: readonly number[]): boolean {
    return this.store.get("powers")[quantity.key] ?? isWide(values);
  }

  /** The controls say what is shown. */
  follow(scales: Readonly<Record<Side, Scale>>): void {
    this.followers.forEach(follow => follow(scales));
  }

  private addChoice(side: Side, word: string): void {
    const { store } = this;
    const select = el("select", `mkg-kg-scatter-${side}`);
    select.append(...this.every.map(({ key, label }) => option(key, oneLine(label))));
    const around = el("label", "mkg-view");
    around.append(el("span", "mkg-label", word), select);
    const less = this.toggle(side, "less", "Which way is better, for the front of the best");
    const powers = this.toggle(side, "powers", "Powers of ten");
    powers.textContent = "log";
    this.followers.push(scales => {
      const quantity = this.quantity(side);
      if (!quantity) return;
      select.value = quantity.key;
      less.textContent = this.isLess(quantity) ? "less is better" : "more is better";
      setAttribute(powers, "aria-pressed", String(scales[side].isLog));
    });
    this.disposers.add(
      listen(select, "change", () => store.set("scatter", { ...store.get("scatter"), [side]: select.value }))
    );
    this.host.append(around, less, powers);
  }

  private toggle(side: Side, name: "less" | "powers", title: string): HTMLButtonElement {
    const { store } = this;
    const choice = button("mkg-button", "", title);
    choice.dataset.mkgToggle = `${side}-${name}`;
    const change = () => {
      const quantity = this.quantity(side);
      if (!quantity) return;
      const now = name === "less" ? this.isLess(quantity) : choice.getAttribute("aria-pressed") === "true";
      store.set(name, { ...store.get(name), [quantity.key]: !now });
    };
    this.disposers.add(listen(choice, "click", change));
    return choice;
  }
}
