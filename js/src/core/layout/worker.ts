// The worker: requests in, layouts out. Bundled to a string by scripts/bundle.mjs.

import { Layouter } from "./layouter";
import type { LayoutRequest } from "./types";

export { Layouter };

interface WorkerScope {
  onmessage: ((event: { data: { id: number; request: LayoutRequest } }) => void) | null;
  postMessage(message: unknown): void;
}

export function listen(): void {
  const scope = globalThis as unknown as WorkerScope;
  const layouter = new Layouter();
  scope.onmessage = ({ data: { id, request } }) => {
    try {
      scope.postMessage({ id, result: layouter.run(request) });
    } catch {
      scope.postMessage({ id, result: null }); // the page lays out itself
    }
  };
}
