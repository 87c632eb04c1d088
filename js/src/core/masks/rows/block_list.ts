// The blocks that can be removed as a whole: a line that opens on a row for each.

import { canDraw, pixelRatio } from "../../shared/base/canvas";
import { button, Disposers, el, listen, nameSpan, setAttribute, setText } from "../../shared/ui/dom";
import { exactNumber, shortNumber } from "../../shared/base/format";
import { cellLayout, CELL_FLAGS, paintCell, ScoreScale } from "../cell_drawing";
import type { EditorContext } from "../session/editor_context";
import { Scores } from "../draft/scores";
import * as words from "../../words/masks";

const MAX_OPEN_ROWS = 12; // rows that are shown unasked
const ROW = 27; // px
const HEAD = 58;
const KEYS = { ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity } as const;
let lists = 0;

interface Line {
  readonly row: HTMLTableRowElement;
  readonly toggle: HTMLButtonElement;
  readonly cell: HTMLCanvasElement;
  readonly state: HTMLElement;
  readonly fold: HTMLButtonElement | null; // of the blocks that lie in it
}

export class BlockList {
  readonly heading = el("div", "mkg-mask-heading mkg-mask-fold mkg-mask-blocks-heading");
  readonly table = el("table", "mkg-mask-blocks");
  private readonly disposers = new Disposers();
  private readonly toggle = button("mkg-mask-fold-toggle", "");
  private readonly summary = el("span", "mkg-mask-fold-reasons");
  private readonly lines: readonly Line[];
  private readonly levels: Uint8Array;
  private readonly open = new Set<number>(); // whose inner blocks are shown
  private known: ReadonlySet<number> = new Set(); // removed ones that were seen to be
  private isOpen: boolean;
  private query = "";

  constructor(
    private readonly scene: EditorContext,
    private readonly changed: () => void // what is shown takes another height
  ) {
    const { blocks } = scene.data;
    const { score, within } = blocks.table;
    const scores = new Scores(Float64Array.from(score), [blocks.count]);
    this.levels = new ScoreScale(scores, [blocks.count], [0], "local").of(0);
    this.isOpen = within.filter(outer => outer < 0).length <= MAX_OPEN_ROWS;
    this.lines = [...within.keys()].map(block => this.line(block));
    this.head();
    this.fill();
    this.follow();
    this.disposers.add(
      listen(this.toggle, "click", () => this.show(!this.isShown)),
      listen(this.table, "keydown", event => this.key(event)),
      scene.store.on("selected", () => this.mark())
    );
    this.mark();
    this.arrange();
  }

  get isShown(): boolean {
    return this.isOpen || this.query !== "";
  }

  /** px, about. */
  get height(): number {
    const rows = this.isShown ? this.lines.filter(({ row }) => !row.hidden).length : 0;
    return this.heading.hidden ? 0 : HEAD + rows * ROW;
  }

  dispose(): void {
    this.disposers.dispose();
  }

  /** Only those whose path has the text, all of them without one; returns how many. */
  filter(query: string): number {
    this.query = query;
    this.arrange();
    const found = this.lines.filter((_, block) => this.isSought(block)).length;
    this.heading.hidden = query !== "" && found === 0;
    this.table.hidden = !this.isShown || this.heading.hidden;
    return found;
  }

  /** The draft is another one. */
  readonly draw = (): void => {
    const { blocks, draft } = this.scene.data;
    this.lines.forEach((line, block) => {
      const outer = blocks.goesWith(block);
      const isRemoved = draft.isRemoved(blocks.entry, block);
      const text = outer >= 0 ? words.away(lastOf(blocks.table.path[outer])) : isRemoved ? words.REMOVE : words.KEEP;
      line.row.classList.toggle("mkg-is-gone", blocks.gone.has(block));
      line.row.classList.toggle("mkg-is-away", outer >= 0);
      setText(line.state, text);
      setAttribute(line.toggle, "aria-pressed", String(blocks.gone.has(block)));
      setAttribute(line.toggle, "aria-disabled", outer >= 0 ? "true" : null);
      line.toggle.title = this.titleOf(block, outer);
      this.paint(block);
    });
    const count = blocks.removed.length;
    const own = blocks.table.within.filter(outer => outer < 0).length;
    this.summary.textContent = words.blockSummary(blocks.count - own, count);
  };

