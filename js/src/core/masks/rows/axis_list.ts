// The list of what can be removed: blocks, free axes and frozen ones, of which only the rows near the view are in the page.

import { button, Disposers, el, listen, nameSpan, setAttribute } from "../../shared/ui/dom";
import { BlockList } from "./block_list";
import { cellLayout, type RowMove } from "../cell_drawing";
import { AxisRow } from "./axis_row";
import type { EditorContext } from "../session/editor_context";
import type { IndexStripOwner } from "../cells/index_strip";
import { axesText, blocksText } from "../draft/number_texts";
import { exactNumber } from "../../shared/base/format";
import type { PlanData } from "../draft/plan_data";

// The frozen axes in one line: how many there are, and how many for which reason. It opens on all of them.

const MAX_REASONS = 4;
let folds = 0;

class FrozenFold {
  readonly heading = el("div", "mkg-mask-heading mkg-mask-fold");
  private readonly disposers = new Disposers();
  private readonly toggle = button("mkg-mask-fold-toggle", "");
  private isOpen = false; // by hand, or to show an axis
  private isSought = false; // a search has found some of them

  constructor(
    private readonly list: HTMLElement,
    data: PlanData,
    axes: readonly number[],
    private readonly changed: () => void
  ) {
    const counts = countsByReason(data, axes);
    this.heading.setAttribute("role", "heading");
    this.heading.setAttribute("aria-level", "3");
    list.id = `mkg-mask-frozen-${++folds}`;
    this.toggle.setAttribute("aria-controls", list.id);
    this.toggle.append(el("strong", "", `${axesText(axes.length).replace(" ", " frozen ")}:`), " ", reasons(counts));
    this.toggle.title = counts.map(([reason, count]) => `${exactNumber(count)} × ${reason}`).join("\n");
    this.heading.append(this.toggle);
    this.disposers.add(listen(this.toggle, "click", () => this.open(!this.isShown)));
    this.draw();
  }

  get isShown(): boolean {
    return this.isOpen || this.isSought;
  }

  dispose(): void {
    this.disposers.dispose();
  }

  open(isOpen: boolean): void {
    this.isOpen = isOpen;
    this.isSought = false;
    this.draw();
    this.changed();
  }

  /** While a search finds some of them, they are shown. */
  seek(isFound: boolean): void {
    this.isSought = isFound;
    this.draw();
  }

  private draw(): void {
    this.list.hidden = !this.isShown;
    this.toggle.setAttribute("aria-expanded", String(this.isShown));
  }
}

function reasons(counts: readonly (readonly [string, number])[]): HTMLElement {
  const line = el("span", "mkg-mask-fold-reasons");
  counts.slice(0, MAX_REASONS).forEach(([reason, count], at) => {
    line.append(at ? ", " : "", `${exactNumber(count)} × `, nameSpan("", reason));
  });
  const rest = counts.length - MAX_REASONS;
  if (rest > 0) line.append(`, ${exactNumber(rest)} more reasons`);
  return line;
}

