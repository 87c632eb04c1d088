// What is set against what in a scatter, which way is better, and whether by powers of ten.

import { oneLine } from "../shared/canvas";
import { button, Disposers, el, listen, option, setAttribute } from "../shared/dom";
import { firstPair, isWide, type Quantity } from "./scatter_data";
import type { Scale } from "./scatter_scale";
import type { ExplorerStore } from "./state";

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
