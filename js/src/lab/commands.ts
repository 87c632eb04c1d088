// The commands of the palette and of the launcher.

import type { ILabShell, JupyterFrontEnd } from "@jupyterlab/application";
import type { ICommandPalette } from "@jupyterlab/apputils";
import type { ILauncher } from "@jupyterlab/launcher";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";
import { type Inputs, pickName, showNotice } from "./dialogs";
import type { Host, Hosts } from "./kernel/hosts";
import { graphIcon } from "./icons";
import type { AllKernelObjects } from "./kernel/kernel_objects";
import { isPlainName, isTabKind, type TabKind } from "./kernel/kernel_protocol";
import { type ObjectTab, RESTORE_COMMAND, type Tabs } from "./tabs";
import { MODULE } from "../generated/version";

export const COMMANDS = {
  explore: `${MODULE}:explore`,
  masks: `${MODULE}:edit-masks`,
  show: `${MODULE}:show-object`,
  openFile: `${MODULE}:open-file`,
  showPanel: `${MODULE}:show-panel`
} as const;

interface CommandTools {
  readonly app: JupyterFrontEnd;
  readonly shell: ILabShell;
  readonly hosts: Hosts;
  readonly objects: AllKernelObjects;
  readonly tabs: Tabs;
  readonly inputs: Inputs;
  readonly trans: TranslationBundle;
  readonly panelId: string;
  openFile(folder: string): Promise<void>;
}

export function addCommands(tools: CommandTools): void {
  const { app, shell, tabs, trans, panelId } = tools;
  const add = app.commands.addCommand.bind(app.commands);
  add(COMMANDS.explore, {
    label: args =>
      args.beside
        ? trans.__("Explore a Model Beside the Active Notebook")
        : trans.__("Explore a Model of the Active Notebook"),
    caption: trans.__("The modules of a model as a graph, in a tab of its own"),
    icon: graphIcon,
    execute: args => showModel(tools, "graph", args)
  });
  add(COMMANDS.masks, {
    label: trans.__("Edit Masks of a Model of the Active Notebook…"),
    caption: trans.__("Choose what of a model is dropped, and see what that saves"),
    icon: graphIcon,
    execute: args => showModel(tools, "masks", args)
  });
  add(COMMANDS.show, {
    label: trans.__("Show an Object of the Active Notebook"),
    execute: args => showNamed(tools, args)
  });
  add(COMMANDS.openFile, {
    label: trans.__("Open a Saved Graph or Plan…"),
    caption: trans.__("A file that ends in .modulekg.json"),
    icon: graphIcon,
    execute: args => tools.openFile(typeof args.cwd === "string" ? args.cwd : "")
  });
  add(COMMANDS.showPanel, {
    label: trans.__("Show the ModuleKG Panel"),
    caption: trans.__("Models, plans and trainings in the kernel of the active notebook"),
    icon: graphIcon,
    execute: () => shell.activateById(panelId)
  });
  add(RESTORE_COMMAND, {
    label: trans.__("Restore a ModuleKG Tab"),
    execute: args => tabs.restore(args) ?? undefined
  });
}

export function addToPalette(palette: ICommandPalette): void {
  const category = "ModuleKG";
  const { explore, masks, openFile, showPanel } = COMMANDS;
  palette.addItem({ command: explore, category });
  palette.addItem({ command: explore, category, args: { beside: true } });
  [masks, openFile, showPanel].forEach(command => palette.addItem({ command, category }));
}

export function addToLauncher(launcher: ILauncher): void {
  const { explore, masks, openFile, showPanel } = COMMANDS;
  [explore, masks, openFile, showPanel].forEach((command, rank) =>
    launcher.add({ command, category: "ModuleKG", rank })
  );
}

/** A model of the active notebook; which one is asked where there are several. */
async function showModel(
  tools: CommandTools,
  kind: TabKind,
  args: ReadonlyPartialJSONObject
): Promise<ObjectTab | undefined> {
  const { hosts, trans } = tools;
  const host = hosts.current;
  if (!host) {
    return showNotice(trans.__("No notebook"), trans.__("Open a notebook first: its kernel has the models."), trans);
  }
  const objects = tools.objects.of(host.sessionContext);
  await host.sessionContext.ready;
  await objects.wake();
  const names = objects.list.objects.filter(object => object.kind === "model").map(object => object.name);
  if (names.length === 0) {
    const body = trans.__("No variable of “%1” is a torch module.", host.sessionContext.path);
    return showNotice(trans.__("No model"), body, trans);
  }
  const asked = args.name;
  const name = isPlainName(asked) && names.includes(asked) ? asked : await pickName(names, trans);
  return name === null ? undefined : show(tools, host, kind, name, args.beside === true);
}

/** An object that the panel lists. */
async function showNamed(tools: CommandTools, args: ReadonlyPartialJSONObject): Promise<ObjectTab | undefined> {
  const host = tools.hosts.current;
  const { name, kind } = args;
  const isNamed = host && isPlainName(name) && isTabKind(kind);
  return isNamed ? show(tools, host, kind, name, args.beside === true) : undefined;
}

async function show(
  { tabs, inputs: known }: CommandTools,
  host: Host,
  kind: TabKind,
  name: string,
  isBeside: boolean
): Promise<ObjectTab | undefined> {
  const { path } = host.sessionContext;
  const inputs = kind === "masks" ? await known.ask(path, name) : undefined;
  if (inputs === null) return undefined;
  return tabs.open({ kind, name, path, inputs, beside: isBeside ? host.widget.id : undefined });
}
