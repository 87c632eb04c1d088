// Dialogs of the commands.

import { Dialog, InputDialog, showDialog } from "@jupyterlab/apputils";
import type { IStateDB } from "@jupyterlab/statedb";
import type { ITranslator, TranslationBundle } from "@jupyterlab/translation";
import { MODULE } from "../generated/version";
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { IDocumentManager } from "@jupyterlab/docmanager";
import { FileDialog } from "@jupyterlab/filebrowser";

/** The only name, or the one that was picked; null when nothing was picked. */
export async function pickName(names: readonly string[], trans: TranslationBundle): Promise<string | null> {
  if (names.length < 2) {
    return names[0] ?? null;
  }
  const answer = await InputDialog.getItem({
    title: trans.__("Which model?"),
    label: trans.__("Models in the notebook's kernel"),
    items: [...names],
    okLabel: trans.__("Show"),
    cancelLabel: trans.__("Cancel")
  });
  const picked = answer.button.accept ? answer.value : null;
  return picked !== null && names.includes(picked) ? picked : null;
}

export async function showNotice(title: string, body: string, trans: TranslationBundle): Promise<undefined> {
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
      label: trans.__("Python expression for what its forward pass takes: a tensor, or a tuple of arguments"),
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
