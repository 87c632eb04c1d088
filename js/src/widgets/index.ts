// All widgets of the package, loaded together with the first one that a page shows.

import type { ExportMap } from "@jupyter-widgets/base";

export async function loadWidgets(): Promise<ExportMap> {
  const widgets = await Promise.all([import("./model_graph"), import("./mask_editor"), import("./metric_panel"), import("./workbench"), import("./forward_player")]);
  return Object.assign({}, ...widgets) as ExportMap;
}
