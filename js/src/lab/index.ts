// The JupyterLab plugins: each only activated here. JupyterLab has all of them, Notebook 7 and Voila what they can.

import { ILabShell, ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { type ExportMap, IJupyterWidgetRegistry } from "@jupyter-widgets/base";
import { ITranslator, nullTranslator, type TranslationBundle } from "@jupyterlab/translation";
import type { ViewerHost } from "./files/read_only_documents";
import { MODULE, VERSION } from "../generated/version";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import "../../style/lab.css";
import "../../style/theme.css";
import { DEFAULT_LIMITS, applySettings } from "../core/shared/base/settings";
import * as words from "../core/words/lab";

// The settings: colors, limits and motion of all our views on the page.

const ID = `${MODULE}:settings`; // js/schema/settings.json

/** Classes of the body, which style/theme.css gives the colors of a theme. */
const THEMES = ["light", "dark", "high-contrast"].map(theme => [theme, `mkg-theme-${theme}`] as const);
const CALM = "mkg-reduced-motion";

const settingsPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: words.SETTINGS,
  autoStart: true,
  optional: [ISettingRegistry],
  activate: (_app: JupyterFrontEnd, registry: ISettingRegistry | null) => {
    // not waited for: the views are there before their settings are, and follow them
    void registry
      ?.load(ID)
      .then(settings => {
        const follow = () => apply(settings);
        settings.changed.connect(follow);
        follow();
      })
      .catch(() => undefined); // a server without our schema: the defaults stay
  }
};

function apply(settings: ISettingRegistry.ISettings): void {
  const { theme, motion, softLimit, hardLimit } = settings.composite;
  const { classList } = document.body;
  THEMES.forEach(([name, className]) => classList.toggle(className, theme === name));
  classList.toggle(CALM, motion === "reduced");
  applySettings({
    reducedMotion: motion === "reduced",
    limits: { notice: whole(softLimit, DEFAULT_LIMITS.notice), refusal: whole(hardLimit, DEFAULT_LIMITS.refusal) }
  });
}

function whole(value: unknown, otherwise: number): number {
  return typeof value === "number" && Number.isInteger(value) && value > 0 ? value : otherwise;
}

const widgets: JupyterFrontEndPlugin<void> = {
  id: `${MODULE}:widgets`,
  description: words.WIDGETS,
  autoStart: true,
  requires: [IJupyterWidgetRegistry],
  activate: (_app: JupyterFrontEnd, registry: IJupyterWidgetRegistry) => {
    registry.registerWidget({
      name: MODULE,
      version: VERSION,
      // all of them with the first one that a page shows
      exports: async () => ({ ...(await import("../widgets/all")) }) as unknown as ExportMap
    });
  }
};

const pictures: JupyterFrontEndPlugin<void> = {
  id: `${MODULE}:saved-pictures`,
  description: words.SAVED_PICTURES,
  autoStart: true,
  requires: [IJupyterWidgetRegistry], // what it adds to is there then
  optional: [ITranslator],
  activate: async (app: JupyterFrontEnd, _registry: IJupyterWidgetRegistry, translator: ITranslator | null) => {
    if (app.docRegistry) {
      await (await import("./saved_pictures")).addSavedPictures(app, bundleOf(translator));
    }
  }
};

const viewer = filePlugin("viewer", words.VIEWER, async host => (await import("./files/viewer")).addViewer(host));

const modelFiles = filePlugin("model-files", words.MODEL_FILES, async host =>
  (await import("./files/model_files")).addModelFiles(host)
);

function filePlugin(
  name: string,
  description: string,
  add: (host: ViewerHost) => Promise<void>
): JupyterFrontEndPlugin<void> {
  return {
    id: `${MODULE}:${name}`,
    description,
    autoStart: true,
    optional: [ILayoutRestorer, ITranslator],
    activate: async (app: JupyterFrontEnd, restorer: ILayoutRestorer | null, translator: ITranslator | null) => {
      if (app.docRegistry) await add({ app, restorer, translator, trans: bundleOf(translator) });
    }
  };
}

/** The translations through which all texts of the plugins go. */
function bundleOf(translator: ITranslator | null): TranslationBundle {
  return (translator ?? nullTranslator).load("modulekg_widgets");
}

const lab: JupyterFrontEndPlugin<void> = {
  id: `${MODULE}:lab`,
  description: words.LAB,
  autoStart: true,
  optional: [ILabShell, ITranslator],
  activate: async (app: JupyterFrontEnd, shell: ILabShell | null, translator: ITranslator | null) => {
    if (shell) {
      // what this imports is not there in other front ends
      await (await import("./start")).start(app, shell, translator, bundleOf(translator));
    }
  }
};

export default [widgets, settingsPlugin, pictures, viewer, modelFiles, lab];
