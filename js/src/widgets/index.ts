// The loader of the widgets, all of them with the first one that a page shows.

import type { ExportMap } from "@jupyter-widgets/base";

export async function loadWidgets(): Promise<ExportMap> {
  return { ...(await import("./all")) } as unknown as ExportMap;
}
