// Decoding of numbers and text from bytes in either byte order, with 8-bit and 16-bit floats.

import { FORMAT_TABLES } from "../../../generated/format_tables";
import { ensure } from "./limits";

const scratch = new DataView(new ArrayBuffer(8));
const inOrder = new Uint8Array(scratch.buffer);

export type NumberKind = "u8" | "i8" | "u16" | "i16" | "u32" | "i32" | "f32" | "u64" | "i64" | "f64";

const READ: Readonly<Record<NumberKind, readonly [number, (little: boolean) => number | bigint]>> = {
  u8: [1, () => scratch.getUint8(0)],
  i8: [1, () => scratch.getInt8(0)],
  u16: [2, little => scratch.getUint16(0, little)],
  i16: [2, little => scratch.getInt16(0, little)],
  u32: [4, little => scratch.getUint32(0, little)],
  i32: [4, little => scratch.getInt32(0, little)],
  f32: [4, little => scratch.getFloat32(0, little)],
  u64: [8, little => scratch.getBigUint64(0, little)],
  i64: [8, little => scratch.getBigInt64(0, little)],
  f64: [8, little => scratch.getFloat64(0, little)]
};

/** How many bytes a number of a kind has. */
export const widthOf = (kind: NumberKind) => READ[kind][0];

/** The number that the bytes are; those of 64 bits are exact. */
export function numberIn(bytes: Uint8Array, kind: NumberKind, little = true): number | bigint {
  inOrder.set(bytes.subarray(0, READ[kind][0]));
  return READ[kind][1](little);
}

/** An unsigned number of at most eight bytes; malformed where doubles are not exact. */
export function count(bytes: Uint8Array, little = true): number {
  let total = 0;
  for (let index = 0; index < bytes.length; index++) {
    total = total * 256 + bytes[little ? bytes.length - 1 - index : index];
  }
  ensure(Number.isSafeInteger(total), "a number in it is larger than files can be");
  return total;
}

const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const LENIENT = new TextDecoder("utf-8", { ignoreBOM: true });

/** A text; malformed where it is no UTF-8. */
export function text(bytes: Uint8Array, what: string): string {
  const short = bytes.length <= 64 ? ascii(bytes) : null;
  if (short !== null) return short;
  try {
    return STRICT.decode(bytes);
  } catch {
    ensure(false, `${what} is not text`);
    return "";
  }
}

/** A text, with marks where it is no UTF-8. */
export const anyText = (bytes: Uint8Array) => LENIENT.decode(bytes);

/** Short texts are most, and a decoder takes longer for each. */
function ascii(bytes: Uint8Array): string | null {
  let result = "";
  for (const byte of bytes) {
    if (byte > 127) return null;
    result += String.fromCharCode(byte);
  }
  return result;
}

/** A double as Python writes it. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Object.is(value, -0)) return "-0.0";
  const [digits, exponent] = value.toExponential().split("e");
  const power = Number(exponent);
  if (value !== 0 && (power < -4 || power >= 16)) {
    return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
  }
  if (power >= 0) return Number.isInteger(value) ? `${BigInt(value)}.0` : String(value);
  return plainFraction(value, digits, power);
}

function plainFraction(value: number, digits: string, power: number): string {
  return `${value < 0 ? "-" : ""}0.${"0".repeat(-power - 1)}${digits.replace(/[-.]/g, "")}`;
}

/** A whole number with commas between thousands. */
export const grouped = (value: number | bigint) => String(value).replace(/\B(?=(\d{3})+$)/g, ",");

// Floats of eight and sixteen bits, from whole numbers that have their bits: formats write them so.

/** How bits are laid out: a sign, the exponent and then the fraction, of which patterns may stand for no number. */
interface Layout {
  readonly exponent: number; // bits
  readonly fraction: number;
  readonly bias: number;
  readonly hasInfinities: boolean; // the largest exponent is of infinities and NaN, as by IEEE 754
  readonly nan: readonly number[]; // patterns that are NaN, where there are no infinities
}

/** By torch's word. */
const LAYOUTS: ReadonlyMap<string, Layout> = new Map(
  FORMAT_TABLES.float_layouts.map(([word, exponent, fraction, bias, hasInfinities, nan]) => [
    word,
    { exponent, fraction, bias, hasInfinities, nan }
  ])
);
const POWERS = "float8_e8m0fnu"; // an exponent alone

/** Whether numbers of a dtype can be told from their bits. */
export const isSmallFloat = (dtype: string) => LAYOUTS.has(dtype) || dtype === POWERS;

/** The number that the lowest bits of a whole number are. */
export function smallFloat(pattern: number | bigint, dtype: string): number {
  const low = Number(BigInt.asUintN(16, BigInt(pattern)));
  const found = LAYOUTS.get(dtype);
  if (found === undefined) return (low & 255) === 255 ? NaN : 2 ** ((low & 255) - 127);
  const width = found.exponent + found.fraction;
  const bits = low & (2 ** (width + 1) - 1);
  const largest = 2 ** found.exponent - 1;
  const [exponent, fraction] = [(bits >> found.fraction) & largest, bits & (2 ** found.fraction - 1)];
  const sign = bits >> width ? -1 : 1;
  if (found.nan.includes(bits)) return NaN;
  if (found.hasInfinities && exponent === largest) return fraction ? NaN : sign * Infinity;
  const whole = exponent === 0 ? fraction : fraction + 2 ** found.fraction;
  return sign * whole * 2 ** (Math.max(exponent, 1) - found.bias - found.fraction);
}
