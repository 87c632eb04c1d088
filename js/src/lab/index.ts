// The JupyterLab plugins: each only activated here. JupyterLab has all of them, Notebook 7 and Voila what they can.

import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { IJupyterWidgetRegistry } from "@jupyter-widgets/base";
import { ITranslator } from "@jupyterlab/translation";
import { loadWidgets } from "../widgets";
import { settingsPlugin } from "./settings";
import { MODULE, VERSION } from "./version";
import { bundleOf } from "./words";

const widgets: JupyterFrontEndPlugin<void> = {
  id: `${MODULE}:widgets`,
  description: "Views of the modulekg-widgets Python package.",
  autoStart: true,
  requires: [IJupyterWidgetRegistry],
  activate: (_app: JupyterFrontEnd, registry: IJupyterWidgetRegistry) => {
    registry.registerWidget({
      name: MODULE,
      version: VERSION,
      exports: loadWidgets
    });
  }
};

const pictures: JupyterFrontEndPlugin<void> = {
  id: `${MODULE}:saved-pictures`,
  description: "Shows the saved picture of a widget whose kernel is gone.",
  autoStart: true,
  requires: [IJupyterWidgetRegistry], // what it adds to is there then
  optional: [ITranslator],
  activate: async (app: JupyterFrontEnd, _registry: IJupyterWidgetRegistry, translator: ITranslator | null) => {
    if (app.docRegistry) {
      await (await import("./saved_pictures")).addSavedPictures(app, bundleOf(translator));
    }
  }
};

const viewer: JupyterFrontEndPlugin<void> = {
  id: `${MODULE}:viewer`,
  description: "Opens saved graphs and plans.",
  autoStart: true,
  optional: [ILayoutRestorer, ITranslator],
  activate: async (app: JupyterFrontEnd, restorer: ILayoutRestorer | null, translator: ITranslator | null) => {
    if (app.docRegistry) {
      (await import("./viewer")).addViewer(app, restorer, translator);
    }
  }
};

const modelFiles: JupyterFrontEndPlugin<void> = {
  id: `${MODULE}:model-files`,
  description: "Opens model files without a kernel: what is in them, and how large.",
  autoStart: true,
  optional: [ILayoutRestorer, ITranslator],
  activate: async (app: JupyterFrontEnd, restorer: ILayoutRestorer | null, translator: ITranslator | null) => {
    if (app.docRegistry) {
      (await import("./model_files")).addModelFiles(app, restorer, translator);
    }
  }
};

const lab: JupyterFrontEndPlugin<void> = {
  id: `${MODULE}:lab`,
  description: "Commands, tabs and the side panel for the models of a notebook's kernel.",
  autoStart: true,
  optional: [ILabShell],
  activate: async (app: JupyterFrontEnd, shell: ILabShell | null) => {
    if (shell) {
      // what this imports is not there in other front ends
      await (await import("./start")).start(app, shell);
    }
  }
};

export default [widgets, settingsPlugin, pictures, viewer, modelFiles, lab];