  /** What was removed elsewhere, or before, is shown. */
  follow(): void {
    const { blocks } = this.scene.data;
    for (const block of blocks.removed) {
      const around = [...blocks.around(block)];
      if (!this.known.has(block)) around.forEach(outer => this.open.add(outer));
    }
    this.known = new Set(blocks.removed);
    this.arrange();
    this.draw();
  }

  repaint(): void {
    for (const block of this.lines.keys()) this.paint(block);
  }

  // ------------------------------------------------------------------ making

  private head(): void {
    const { count, table } = this.scene.data.blocks;
    const own = table.within.filter(outer => outer < 0).length;
    this.heading.setAttribute("role", "heading");
    this.heading.setAttribute("aria-level", "3");
    this.table.id = `mkg-mask-blocks-${++lists}`;
    this.toggle.setAttribute("aria-controls", this.table.id);
    this.toggle.append(el("strong", "", words.blocks(own || count)), " ", this.summary);
    this.heading.append(this.toggle);
  }

  private fill(): void {
    const { importance } = this.scene.data.blocks.table;
    const head = el("thead");
    const line = el("tr");
    for (const [name, text, title] of [
      ["name", words.BLOCK, ""],
      ["params", words.PARAMETERS, words.BLOCK_PARAMETERS_TITLE],
      ["flops", "FLOPs", words.BLOCK_FLOPS_TITLE],
      ["score", importance || words.IMPORTANCE, words.BLOCK_SCORE_TITLE],
      ["state", words.STATUS, words.STATUS_TITLE]
    ]) {
      const cell = el("th", `mkg-mask-block-${name}`, text);
      cell.scope = "col";
      if (title) cell.title = title;
      line.append(cell);
    }
    const body = el("tbody");
    body.append(...this.inOrder().map(block => this.lines[block].row));
    head.append(line);
    this.table.setAttribute("aria-label", words.BLOCKS);
    this.table.append(head, body);
  }

  /** Each below the one that it lies in. */
  private inOrder(outer = -1): number[] {
    const { within } = this.scene.data.blocks.table;
    const inner = [...within.keys()].filter(block => within[block] === outer);
    return inner.flatMap(block => [block, ...this.inOrder(block)]);
  }

  private line(block: number): Line {
    const { table } = this.scene.data.blocks;
    const { path, params, flops, score, within } = table;
    const row = el("tr", "mkg-mask-block");
    row.dataset.mkgBlock = path[block];
    const fold = within.includes(block) ? button("mkg-mask-block-fold", "", words.NESTED) : null;
    const name = button("mkg-mask-name", "", path[block]);
    const shown = this.shortName(block);
    if (shown !== path[block]) name.setAttribute("aria-label", path[block]);
    name.append(splitName(shown));
    const head = el("th", "mkg-mask-block-name");
    head.scope = "row";
    const box = el("div", "mkg-mask-block-box");
    box.style.paddingInlineStart = `${[...this.scene.data.blocks.around(block)].length * 20}px`;
    // where others can be folded, names stand below each other
    const isTree = within.some(outer => outer >= 0);
    box.append(...(isTree ? [fold ?? el("span", "mkg-mask-block-fold")] : []), name);
    head.append(box);
    const toggle = button("mkg-mask-block-toggle", "");
    const cell = el("canvas", "mkg-mask-swatch");
    const state = nameSpan("", "");
    cell.setAttribute("aria-hidden", "true");
    state.setAttribute("aria-hidden", "true"); // the button is pressed or not
    toggle.setAttribute("aria-label", words.remove(path[block]));
    toggle.append(cell, state);
    const last = el("td", "mkg-mask-block-state");
    last.append(toggle);
    row.append(
      head,
      figure("params", params[block]),
      figure("flops", flops[block]),
      figure("score", score[block]),
      last
    );
    if (fold) {
      fold.setAttribute("aria-label", words.blocksIn(path[block]));
      this.disposers.add(listen(fold, "click", () => this.unfold(block)));
    }
    this.disposers.add(
      listen(toggle, "click", () => this.act(block)),
      listen(name, "click", () => this.scene.store.set("selected", path[block]))
    );
    return { row, toggle, cell, state, fold };
  }

  /** Of one that stands below another what its path has more. */
  private shortName(block: number): string {
    const { path, within } = this.scene.data.blocks.table;
    const outer = within[block];
    return outer >= 0 && path[block].startsWith(`${path[outer]}.`)
      ? path[block].slice(path[outer].length + 1)
      : path[block];
  }

