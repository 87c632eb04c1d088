// Files that were tampered with, drawn from good ones by seeds.

type Draw = () => number;

/** Numbers from 0 to 1, always the same for a seed: mulberry32. */
export function drawer(seed: number): Draw {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const HUGE = [0xff, 0x7f, 0x80, 0x00, 0xfe];
const TEXTS = [
  "../../etc/passwd",
  "/etc/passwd",
  "cos\nsystem\n(S'true'\ntR.",
  "__proto__",
  "NaN",
  "1e999",
  "\0\0\0\0\0\0"
];

/** A file with a few changes, most of them where its header is. */
export function mutated(content: Uint8Array, draw: Draw): Uint8Array {
  const below = (limit: number) => Math.floor(draw() * limit);
  const near = () => (draw() < 0.5 ? below(content.length) : below(Math.min(content.length, 400)));
  const changed = content.slice();
  const put = (at: number, part: Uint8Array) => changed.set(part.subarray(0, changed.length - at), at);
  switch (below(6)) {
    case 0:
      return changed.subarray(0, below(content.length));
    case 1:
      for (let left = 1 + below(8); left > 0; left--) changed[near()] = below(256);
      return changed;
    case 2:
      for (let left = 1 + below(4); left > 0; left--) changed[near()] = HUGE[below(HUGE.length)];
      return changed;
    case 3:
      put(near(), new TextEncoder().encode(TEXTS[below(TEXTS.length)]));
      return changed;
    case 4:
      put(near(), new Uint8Array(8).fill(HUGE[below(HUGE.length)]));
      return changed;
    default: {
      const start = near();
      const part = changed.slice(start, start + 1 + below(300));
      put(below(content.length), part);
      return changed;
    }
  }
}
