// Read-only documents for the viewers of files, which come back after a reload.

import type { ILayoutRestorer, JupyterFrontEnd } from "@jupyterlab/application";
import type { WidgetTracker } from "@jupyterlab/apputils";
import type { DocumentRegistry, IDocumentWidget } from "@jupyterlab/docregistry";
import type { LabIcon } from "@jupyterlab/ui-components";

/** Adds the factory of a viewer, of which `name` is known to the registry, and keeps track of what it opens. */
export function addReadOnly<T extends IDocumentWidget>(
  app: JupyterFrontEnd,
  restorer: ILayoutRestorer | null,
  factory: DocumentRegistry.IWidgetFactory<T, DocumentRegistry.IModel>,
  tracker: WidgetTracker<T>,
  name: string,
  icon: LabIcon
): void {
  factory.widgetCreated.connect((_, document) => {
    document.title.icon = icon;
    document.toolbar.hide(); // there is nothing to be done to a file that is only read
    document.context.pathChanged.connect(() => void tracker.save(document));
    void tracker.add(document);
  });
  app.docRegistry.addWidgetFactory(factory);
  void restorer?.restore(tracker, {
    command: "docmanager:open",
    args: document => ({ path: document.context.path, factory: name }),
    name: document => document.context.path
  });
}
