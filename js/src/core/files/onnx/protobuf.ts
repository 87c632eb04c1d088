// The wire format of protobuf: fields of a tag and a value, of which those with a length may be messages.

import { limitExceeded, malformed, ensure } from "../bytes/limits";
import type { Bytes } from "../bytes/buffered";
import { anyText, numberIn } from "../bytes/numbers";
import { narrow } from "../pickle/pickle";

const MAX_FIELDS = 6_000_000; // that are looked at one by one, those looked at again included
const MAX_TEXT_TOTAL = 128 * 2 ** 20; // characters of all that is kept
const MAX_FIELD_NUMBER = 2 ** 29;
const [VARINT, FIXED64, LENGTH, FIXED32] = [0, 1, 2, 5];

/** A field where the reader stands: its value lies from `begin` to `end`. */
export interface Field {
  readonly number: number;
  readonly hasLength: boolean;
  readonly kind: number;
  readonly begin: number;
  readonly end: number;
}

/** Reads fields one after the other, and what they hold only when asked for. */
export class Wire {
  private fieldsLeft = MAX_FIELDS;
  private textLeft = MAX_TEXT_TOTAL;
  private at = 0;

  constructor(readonly from: Bytes) {}

  /** The field that begins there, within a message that ends at `stop`. */
  field(start: number, stop: number): Field {
    if (--this.fieldsLeft < 0) throw limitExceeded("fields");
    this.at = start;
    const key = this.length();
    const [number, kind] = [Math.floor(key / 8), key % 8];
    const length = kind === LENGTH ? this.length() : 0;
    const begin = this.at;
    const end = begin + (kind === LENGTH ? length : this.widthOf(kind));
    ensure(end <= stop && number > 0 && number < MAX_FIELD_NUMBER, `no field of protobuf at byte ${start}`);
    return { number, hasLength: kind === LENGTH, kind, begin, end };
  }

  private widthOf(kind: number): number {
    const start = this.at;
    if (kind === VARINT) this.length();
    else ensure(kind === FIXED32 || kind === FIXED64, `no field of protobuf at byte ${start}`);
    return kind === VARINT ? this.at - start : kind === FIXED32 ? 4 : 8;
  }

  /** Calls `visit` with each field of a message, while `goesOn`. */
  fields(start: number, stop: number, visit: (field: Field) => void, goesOn: () => boolean = () => true): void {
    for (let at = start; at < stop && goesOn();) {
      const field = this.field(at, stop);
      visit(field);
      at = field.end;
    }
  }

  bytes({ begin, end }: Field): Uint8Array {
    return this.from.bytes(begin, end - begin);
  }

  text({ begin, end }: Field, longest = Infinity): string {
    const length = Math.min(end - begin, longest);
    this.keep(length);
    return anyText(this.from.bytes(begin, length));
  }

  /** Takes the part of what is kept. */
  keep(size: number): void {
    this.textLeft -= size;
    if (this.textLeft < 0) throw limitExceeded("names and settings");
  }

  /** A signed number of 64 bits. */
  whole({ begin }: Field): number | bigint {
    return this.wholeAt(begin).value;
  }

  /** As a double: for what is small, or checked. */
  number(field: Field): number {
    return Number(this.whole(field));
  }

  float(field: Field): number {
    return Number(numberIn(this.bytes(field), "f32"));
  }

  /** The numbers of a field that is repeated, one by one or packed. */
  wholes(field: Field): (number | bigint)[] {
    if (!field.hasLength) return [this.whole(field)];
    const found: (number | bigint)[] = [];
    for (let at = field.begin; at < field.end;) {
      const { value, end } = this.wholeAt(at);
      ensure(end <= field.end, "packed numbers end within one");
      found.push(value);
      at = end;
    }
    return found;
  }

  /** As `wholes`, of numbers of a fixed width. */
  floats(field: Field, kind: "f32" | "f64" = "f32"): number[] {
    const bytes = this.bytes(field);
    const width = kind === "f32" ? 4 : 8;
    ensure(bytes.length % width === 0, "packed numbers end within one");
    const starts = Array.from({ length: bytes.length / width }, (_, index) => index * width);
    return starts.map(at => Number(numberIn(bytes.subarray(at, at + width), kind)));
  }

  private wholeAt(start: number): { value: number | bigint; end: number } {
    this.at = start;
    const value = this.length();
    const end = this.at;
    return { value: value < 2 ** 49 ? value : this.large(start, end), end };
  }

  private large(start: number, end: number): number | bigint {
    const bytes = this.from.bytes(start, end - start);
    const value = bytes.reduce((total, byte, index) => total | (BigInt(byte & 127) << BigInt(7 * index)), 0n);
    return narrow(BigInt.asIntN(64, value));
  }

  /** An unsigned number, which is exact below 2^49. */
  private length(): number {
    const start = this.at;
    let byte = this.from.byte(this.at++);
    let value = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      if (this.at - start > 9) throw malformed(`no number of protobuf at byte ${start}`);
      byte = this.from.byte(this.at++);
      value += (byte & 127) * scale;
    }
    return value;
  }
}
