// Wide lines of many points: without a graphics card, hairlines are drawn a hundred times faster than wide lines.

const FEW = 120; // points that may be drawn as a wide line
const MANY = 6000; // points of all lines, beyond which all but the emphasised ones are hairlines
const HAIR = 1; // device pixel
const WIDE = 2.2; // device pixels; wider lines were made so on purpose

export interface Stroke {
  readonly path: Path2D;
  readonly width: number; // device pixels
}

/** A path that looks `width` device pixels wide: itself, or hairlines one beside the other; `total` is of all lines. */
export function strokeOf(path: Path2D, points: number, width: number, total: number): Stroke {
  if (points <= FEW) return { path, width };
  const passes = total > MANY && width < WIDE ? 1 : Math.max(1, Math.ceil(width));
  if (passes === 1) return { path, width: HAIR };
  const all = new Path2D();
  const apart = (width - HAIR) / (passes - 1);
  for (let pass = 0; pass < passes; pass += 1) {
    const shift = pass * apart - (width - HAIR) / 2;
    // down and to the side, so that steep parts are as wide as flat ones
    all.addPath(path, { a: 1, b: 0, c: 0, d: 1, e: shift * 0.5, f: shift });
  }
  return { path: all, width: HAIR };
}
