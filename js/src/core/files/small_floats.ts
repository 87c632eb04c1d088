// Floats of eight and sixteen bits, from whole numbers that have their bits: formats write them so.
// As modulekg_widgets/engine/files/formats/onnx/onnx_tensors.py has them.

/** How bits are laid out: a sign, the exponent and then the fraction, of which patterns may stand for no number. */
interface Layout {
  readonly exponent: number; // bits
  readonly fraction: number;
  readonly bias: number;
  readonly hasInfinities: boolean; // the largest exponent is of infinities and NaN, as by IEEE 754
  readonly nan: readonly number[]; // patterns that are NaN, where there are no infinities
}

const layout = (exponent: number, fraction: number, bias: number, nan: readonly number[] | null): Layout => ({
  exponent,
  fraction,
  bias,
  hasInfinities: nan === null,
  nan: nan ?? []
});

/** By torch's word. */
const LAYOUTS: ReadonlyMap<string, Layout> = new Map([
  ["float16", layout(5, 10, 15, null)],
  ["bfloat16", layout(8, 7, 127, null)],
  ["float8_e5m2", layout(5, 2, 15, null)],
  ["float8_e4m3fn", layout(4, 3, 7, [0x7f, 0xff])],
  ["float8_e4m3fnuz", layout(4, 3, 8, [0x80])],
  ["float8_e5m2fnuz", layout(5, 2, 16, [0x80])]
]);
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
