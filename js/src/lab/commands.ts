// The commands of the palette and of the launcher, with their dialogs.

import type { ILabShell, JupyterFrontEnd } from "@jupyterlab/application";
import { type ICommandPalette, Dialog, InputDialog, showDialog } from "@jupyterlab/apputils";
import type { ILauncher } from "@jupyterlab/launcher";
import type { TranslationBundle, ITranslator } from "@jupyterlab/translation";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";
import type { Host, Hosts } from "./kernel/hosts";
import { graphIcon } from "./icons";
import { type AllKernelObjects, isPlainName, isTabKind, type TabKind } from "./kernel/kernel_objects";
import { type ObjectTab, RESTORE_COMMAND, type Tabs } from "./tabs";
import { MODULE } from "../generated/version";
import type { IStateDB } from "@jupyterlab/statedb";
import { IDocumentManager } from "@jupyterlab/docmanager";
import { FileDialog } from "@jupyterlab/filebrowser";

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
        ? trans.__("Explore a Model Next to the Active Notebook")
        : trans.__("Explore a Model of the Active Notebook"),
    caption: trans.__("The modules of a model as a graph, in a new tab"),
    icon: graphIcon,
    execute: args => showModel(tools, "graph", args)
  });
  add(COMMANDS.masks, {
    label: trans.__("Edit Masks of a Model of the Active Notebook…"),
    caption: trans.__("Select channels to prune, and see what that saves"),
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
    caption: trans.__("Models, plans and training runs in the kernel of the active notebook"),
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
    return showNotice(trans.__("No notebook"), trans.__("Open a notebook with a model first."), trans);
  }
  const objects = tools.objects.of(host.sessionContext);
  await host.sessionContext.ready;
  await objects.wake();
  const names = objects.list.objects.filter(object => object.kind === "model").map(object => object.name);
  if (names.length === 0) {
    const body = trans.__("No PyTorch module found in “%1”.", host.sessionContext.path);
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

// Dialogs of the commands.

/** The only name, or the one that was picked; null when nothing was picked. */
async function pickName(names: readonly string[], trans: TranslationBundle): Promise<string | null> {
  if (names.length < 2) {
    return names[0] ?? null;
  }
  const answer = await InputDialog.getItem({
    title: trans.__("Select a model"),
    label: trans.__("Models in the notebook's kernel"),
    items: [...names],
    okLabel: trans.__("Show"),
    cancelLabel: trans.__("Cancel")
  });
  const picked = answer.button.accept ? answer.value : null;
  return picked !== null && names.includes(picked) ? picked : null;
}

async function showNotice(title: string, body: string, trans: TranslationBundle): Promise<undefined> {
  await showDialog({ title, body, buttons: [Dialog.okButton({ label: trans.__("OK") })] });
}

/** The inputs of models, as they were typed last. */
export class Inputs {
  private readonly typed = new Map<string, string>();

  constructor(
    private readonly state: IStateDB | null,
    private readonly trans: TranslationBundle
  ) {}

  /** A Python expression for what the forward pass takes; null when the dialog was left. */
  async ask(path: string, name: string): Promise<string | null> {
    const { trans } = this;
    const answer = await InputDialog.getText({
      title: trans.__("Inputs of %1", name),
      label: trans.__("Python expression for the inputs of forward: a tensor or a tuple of arguments"),
      text: await this.remembered(path, name),
      placeholder: "torch.randn(1, 3, 224, 224)",
      okLabel: trans.__("Edit masks"),
      cancelLabel: trans.__("Cancel")
    });
    const text = answer.button.accept ? (answer.value ?? "").trim() : "";
    if (text === "") {
      return null;
    }
    this.typed.set(keyOf(path, name), text);
    void this.state?.save(keyOf(path, name), { text });
    return text;
  }

  private async remembered(path: string, name: string): Promise<string> {
    const key = keyOf(path, name);
    const kept = this.typed.get(key) ?? (await this.state?.fetch(key).catch(() => undefined));
    const text = typeof kept === "object" ? (kept as { text?: unknown } | null)?.text : kept;
    return typeof text === "string" ? text : "";
  }
}

function keyOf(path: string, name: string): string {
  return `${MODULE}:inputs:${path}:${name}`;
}

// Asks for a file of ours and opens it.

const ENDING = ".modulekg.json";

export async function openFile(
  app: JupyterFrontEnd,
  folder: string,
  translator: ITranslator | null,
  trans: TranslationBundle
): Promise<void> {
  const manager = await app.resolveOptionalService(IDocumentManager);
  if (!manager) {
    return;
  }
  const picked = await FileDialog.getOpenFiles({
    manager,
    defaultPath: folder,
    title: trans.__("Open a Saved Graph or Plan"),
    label: trans.__("Files that end in %1", ENDING),
    filter: item => (item.type === "directory" || item.name.endsWith(ENDING) ? { score: 0 } : null),
    translator: translator ?? undefined
  });
  for (const file of picked.button.accept ? (picked.value ?? []) : []) {
    if (file.type !== "directory") {
      await app.commands.execute("docmanager:open", { path: file.path });
    }
  }
}
