// Forward passes that Python wrote, and a store around one.

import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type ForwardState, ForwardStore } from "../core/forward/state";

const folder = join(dirname(fileURLToPath(import.meta.url)), "../../../tests/widgets/golden_forward");

interface Golden {
  payload: Record<string, unknown>;
  reply: Record<string, unknown>;
  pixels: number[];
  pictures: Record<string, unknown> & { pixels: number[] };
}

export function golden(name: "residual" | "stops"): Golden {
  return JSON.parse(readFileSync(join(folder, `${name}.json`), "utf8")) as Golden;
}

/** The buffers that come with a reply. */
export function buffersOf({ pixels }: Golden): DataView[] {
  return [new DataView(Uint8Array.from(pixels).buffer)];
}

/** The pictures that come with the steps, as a trait has them. */
export function picturesOf({ pictures }: Golden, changed: Record<string, unknown> = {}): Record<string, unknown> {
  return { ...pictures, pixels: new DataView(Uint8Array.from(pictures.pixels).buffer), ...changed };
}

export function storeWith(state: Partial<ForwardState> = {}): ForwardStore {
  return new ForwardStore(state);
}

/** The payload of a long pass through one container. */
export function longPayload(count: number): Record<string, unknown> {
  const column = <T>(make: (index: number) => T) => Array.from({ length: count }, (_, index) => make(index));
  return {
    schema_version: 1,
    kind: "forward_player",
    run: 1,
    title: "Long",
    modules: column(index => [index ? `layers.${index - 1}` : "", index ? "Linear" : "Long"]),
    shapes: [[["[0]", [2, 4], "float32"]]],
    steps: {
      module: column(index => index),
      depth: column(index => (index ? 1 : 0)),
      inputs: column(() => 0),
      outputs: column(() => 0),
      sources: column(index => [Math.max(1, index)]),
      value: column(index => (index ? index + 1 : count)),
      batch_dim: column(() => 0),
      statistics: column(() => null),
      top: column(() => null)
    },
    raised: [],
    error: null,
    failed: null,
    dropped: 0
  };
}
