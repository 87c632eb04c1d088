// Elements of side panels: facts, sections, tables, folded lists and copy buttons.

import * as words from "../words/panel";
import { copyText, el, iconButton, nameSpan } from "../shared/ui/dom";
import { counted, exactNumber, isBytes, isTime, shortColumn, shortNumber } from "../shared/base/format";
import type { Scalar, Value } from "../shared/base/schema";

const COPIED_FOR = 2000; // ms
const MANY = 12; // longer lists start folded up
const LONG = 240; // characters of a text that starts folded up
const MAX_NAME_LENGTH = 400; // characters, beyond which a name breaks anywhere
const BREAKS = /(?<=[._/\\])(?<!\d\.(?=\d))(?=[^._/\\])/; // within a name

/** A list of label and value. */
export class Facts {
  readonly list = el("dl", "mkg-facts");

  add(label: string, value: HTMLElement, help = ""): void {
    const term = el("dt");
    term.append(breakable("", label));
    const body = el("dd");
    if (help) term.title = help;
    body.append(value);
    this.list.append(term, body);
  }

  /** A long text starts folded up. */
  text(label: string, value: string, className = ""): void {
    const whole = breakable(className, value);
    if (value.length <= LONG) return this.add(label, whole);
    const details = folded("", whole);
    details.querySelector("summary")?.append(breakable(className, `${value.slice(0, LONG / 2)}…`));
    this.add(label, details);
  }

  number(label: string, value: number, column: string, note = "", raw: Value = value, help = ""): void {
    const shown = el("span", "", shortColumn(column, value));
    shown.title = exactNumber(raw) + (isBytes(column) ? " bytes" : isTime(column) ? " ms" : "");
    const line = el("span");
    line.append(shown);
    if (note) line.append(el("span", "mkg-dim", ` ${note}`));
    this.add(label, line, help);
  }
}

/** A name that goes on in the next line after a dot, a slash or an underscore, and not within a word or a number. */
export function breakable(className: string, name: string): HTMLElement {
  if (name.length > MAX_NAME_LENGTH) return nameSpan(className, name);
  const element = nameSpan(className, "");
  name.split(BREAKS).forEach((part, at) => element.append(...(at > 0 ? [el("wbr")] : []), part));
  return element;
}

export function section(title: string, ...content: HTMLElement[]): HTMLElement {
  const element = el("section", "mkg-panel-section");
  if (title) element.append(el("h4", "", title));
  element.append(...content);
  return element;
}

export function table(heads: readonly string[], rows: readonly (readonly HTMLElement[])[]): HTMLElement {
  const isOfNames = heads.length === 2 && heads[0] === words.NAME;
  const element = el("table", isOfNames ? "mkg-table mkg-of-names" : "mkg-table");
  const head = el("tr");
  for (const text of heads) {
    const cell = el("th", "", text);
    cell.scope = "col";
    head.append(cell);
  }
  element.append(el("thead"), el("tbody"));
  element.tHead?.append(head);
  for (const cells of rows) {
    const line = element.tBodies[0].insertRow();
    for (const content of cells) line.insertCell().append(content);
  }
  return foldedWhenLong(rows.length, "row", element);
}

/** A list of more than a dozen lines starts folded up. */
export function foldedWhenLong(count: number, noun: string, content: HTMLElement, many?: string): HTMLElement {
  return count > MANY ? folded(counted(count, noun, many), content) : content;
}

/** What is made by a function is made when somebody unfolds it. */
export function folded(summary: string, content: HTMLElement | (() => HTMLElement), isOpen = false): HTMLElement {
  const details = el("details", "mkg-folded");
  details.append(el("summary", "", summary));
  details.open = isOpen;
  if (typeof content !== "function") details.append(content);
  else if (isOpen) details.append(content());
  else details.addEventListener("toggle", () => details.append(content()), { once: true });
  return details;
}

export function copyButton(label: string, text: string): HTMLButtonElement {
  const element = iconButton("mkg-icon-button mkg-copy", "copy", label);
  element.dataset.mkgCopy = text;
  return element;
}

export function shapeText(shape: readonly number[] | null): string {
  if (shape === null) return words.NOT_SET;
  return shape.length ? shape.join("×") : words.SINGLE;
}

export function settingText(value: Scalar): string {
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : shortNumber(value);
  if (typeof value === "boolean") return value ? words.TRUE : words.FALSE;
  return value;
}

/** Copies texts, and says so for a while. */
export class Copier {
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly store: { get(key: "notice"): string; set(key: "notice", text: string): void }) {}

  async copy(target: HTMLElement, text: string): Promise<void> {
    const done = await copyText(text);
    target.classList.toggle("mkg-is-done", done);
    this.store.set("notice", done ? words.COPIED : words.NOT_COPIED);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      target.classList.remove("mkg-is-done");
      if (this.store.get("notice") === words.COPIED) this.store.set("notice", "");
    }, COPIED_FOR);
  }

  dispose(): void {
    clearTimeout(this.timer);
  }
}