/** The kinds of reasons, the most frequent first. */
function countsByReason(data: PlanData, axes: readonly number[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const axis of axes) {
    const kind = kindOf(data.reason(axis) ?? "", data.axes.members[axis]);
    counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  return [...counts].sort(([, a], [, b]) => b - a);
}

/** A reason without the place where it arises, which is behind a colon, and without the names of the axis' own tensors. */
function kindOf(reason: string, members: readonly (readonly [string, number])[]): string {
  const [kind] = reason.split(": ", 1);
  const names = [...new Set(members.map(([tensor]) => tensor))].sort((a, b) => b.length - a.length);
  return names.reduce((text, name) => (name ? text.replaceAll(name, "…") : text), kind);
}

const MARGIN = 400; // px around the window in which rows are kept ready
const DEFAULT_ROOM = 560; // px, until a row was measured
const MIN_ROW = 58; // px
const FROZEN_ROW = 31;
const FOLD = 31; // the line of the frozen axes
const SHORT = 440; // px: a list that is not longer needs no window of its own
const KEYS =
  "Arrows move between indices, space drops or keeps, shift with arrows selects a range, Home and End go to the ends.";
let lists = 0;

interface Slot {
  readonly axis: number;
  readonly shell: HTMLElement;
  row: AxisRow | null;
}

export class AxisList implements IndexStripOwner {
  readonly describedBy = `mkg-mask-keys-${++lists}`;
  private readonly disposers = new Disposers();
  private readonly slots: Slot[];
  private readonly byShell = new Map<Element, Slot>();
  private readonly byAxis = new Map<number, Slot>();
  private readonly empty = el("div", "mkg-mask-empty");
  private readonly fold: FrozenFold | null;
  private readonly blocks: BlockList | null; // none where no block can go
  private observer: IntersectionObserver | null = null;
  private room = DEFAULT_ROOM;
  private isMeasured = false;

  constructor(
    private readonly host: HTMLElement,
    private readonly scene: EditorContext,
    private readonly found: (text: string) => void // how many rows a search leaves
  ) {
    const { data } = scene;
    const axes = [...data.axes.size.keys()];
    const free = axes.filter(axis => data.isFree(axis));
    const frozen = axes.filter(axis => !data.isFree(axis));
    this.slots = [...free, ...frozen].map(axis => this.slot(axis));
    const keys = el("div", "mkg-offscreen", KEYS);
    keys.id = this.describedBy;
    host.classList.add("mkg-mask-rows");
    const frozenList = this.list("Frozen axes", frozen);
    this.fold = frozen.length ? new FrozenFold(frozenList, data, frozen, () => this.measureAll()) : null;
    this.blocks = data.blocks.count ? new BlockList(scene, () => this.measureAll()) : null;
    const folded = this.fold ? [this.fold.heading, frozenList] : [];
    host.append(
      keys,
      ...(this.blocks ? [this.blocks.heading, this.blocks.table] : []),
      ...(free.length ? [heading("Free axes"), this.list("Free axes", free)] : []),
      ...folded,
      this.empty
    );
    this.watch();
    this.listen();
    this.filter();
    this.follow();
    this.markSelected();
  }

  dispose(): void {
    this.observer?.disconnect();
    this.fold?.dispose();
    this.blocks?.dispose();
    this.slots.forEach(slot => this.drop(slot));
    this.disposers.dispose();
    this.host.replaceChildren();
  }

  /** Draws what can be seen anew with the next frame. */
  drawAll(): void {
    for (const { row } of this.slots) if (row) this.scene.frames.add(row.draw);
  }

  /** Colors, shades or the width have changed. */
  repaint(): void {
    for (const { row } of this.slots) row?.strip?.fit(this.room, true);
    this.blocks?.repaint();
    this.drawAll();
  }

  leap(axis: number, way: RowMove, column: number): void {
    const shown = this.slots.filter(slot => !slot.shell.hidden && this.scene.data.isFree(slot.axis));
    const at = shown.findIndex(slot => slot.axis === axis) + (way === "below" ? 1 : -1);
    const slot = shown[at];
    if (!slot) return;
    this.fill(slot);
    slot.row?.strip?.enter(way, column);
    slot.shell.scrollIntoView?.({ block: "nearest" });
  }

  /** The row of an axis comes into view. */
  show(axis: number): void {
    const slot = this.byAxis.get(axis);
    if (!slot) return;
    if (!this.scene.data.isFree(axis) && !this.fold?.isShown) this.fold?.open(true);
    this.fill(slot);
    slot.shell.scrollIntoView?.({ block: "nearest" });
  }

  // ------------------------------------------------------------------ making

  private slot(axis: number): Slot {
    const shell = el("div", "mkg-mask-row");
    shell.setAttribute("role", "listitem");
    shell.dataset.mkgAxis = String(axis);
    shell.classList.toggle("mkg-is-frozen", !this.scene.data.isFree(axis));
    shell.style.minHeight = `${this.estimate(axis)}px`;
    const slot = { axis, shell, row: null };
    this.byShell.set(shell, slot);
    this.byAxis.set(axis, slot);
    return slot;
  }

  private estimate(axis: number): number {
    if (!this.scene.data.isFree(axis)) return FROZEN_ROW;
    return Math.max(MIN_ROW, cellLayout(this.scene.data.axes.size[axis], this.room).height + 18);
  }

  private list(title: string, axes: readonly number[]): HTMLElement {
    const list = el("div", "mkg-mask-list");
    list.setAttribute("role", "list");
    list.setAttribute("aria-label", title);
    list.append(...axes.flatMap(axis => this.byAxis.get(axis)?.shell ?? []));
    return list;
  }

  private fill(slot: Slot): void {
    if (slot.row) return;
    slot.row = new AxisRow(slot.shell, slot.axis, this.scene, this);
    slot.row.strip?.fit(this.measured(slot.row));
    slot.shell.style.minHeight = "";
  }

  /** Leaves a shell as high as the row was. */
  private drop(slot: Slot, height = 0): void {
    slot.shell.style.minHeight = `${height}px`;
    slot.row?.dispose();
    slot.row = null;
  }

  /** The width of the cells, which all rows share; asked for once, as the page has to be laid out for it. */
  private measured({ cells }: AxisRow): number {
    const width = this.isMeasured ? 0 : cells.clientWidth;
    if (width > 0) {
      this.room = width;
      this.isMeasured = true;
    }
    return this.room;
  }

  private watch(): void {
    this.measureAll();
    if (typeof IntersectionObserver !== "function") {
      this.slots.forEach(slot => this.fill(slot));
      return;
    }
    const observer = new IntersectionObserver(entries => this.onIntersection(entries), {
      root: this.host,
      rootMargin: `${MARGIN}px 0px`
    });
    this.slots.forEach(({ shell }) => observer.observe(shell));
    this.observer = observer;
    const resized = new ResizeObserver(() => this.scene.frames.add(this.refit));
    resized.observe(this.host);
    this.disposers.add(() => resized.disconnect());
  }

  /** Whether all that is unfolded needs a window. */
  private measureAll(): void {
    const { data } = this.scene;
    const shown = this.slots.filter(({ axis }) => data.isFree(axis) || this.fold?.isShown);
    const total =
      shown.reduce((sum, { axis }) => sum + this.estimate(axis), this.fold ? FOLD : 0) + (this.blocks?.height ?? 0);
    this.host.classList.toggle("mkg-is-short", total < SHORT);
  }

  private onIntersection(entries: readonly IntersectionObserverEntry[]): void {
    const away: [Slot, number][] = [];
    const near: Slot[] = [];
    for (const { target, isIntersecting } of entries) {
      const slot = this.byShell.get(target);
      if (slot && isIntersecting) near.push(slot);
      else if (slot?.row && !slot.shell.hidden && !slot.row.hasFocus) away.push([slot, slot.shell.offsetHeight]);
    }
    // heights are read before anything is changed: the page is laid out once
    away.forEach(([slot, height]) => this.drop(slot, height));
    near.forEach(slot => this.fill(slot));
  }

  private readonly refit = (): void => {
    const first = this.slots.find(({ row, shell }) => row?.strip && !shell.hidden);
    this.isMeasured = false;
    if (first?.row) this.measured(first.row);
    for (const { axis, shell, row } of this.slots) {
      if (row) row.strip?.fit(this.room);
      else shell.style.minHeight = `${this.estimate(axis)}px`;
    }
  };

  // --------------------------------------------------------------- following

  private listen(): void {
    const { scene } = this;
    this.disposers.add(
      scene.data.draft.onChange(axes => this.changed(axes)),
      scene.session.events.on(["report", "increases"], () => this.drawAll()),
      scene.store.on("query", () => this.filter()),
      scene.store.on("axis", () => this.follow()),
      scene.store.on("selected", () => this.markSelected()),
      scene.store.on("locked", () => this.drawAll())
    );
  }

  private changed(axes: ReadonlySet<number>): void {
    if (this.blocks && axes.has(this.scene.data.blocks.entry)) {
      this.scene.frames.add(this.followBlocks);
      return this.drawAll(); // of any axis it may have become known with which block it goes
    }
    for (const axis of axes) {
      const row = this.byAxis.get(axis)?.row;
      if (row) this.scene.frames.add(row.draw);
    }
  }

  private readonly followBlocks = (): void => this.blocks?.follow();

  /** Only the rows whose name or members have the text. */
  private filter(): void {
    const query = this.scene.store.get("query").trim().toLowerCase();
    const { name, label, members } = this.scene.data.axes;
    const has = (text: string) => text.toLowerCase().includes(query);
    let count = 0;
    let frozen = 0;
    for (const { axis, shell } of this.slots) {
      const isShown = !query || has(name[axis]) || has(label[axis]) || members[axis].some(([tensor]) => has(tensor));
      shell.hidden = !isShown;
      count += Number(isShown);
      frozen += Number(isShown && !this.scene.data.isFree(axis));
    }
    this.fold?.seek(query !== "" && frozen > 0);
    if (this.fold) this.fold.heading.hidden = frozen === 0;
    for (const list of this.host.querySelectorAll<HTMLElement>(".mkg-mask-list")) {
      if (list.previousElementSibling === this.fold?.heading) continue;
      list.hidden = list.querySelector(".mkg-mask-row:not([hidden])") === null;
      (list.previousElementSibling as HTMLElement).hidden = list.hidden;
    }
    this.empty.textContent = this.slots.length ? "No axis has this in its name or members." : "This model has no axes.";
    const blocks = this.blocks?.filter(query) ?? 0;
    this.empty.hidden = count + blocks > 0;
    const found = [`${count} of ${axesText(this.slots.length)}`];
    if (this.blocks) found.unshift(`${blocks} of ${blocksText(this.scene.data.blocks.count)}`);
    this.found(query ? found.join(", ") : "");
    this.measureAll();
  }

  private follow(): void {
    const name = this.scene.store.get("axis");
    const axis = name === null ? undefined : this.scene.data.byName.get(name);
    for (const slot of this.slots) {
      if (slot.axis === axis) slot.shell.setAttribute("aria-current", "true");
      else slot.shell.removeAttribute("aria-current");
    }
    if (axis !== undefined && !this.scene.isPointing) this.show(axis);
  }

  private markSelected(): void {
    const path = this.scene.store.get("selected");
    const { members } = this.scene.data.axes;
    for (const { axis, shell } of this.slots) {
      const isMarked = !!path && members[axis].some(([tensor]) => tensor.startsWith(`${path}.`));
      shell.classList.toggle("mkg-is-on-module", isMarked);
      setAttribute(shell, "aria-description", isMarked ? "in the selected module" : null);
    }
  }
}

function heading(title: string): HTMLElement {
  const element = el("div", "mkg-mask-heading", title);
  element.setAttribute("role", "heading");
  element.setAttribute("aria-level", "3");
  return element;
}
