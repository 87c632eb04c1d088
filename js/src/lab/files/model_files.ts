// Model files, opened by a double click: their headers are read in parts, nothing in them is run, no kernel is needed.

import type { ILayoutRestorer, JupyterFrontEnd } from "@jupyterlab/application";
import { WidgetTracker } from "@jupyterlab/apputils";
import { ABCWidgetFactory, DocumentModel, type DocumentRegistry, DocumentWidget } from "@jupyterlab/docregistry";
import type { ITranslator, TranslationBundle } from "@jupyterlab/translation";
import { modelFileIcon } from "../icons";
import type { Kernels } from "./kernel_choice";
import { ModelFileView } from "./model_file_view";
import { addReadOnly } from "./read_only_documents";
import { MODULE } from "../../generated/version";
import { bundleOf } from "../i18n";

const FACTORY = "ModuleKG Model File";
const MODEL = "modulekg-model-file";
const CERTAIN = "modulekg-model";
const POSSIBLE = "modulekg-perhaps-model"; // often something else: opened here only where that is asked for

const ENDINGS: readonly string[] = [
  ".safetensors",
  ".safetensors.index.json",
  ".onnx",
  ".pt2",
  ".pt",
  ".pth",
  ".pth.tar",
  ".pt.tar",
  ".jit",
  ".ptl",
  ".ckpt",
  ".gguf",
  ".distcp"
];
const OTHER_ENDINGS: readonly string[] = [".bin", ".pkl", ".pickle", ".bin.index.json"];

type Document = DocumentWidget<ModelFileView, DocumentRegistry.IModel>;

export function addModelFiles(
  app: JupyterFrontEnd,
  restorer: ILayoutRestorer | null,
  translator: ITranslator | null
): void {
  const trans = bundleOf(translator);
  const tracker = new WidgetTracker<Document>({ namespace: `${MODULE}-model-files` });
  const type = { mimeTypes: ["application/octet-stream"], contentType: "file" as const, icon: modelFileIcon };
  app.docRegistry.addFileType({
    ...type,
    name: CERTAIN,
    displayName: trans.__("Model file"),
    extensions: [...ENDINGS]
  });
  app.docRegistry.addFileType({
    name: POSSIBLE,
    displayName: trans.__("Binary file"),
    contentType: "file",
    extensions: [...OTHER_ENDINGS]
  });
  app.docRegistry.addModelFactory(new UnreadFactory());
  const factory = new ModelFileFactory(
    {
      name: FACTORY,
      label: trans.__("ModuleKG Model File"),
      fileTypes: [CERTAIN, POSSIBLE],
      defaultFor: [CERTAIN],
      modelName: MODEL,
      readOnly: true,
      translator: translator ?? undefined
    },
    app,
    trans,
    async ask => (await (await import("./kernel_choice")).kernelsOf(app))(ask)
  );
  addReadOnly(app, restorer, factory, tracker, FACTORY, modelFileIcon);
}

/** A model that never has the content: it may be larger than any memory. */
class UnreadFactory implements DocumentRegistry.IModelFactory<DocumentRegistry.IModel> {
  readonly name = MODEL;
  readonly contentType = "file" as const;
  readonly fileFormat = null; // the server is asked about the file, and not for it
  readonly collaborative = false;
  readonly isDisposed = false;

  /** As one that others keep: JupyterLab makes no checkpoint of it, which would be a copy of the file. */
  createNew(): DocumentRegistry.IModel {
    return new DocumentModel({ collaborationEnabled: true });
  }

  preferredLanguage(): string {
    return "";
  }

  dispose(): void {
    // holds nothing
  }
}

class ModelFileFactory extends ABCWidgetFactory<Document, DocumentRegistry.IModel> {
  constructor(
    options: DocumentRegistry.IWidgetFactoryOptions<Document>,
    private readonly app: JupyterFrontEnd,
    private readonly trans: TranslationBundle,
    private readonly kernels: Kernels
  ) {
    super(options);
  }

  protected createNewWidget(context: DocumentRegistry.Context): Document {
    const { contents } = this.app.serviceManager;
    const content = new ModelFileView(context, contents, this.trans, this.kernels);
    return new DocumentWidget({ content, context });
  }
}
