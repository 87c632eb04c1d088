// Entry of the worker: requests in, layouts out. Bundled to a string by scripts/generate.mjs.

import { Layouter } from "./layouter";
import type { LayoutRequest } from "./types";

interface WorkerScope {
  onmessage: ((event: { data: { id: number; request: LayoutRequest } }) => void) | null;
  postMessage(message: unknown): void;
}

const scope = globalThis as unknown as WorkerScope;
const layouter = new Layouter();

scope.onmessage = ({ data: { id, request } }) => {
  try {
    scope.postMessage({ id, result: layouter.run(request) });
  } catch {
    scope.postMessage({ id, result: null }); // the page lays out itself
  }
};
