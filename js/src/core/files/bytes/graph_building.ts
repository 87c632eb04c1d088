// Helpers for operator graphs read from files: unique names, shortened attributes, source lines.
// As modulekg_widgets/engine/files/graph_building.py has them.

import { limitExceeded } from "./limits";
import { floatText } from "./numbers";
import type { Plain } from "./records";

export const MAX_OPERATORS = 200_000;
const MAX_TEXT_LENGTH = 200; // characters of a setting
export const MAX_ELEMENTS = 16; // of a list among the settings
export const NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"; // on operators that no module has, of torch.export
const MAX_TRACE_LENGTH = 20_000; // characters of it that are looked at
const FRAME = 'File "';
const MAX_FRAME_LENGTH = 4_200; // characters

/** How many operators may still be kept; a file that goes beyond is refused. */
export class Allowance {
  private left = MAX_OPERATORS;

  operator(): void {
    this.left -= 1;
    if (this.left < 0) throw limitExceeded("operators");
  }

  fits(operators: number): boolean {
    return operators <= this.left;
  }
}

/** Names that occur once: a second "add" becomes "add_1", or the next that is free. */
export class Occurrences {
  private readonly next: Map<string, number>;

  constructor(taken: Iterable<string> = []) {
    this.next = new Map([...taken].map(name => [name, 1]));
  }

  once(name: string): string {
    let number = this.next.get(name);
    if (number === undefined) {
      this.next.set(name, 1);
      return name;
    }
    while (this.next.has(`${name}_${number}`)) number += 1;
    this.next.set(name, number + 1);
    this.next.set(`${name}_${number}`, 1);
    return `${name}_${number}`;
  }
}

/** The names of values as a body writes them, and as the file's graph has them: a body may use a name again. */
export class Scope {
  private readonly names = new Map<string, string>();

  constructor(private readonly outer: Scope | null = null) {}

  get(name: string): string {
    return this.names.get(name) ?? this.outer?.get(name) ?? name;
  }

  set(name: string, unique: string): void {
    this.names.set(name, unique);
  }
}

/** A number that has a fraction in the file, whatever its value: Python writes it with one. */
export class Float {
  constructor(readonly value: number) {}
}

export type Element = Float | number | bigint | string | boolean | null;

/** A setting as a plain value: long texts cut, no NaN. */
export function short(value: Element): Plain {
  if (value instanceof Float) return Number.isFinite(value.value) ? value.value : floatText(value.value);
  if (typeof value === "bigint") {
    const isOf64 = value < 2n ** 63n && value > -(2n ** 63n);
    return isOf64 ? Number(value) : String(value).slice(0, MAX_TEXT_LENGTH);
  }
  return typeof value === "string" ? shortText(value) : value;
}

/** A list as a text of its first elements, as Python writes them. */
export function shortList(values: readonly Element[]): string {
  const more = values.length > MAX_ELEMENTS ? ", …" : "";
  return shortText(`[${values.slice(0, MAX_ELEMENTS).map(elementText).join(", ")}${more}]`);
}

export function elementText(value: Element): string {
  if (value instanceof Float) return floatText(value.value);
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  return typeof value === "string" ? shortText(value) : String(value);
}

/** A text of one line's length. */
export function shortText(text: string): string {
  if (text.length <= MAX_TEXT_LENGTH) return text;
  const characters = [...text.slice(0, 2 * MAX_TEXT_LENGTH + 2)]; // not halves of those beyond 16 bits
  return characters.length <= MAX_TEXT_LENGTH ? text : `${characters.slice(0, MAX_TEXT_LENGTH - 1).join("")}…`;
}

/** The last place in a file that a stack trace names, as "resnet.py:285"; "" where there is none. */
export function sourceOf(trace: string): string {
  const seen = trace.slice(-MAX_TRACE_LENGTH);
  for (let at = seen.lastIndexOf(FRAME); at >= 0; at = at === 0 ? -1 : seen.lastIndexOf(FRAME, at - 1)) {
    const found = /^File "([^"<>\n]{1,4096})", line (\d{1,9})/.exec(seen.slice(at, at + MAX_FRAME_LENGTH));
    if (found === null) continue;
    const name = found[1].replace(/\\/g, "/");
    return `${shortText(name.slice(name.lastIndexOf("/") + 1))}:${found[2]}`;
  }
  return "";
}

/** A path without the dots before it. */
export const withoutDots = (path: string) => path.replace(/^\.+/, "");
