// The JupyterLab plugin: tells the widget manager where our views are, and no more.

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { type ExportMap, IJupyterWidgetRegistry } from "@jupyter-widgets/base";
import { MODULE, VERSION } from "./version";

const widgets: JupyterFrontEndPlugin<void> = {
  id: `${MODULE}:widgets`,
  description: "Views of the modulekg-widgets Python package.",
  autoStart: true,
  requires: [IJupyterWidgetRegistry],
  activate: (_app: JupyterFrontEnd, registry: IJupyterWidgetRegistry) => {
    registry.registerWidget({
      name: MODULE,
      version: VERSION,
      // loaded with the first widget
      exports: async () => {
        const widgets = await Promise.all([import("../widgets/model_graph"), import("../widgets/metric_panel")]);
        return Object.assign({}, ...widgets) as ExportMap;
      }
    });
  }
};

export default [widgets];
