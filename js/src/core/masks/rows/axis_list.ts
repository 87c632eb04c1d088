// The list of axes and blocks with a row for each, free axes before frozen ones; only rows near the view are in the page.

import {
  button,
  Disposers,
  el,
  icon,
  listen,
  nameSpan,
  setAttribute,
  Part,
  setRole,
  onResize,
  setText
} from "../../shared/ui/dom";
import { keepHeight } from "../../shared/ui/widget_frame";
import { BlockList, splitName } from "./block_list";
import { cellLayout, type RowMove } from "../cell_drawing";
import { axisCost } from "../session/estimate";
import type { Member } from "../draft/payload";
import type { EditorContext } from "../session/editor_context";
import { IndexStrip, type IndexStripOwner } from "../cells/index_strip";
import { increaseText } from "../draft/number_texts";
import { exactNumber } from "../../shared/base/format";
import type { PlanData } from "../draft/plan_data";
import * as words from "../../words/masks";

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
    this.toggle.append(el("strong", "", words.fixed(axes.length)), " ", reasons(counts));
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
  if (rest > 0) line.append(words.moreReasons(rest));
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

// The row of an axis: its name, how many stay, lock, slider, members, and its cells; a frozen one says why.

const MAX_TITLE_NAMES = 6;
const MAX_LISTED = 300;

class AxisRow {
  readonly strip: IndexStrip | null;
  readonly cells = el("div", "mkg-mask-cells");
  private readonly disposers = new Disposers();
  private readonly info = el("div", "mkg-mask-info");
  private readonly count = el("span", "mkg-mask-count");
  private readonly cost = el("span", "mkg-mask-cost");
  private readonly away = nameSpan("mkg-mask-away", "");
  private readonly lock = button("mkg-icon-button mkg-mask-lock", "");
  private readonly slider = el("input", "mkg-mask-slider");
  private readonly name: string;

  constructor(
    readonly shell: HTMLElement,
    readonly axis: number,
    private readonly scene: EditorContext,
    owner: IndexStripOwner
  ) {
    this.name = scene.data.axes.name[axis];
    const reason = scene.data.reason(axis);
    this.strip = reason === null ? new IndexStrip(axis, scene, owner) : null;
    this.head();
    if (this.strip) this.cells.append(this.strip.element, this.away);
    else this.cells.append(el("div", "mkg-mask-reason", reason ?? ""));
    shell.replaceChildren(this.info, this.cells);
    this.members(scene.data.axes.members[axis]);
    this.draw();
  }

  get hasFocus(): boolean {
    return this.shell.contains(this.shell.ownerDocument.activeElement);
  }

  dispose(): void {
    this.strip?.dispose();
    this.disposers.dispose();
    this.shell.replaceChildren();
  }

  draw = (): void => {
    const { data, session } = this.scene;
    const [kept, size] = [data.draft.remaining(this.axis), data.axes.size[this.axis]];
    const text = this.strip ? `${exactNumber(kept)} / ${exactNumber(size)}` : exactNumber(size);
    setText(this.count, text);
    this.count.title = this.strip ? words.keptOf(kept, size) : words.SIZE_TITLE;
    const isLocked = session.isLocked(this.axis);
    this.drawAway();
    this.shell.classList.toggle("mkg-is-locked", isLocked);
    this.shell.classList.toggle("mkg-is-thinned", kept < size);
    setAttribute(this.lock, "aria-pressed", String(isLocked));
    this.lock.title = isLocked ? words.UNLOCK_TITLE : words.LOCK_TITLE;
    this.slider.disabled = !session.mayDraw(this.axis) || !data.scores;
    const dropped = String(size - kept);
    if (this.slider.value !== dropped) this.slider.value = dropped;
    setAttribute(this.slider, "aria-valuetext", words.removedOf(size - kept, size));
    this.drawCost();
    this.strip?.draw();
  };

  /** One that goes with a block is pale, and says with which. */
  private drawAway(): void {
    const { blocks } = this.scene.data;
    const block = blocks.takes(this.axis);
    this.shell.classList.toggle("mkg-is-away", block >= 0);
    this.away.hidden = block < 0;
    const text = block < 0 ? "" : words.away(blocks.table.path[block]);
    if (this.away.textContent !== text) this.away.textContent = this.away.title = text;
  }

  /** What the axis costs: what goes from it, or where nothing does, one of its indices. */
  private drawCost(): void {
    const found = axisCost(this.scene.data, this.axis);
    this.cost.hidden = found === null;
    if (!found) return;
    const { removed, increase } = found;
    const [all, single] = [increaseText(increase), increaseText(found.mean)];
    const text = removed ? words.lossChange(all) : words.perChannel(single);
    setText(this.cost, text);
    this.cost.title = removed
      ? words.costOfRemoved(removed, all, increaseText(increase / removed), single)
      : words.costTitle(single);
  }

  private head(): void {
    const { axes } = this.scene.data;
    const name = button("mkg-mask-name", "", this.name);
    name.append(splitName(this.name));
    this.disposers.add(listen(name, "click", () => this.scene.point(this.axis)));
    const role = axes.role[this.axis];
    const line = el("div", "mkg-mask-line");
    line.append(name);
    if (role !== null) {
      const pill = nameSpan("mkg-mask-role", role);
      pill.title = words.role(role);
      line.append(pill);
    }
    line.append(this.strip ? this.cost : this.count);
    this.info.append(line);
  }

