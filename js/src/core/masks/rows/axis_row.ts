// The row of an axis: its name, how many stay, lock, slider, members, and its cells; a frozen one says why.

import { button, Disposers, el, listen, nameSpan, setAttribute, icon } from "../../shared/ui/dom";
import { counted, exactNumber } from "../../shared/base/format";
import { axisCost } from "../session/estimate";
import type { Member } from "../draft/payload";
import type { EditorContext } from "../session/editor_context";
import { IndexStrip, type IndexStripOwner } from "../cells/index_strip";
import { increaseText } from "../draft/number_texts";

const MAX_TITLE_NAMES = 6;
const MAX_LISTED = 300;
const MAX_SUFFIX_LENGTH = 16; // of a name

export class AxisRow {
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
    if (this.count.textContent !== text) this.count.textContent = text;
    this.count.title = this.strip ? `${exactNumber(kept)} of ${exactNumber(size)} stay` : "size";
    const isLocked = session.isLocked(this.axis);
    this.drawAway();
    this.shell.classList.toggle("mkg-is-locked", isLocked);
    this.shell.classList.toggle("mkg-is-thinned", kept < size);
    setAttribute(this.lock, "aria-pressed", String(isLocked));
    this.lock.title = isLocked ? "Unlock: gestures change this axis again" : "Lock: no gesture changes this axis";
    this.slider.disabled = !session.mayDraw(this.axis) || !data.scores;
    const dropped = String(size - kept);
    if (this.slider.value !== dropped) this.slider.value = dropped;
    setAttribute(this.slider, "aria-valuetext", `${exactNumber(size - kept)} of ${exactNumber(size)} go`);
    this.drawCost();
    this.strip?.draw();
  };

  /** One that goes with a block is pale, and says with which. */
  private drawAway(): void {
    const { blocks } = this.scene.data;
    const block = blocks.takes(this.axis);
    this.shell.classList.toggle("mkg-is-away", block >= 0);
    this.away.hidden = block < 0;
    const text = block < 0 ? "" : `goes with ${blocks.table.path[block]}`;
    if (this.away.textContent !== text) this.away.textContent = this.away.title = text;
  }

  /** What the axis costs: what goes from it, or where nothing does, one of its indices. */
  private drawCost(): void {
    const found = axisCost(this.scene.data, this.axis);
    this.cost.hidden = found === null;
    if (!found) return;
    const each = `one of its indices alone ${increaseText(found.mean)} on average`;
    const text = found.removed ? `loss ${increaseText(found.increase)}` : `${increaseText(found.mean)} an index`;
    if (this.cost.textContent !== text) this.cost.textContent = text;
    const all = `the ${exactNumber(found.removed)} that go ${increaseText(found.increase)}, ${increaseText(found.increase / found.removed)} each`;
    const sum = found.removed ? `${all}, the sum of single ones, which together usually cost more; ` : "";
    this.cost.title = `Estimated rise of the loss: ${sum}${each}`;
  }

  private head(): void {
    const { axes } = this.scene.data;
    const name = button("mkg-mask-name", "", this.name);
    const whole = nameSpan("", "");
    whole.append(...halves(this.name).map(half => el("span", "", half)));
    name.append(whole);
    this.disposers.add(listen(name, "click", () => this.scene.point(this.axis)));
    const role = axes.role[this.axis];
    const line = el("div", "mkg-mask-line");
    line.append(name);
    if (role !== null) {
      const pill = nameSpan("mkg-mask-role", role);
      pill.title = `Role: ${role}`;
      line.append(pill);
    }
    line.append(this.strip ? this.cost : this.count);
    this.info.append(line);
  }

  private controls(): HTMLElement {
    const { lock, slider } = this;
    lock.append(icon("lock"));
    lock.setAttribute("aria-label", `Lock ${this.name}`);
    slider.type = "range";
    slider.min = "0";
    slider.max = String(this.scene.data.axes.size[this.axis] - 1);
    slider.step = "1";
    slider.title = "How many go, the least important first";
    slider.setAttribute("aria-label", `How many indices of ${this.name} go`);
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
    const toggle = button("mkg-mask-more", counted(members.length, "member"), titleOf(members));
    toggle.setAttribute("aria-expanded", "false");
    toggle.setAttribute("aria-label", `${counted(members.length, "member")} of ${this.name}`);
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

/** A name in two: the first gives way where there is no room, so that the end of it is seen. */
function halves(name: string): string[] {
  const dots = [...name.matchAll(/\./g)].map(({ index }) => index);
  const cut = dots.find(dot => dot > 0 && name.length - dot <= MAX_SUFFIX_LENGTH) ?? dots[dots.length - 1] ?? 0;
  return cut > 0 ? [name.slice(0, cut), name.slice(cut)] : [name];
}

function titleOf(members: readonly Member[]): string {
  const first = members.slice(0, MAX_TITLE_NAMES).map(memberText);
  const rest = members.length - first.length;
  return [...first, ...(rest > 0 ? [`and ${exactNumber(rest)} more`] : [])].join("\n");
}

function memberText([tensor, dim]: Member): string {
  return `${tensor}[${dim}]`;
}

function listOf(members: readonly Member[]): HTMLElement {
  const list = el("ul", "mkg-mask-members");
  list.tabIndex = 0; // it may have to be scrolled
  list.setAttribute("aria-label", "Members");
  for (const member of members.slice(0, MAX_LISTED)) {
    const entry = el("li");
    entry.append(nameSpan("mkg-code", memberText(member)));
    list.append(entry);
  }
  const rest = members.length - MAX_LISTED;
  if (rest > 0) list.append(el("li", "mkg-dim", `and ${exactNumber(rest)} more`));
  return list;
}
