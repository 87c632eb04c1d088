// Asks for a file of ours and opens it.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { IDocumentManager } from "@jupyterlab/docmanager";
import { FileDialog } from "@jupyterlab/filebrowser";
import type { ITranslator, TranslationBundle } from "@jupyterlab/translation";

export const ENDING = ".modulekg.json";

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