  private controls(): HTMLElement {
    const { lock, slider } = this;
    lock.append(icon("lock"));
    lock.setAttribute("aria-label", words.lock(this.name));
    slider.type = "range";
    slider.min = "0";
    slider.max = String(this.scene.data.axes.size[this.axis] - 1);
    slider.step = "1";
    slider.title = words.SLIDER_TITLE;
    slider.setAttribute("aria-label", words.slider(this.name));
    this.disposers.add(
      listen(lock, "click", () => this.toggleLock()),
      listen(slider, "input", () => this.slide()),
      listen(slider, "change", () => this.scene.session.commit())
    );
    const line = el("div", "mkg-mask-line");
    line.append(lock, slider, this.count);
    return line;
  }

  private slide(): void {
    const { session } = this.scene;
    session.begin();
    session.dropCount(this.axis, Number(this.slider.value));
  }

  private toggleLock(): void {
    const { session, store } = this.scene;
    const others = store.get("locked").filter(name => name !== this.name);
    store.set("locked", session.isLocked(this.axis) ? others : [...others, this.name]);
  }

  /** Folded; the first ones are in the tooltip. A frozen axis has them in its only line. */
  private members(members: readonly Member[]): void {
    const line = this.strip ? this.controls() : (this.info.firstElementChild ?? this.info);
    if (this.strip) this.info.append(line);
    if (!members.length) return;
    const count = words.tensors(members.length);
    const toggle = button("mkg-mask-more", count, titleOf(members));
    toggle.setAttribute("aria-expanded", "false");
    toggle.setAttribute("aria-label", words.ofGroup(count, this.name));
    line.append(toggle);
    let list: HTMLElement | null = null;
    this.disposers.add(
      listen(toggle, "click", () => {
        list?.remove();
        list = list ? null : listOf(members);
        if (list) this.shell.append(list);
        toggle.setAttribute("aria-expanded", String(list !== null));
      })
    );
  }
}

function titleOf(members: readonly Member[]): string {
  const first = members.slice(0, MAX_TITLE_NAMES).map(memberText);
  const rest = members.length - first.length;
  return [...first, ...(rest > 0 ? [words.more(rest)] : [])].join("\n");
}

function memberText([tensor, dim]: Member): string {
  return `${tensor}[${dim}]`;
}

function listOf(members: readonly Member[]): HTMLElement {
  const list = el("ul", "mkg-mask-members");
  list.tabIndex = 0; // it may have to be scrolled
  list.setAttribute("aria-label", words.TENSORS);
  for (const member of members.slice(0, MAX_LISTED)) {
    const entry = el("li");
    entry.append(nameSpan("mkg-code", memberText(member)));
    list.append(entry);
  }
  const rest = members.length - MAX_LISTED;
  if (rest > 0) list.append(el("li", "mkg-dim", words.more(rest)));
  return list;
}

// The list: rows near the window have their elements, the others an empty shell of the same height.

const MARGIN = 400; // px around the window in which rows are kept ready
const DEFAULT_ROOM = 560; // px, until a row was measured
const MIN_ROW = 58; // px
const FROZEN_ROW = 31;
const FOLD = 31; // the line of the frozen axes
const SHORT = 440; // px: a list that is not longer needs no window of its own
let lists = 0;

interface Slot {
  readonly axis: number;
  readonly shell: HTMLElement;
  row: AxisRow | null;
}

export class AxisList extends Part implements IndexStripOwner {
  readonly describedBy = `mkg-mask-keys-${++lists}`;
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
    host: HTMLElement,
    private readonly scene: EditorContext,
    private readonly found: (text: string) => void // how many rows a search leaves
  ) {
    super(host);
    const { data } = scene;
    const axes = [...data.axes.size.keys()];
    const free = axes.filter(axis => data.isFree(axis));
    const frozen = axes.filter(axis => !data.isFree(axis));
    this.slots = [...free, ...frozen].map(axis => this.slot(axis));
    const keys = el("div", "mkg-offscreen", words.KEYS);
    keys.id = this.describedBy;
    host.classList.add("mkg-mask-rows");
    this.disposers.add(keepHeight(host, "masks"));
    const frozenList = this.list(words.FIXED, frozen);
    this.fold = frozen.length ? new FrozenFold(frozenList, data, frozen, () => this.measureAll()) : null;
    this.blocks = data.blocks.count ? new BlockList(scene, () => this.measureAll()) : null;
    const folded = this.fold ? [this.fold.heading, frozenList] : [];
    host.append(
      keys,
      ...(this.blocks ? [this.blocks.heading, this.blocks.table] : []),
      ...(free.length ? [heading(words.PRUNABLE), this.list(words.PRUNABLE, free)] : []),
      ...folded,
      this.empty
    );
    this.watch();
    this.listen();
    this.filter();
    this.follow();
    this.markSelected();
  }

  override dispose(): void {
    this.observer?.disconnect();
    this.fold?.dispose();
    this.blocks?.dispose();
    this.slots.forEach(slot => this.drop(slot));
    super.dispose();
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
    setRole(list, "list", title);
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
    this.disposers.add(onResize(this.host, () => this.scene.frames.add(this.refit)));
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
    this.empty.textContent = this.slots.length ? words.NO_MATCH : words.NO_GROUPS;
    const blocks = this.blocks?.filter(query) ?? 0;
    this.empty.hidden = count + blocks > 0;
    const found = [words.foundOf(count, words.groups(this.slots.length))];
    if (this.blocks) found.unshift(words.foundOf(blocks, words.blocks(this.scene.data.blocks.count)));
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
      setAttribute(shell, "aria-description", isMarked ? words.IN_MODULE : null);
    }
  }
}

function heading(title: string): HTMLElement {
  const element = el("div", "mkg-mask-heading", title);
  element.setAttribute("role", "heading");
  element.setAttribute("aria-level", "3");
  return element;
}