  private titleOf(block: number, outer: number): string {
    const { path, importance, score } = this.scene.data.blocks.table;
    if (outer >= 0) return words.restoreFirst(path[outer]);
    const known = Number.isNaN(score[block]) ? "" : `${importance} ${shortNumber(score[block])}`;
    const { draft, blocks } = this.scene.data;
    return draft.isRemoved(blocks.entry, block) ? words.restore(path[block]) : words.remove(path[block], known);
  }

  // ----------------------------------------------------------------- gestures

  private act(block: number): void {
    const { session, data } = this.scene;
    const { blocks, draft } = data;
    const outer = blocks.goesWith(block);
    if (outer >= 0) session.say(words.removedFirst(blocks.table.path[block], blocks.table.path[outer]));
    else session.remove(block, !draft.isRemoved(blocks.entry, block));
  }

  /** Up and down among the rows that are shown. */
  private key(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey || !(event.key in KEYS)) return;
    const shown = this.inOrder().filter(block => !this.lines[block].row.hidden);
    const at = shown.findIndex(block => this.lines[block].toggle === event.target);
    if (at < 0) return;
    const next = Math.min(shown.length - 1, Math.max(0, at + KEYS[event.key as keyof typeof KEYS]));
    this.lines[shown[next]].toggle.focus();
    event.preventDefault();
    event.stopPropagation();
  }

  private show(isOpen: boolean): void {
    this.isOpen = isOpen;
    this.arrange();
    this.changed();
  }

  private unfold(block: number): void {
    if (!this.open.delete(block)) this.open.add(block);
    this.arrange();
    this.changed();
  }

  private isSought(block: number): boolean {
    return this.scene.data.blocks.table.path[block].toLowerCase().includes(this.query);
  }

  private arrange(): void {
    const { blocks } = this.scene.data;
    this.lines.forEach(({ row, fold }, block) => {
      const isUnfolded = [...blocks.around(block)].every(outer => this.open.has(outer));
      row.hidden = this.query ? !this.isSought(block) : !isUnfolded;
      if (fold) setAttribute(fold, "aria-expanded", String(this.open.has(block)));
    });
    this.table.hidden = !this.isShown;
    this.toggle.setAttribute("aria-expanded", String(this.isShown));
  }

  /** Rows of what is selected in a linked graph, or lies in it. */
  private mark(): void {
    const selected = this.scene.store.get("selected");
    this.lines.forEach(({ row }, block) => {
      const path = this.scene.data.blocks.table.path[block];
      const isMarked = !!selected && (path === selected || selected.startsWith(`${path}.`));
      row.classList.toggle("mkg-is-on-module", isMarked);
      setAttribute(row, "aria-description", isMarked ? words.IN_MODULE : null);
    });
  }

  private paint(block: number): void {
    const { cell } = this.lines[block];
    const context = canDraw() ? cell.getContext("2d") : null;
    if (!context) return;
    const [layout, ratio] = [cellLayout(1, 100), pixelRatio()];
    cell.width = cell.height = Math.ceil(layout.pitch * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const goes = this.scene.data.blocks.gone.has(block) ? CELL_FLAGS.goes : 0;
    paintCell(context, layout, 0, this.levels[block] | goes, this.scene.colors);
  }
}

/** Of the block above; the whole path is in the title. */
const lastOf = (path: string): string => path.slice(path.lastIndexOf(".") + 1);

function figure(name: string, value: number): HTMLElement {
  const cell = el("td", `mkg-mask-block-${name}`, Number.isNaN(value) ? "–" : shortNumber(value));
  cell.title = Number.isNaN(value) ? words.UNKNOWN : exactNumber(value);
  return cell;
}

const MAX_SUFFIX_LENGTH = 16;

/** A name in two parts: the first gives way where there is no room, so that the end of it is seen. */
export function splitName(name: string): HTMLElement {
  const dots = [...name.matchAll(/\./g)].map(({ index }) => index);
  const cut = dots.find(dot => dot > 0 && name.length - dot <= MAX_SUFFIX_LENGTH) ?? dots[dots.length - 1] ?? 0;
  const whole = nameSpan("", "");
  whole.append(...(cut > 0 ? [name.slice(0, cut), name.slice(cut)] : [name]).map(half => el("span", "", half)));
  return whole;
}
