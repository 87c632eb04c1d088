// Read-only documents: viewers of files in tabs, which come back after a reload.

import type { ILayoutRestorer, JupyterFrontEnd } from "@jupyterlab/application";
import { WidgetTracker } from "@jupyterlab/apputils";
import { ABCWidgetFactory, type DocumentRegistry, DocumentWidget, type IDocumentWidget } from "@jupyterlab/docregistry";
import type { ITranslator, TranslationBundle } from "@jupyterlab/translation";
import type { LabIcon } from "@jupyterlab/ui-components";
import type { Widget } from "@lumino/widgets";
import { MODULE } from "../../generated/version";

/** The front end that viewers are added to. */
export interface ViewerHost {
  readonly app: JupyterFrontEnd;
  readonly restorer: ILayoutRestorer | null;
  readonly translator: ITranslator | null;
  readonly trans: TranslationBundle;
}

interface Viewer extends Pick<DocumentRegistry.IWidgetFactoryOptions, "name" | "label" | "fileTypes"> {
  readonly defaultFor: readonly string[];
  readonly modelName?: string;
  readonly namespace: string; // of the documents that are open
  readonly icon: LabIcon;
  createContent(context: DocumentRegistry.Context): Widget;
}

export function addReadOnly({ app, restorer, translator }: ViewerHost, viewer: Viewer): void {
  const { namespace, icon, createContent, ...options } = viewer;
  const tracker = new WidgetTracker<IDocumentWidget>({ namespace: `${MODULE}-${namespace}` });
  const factory = new ReadOnlyFactory(createContent, {
    ...options,
    readOnly: true,
    translator: translator ?? undefined
  });
  factory.widgetCreated.connect((_, document) => {
    document.title.icon = icon;
    document.toolbar.hide(); // there is nothing to be done to a file that is only read
    document.context.pathChanged.connect(() => void tracker.save(document));
    void tracker.add(document);
  });
  app.docRegistry.addWidgetFactory(factory);
  void restorer?.restore(tracker, {
    command: "docmanager:open",
    args: document => ({ path: document.context.path, factory: viewer.name }),
    name: document => document.context.path
  });
}

class ReadOnlyFactory extends ABCWidgetFactory<IDocumentWidget, DocumentRegistry.IModel> {
  constructor(
    private readonly createContent: Viewer["createContent"],
    options: DocumentRegistry.IWidgetFactoryOptions
  ) {
    super(options);
  }

  protected createNewWidget(context: DocumentRegistry.Context): IDocumentWidget {
    return new DocumentWidget({ content: this.createContent(context), context });
  }
}
