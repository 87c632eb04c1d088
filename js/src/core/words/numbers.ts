// Numbers in texts: whole ones with all digits, and counts of things.

/** "−3" with the sign of print. */
export function minus(text: string): string {
  return text.startsWith("-") ? `−${text.slice(1)}` : text;
}

/** NaN and the infinities by their names. */
export function notFinite(value: number): string {
  return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
}

/** Every digit: 25557032 → "25,557,032". Integers above 2^53 arrive as decimal text and keep all of theirs. */
export function exactNumber(value: number | string | null): string {
  const text = typeof value === "number" ? (Number.isFinite(value) ? String(value) : notFinite(value)) : (value ?? "");
  return /^-?\d+$/.test(text) ? minus(text.replace(/\B(?=(\d{3})+$)/g, ",")) : text;
}

/** "1 module", "12 modules". */
export function counted(count: number, noun: string, many = `${noun}s`): string {
  return `${exactNumber(count)} ${count === 1 ? noun : many}`;
}
