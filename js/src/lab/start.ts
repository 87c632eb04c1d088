// The start of commands, tabs and the side panel, for which only JupyterLab has room.

import { type ILabShell, ILayoutRestorer, type JupyterFrontEnd } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { IConsoleTracker } from "@jupyterlab/console";
import { ILauncher } from "@jupyterlab/launcher";
import { INotebookTracker } from "@jupyterlab/notebook";
import { IStateDB } from "@jupyterlab/statedb";
import type { ITranslator, TranslationBundle } from "@jupyterlab/translation";
import "../../style/graph.css";
import "../../style/panels.css";
import { addCommands, addToLauncher, addToPalette, Inputs, openFile } from "./commands";
import { Hosts } from "./kernel/hosts";
import { AllKernelObjects } from "./kernel/kernel_objects";
import { ObjectPanel, PANEL_ID } from "./object_panel";
import { offerTabs, Tabs } from "./tabs";

export async function start(
  app: JupyterFrontEnd,
  shell: ILabShell,
  translator: ITranslator | null,
  trans: TranslationBundle
): Promise<void> {
  const [notebooks, consoles, restorer, palette, launcher, state] = await Promise.all([
    app.resolveOptionalService(INotebookTracker),
    app.resolveOptionalService(IConsoleTracker),
    app.resolveOptionalService(ILayoutRestorer),
    app.resolveOptionalService(ICommandPalette),
    app.resolveOptionalService(ILauncher),
    app.resolveOptionalService(IStateDB)
  ]);
  const hosts = new Hosts(shell, notebooks, consoles);
  const objects = new AllKernelObjects();
  const openNotebook = (path: string) => void app.commands.execute("docmanager:open", { path });
  const tabs = new Tabs(shell, { hosts, trans, openNotebook });
  const inputs = new Inputs(state, trans);
  offerTabs(shell);
  addCommands({
    app,
    shell,
    hosts,
    objects,
    tabs,
    inputs,
    trans,
    panelId: PANEL_ID,
    openFile: folder => openFile(app, folder, translator, trans)
  });
  const panel = new ObjectPanel({ hosts, objects, commands: app.commands, trans });
  shell.add(panel, "left", { rank: 600, type: "ModuleKG" });
  if (restorer) {
    restorer.add(panel, PANEL_ID);
    tabs.restoreBy(restorer);
  }
  if (palette) {
    addToPalette(palette);
  }
  if (launcher) {
    addToLauncher(launcher);
  }
}
