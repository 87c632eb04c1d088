// Model files, opened by a double click: their headers are read in parts, nothing in them is run, no kernel is needed.

import { PathExt } from "@jupyterlab/coreutils";
import { DocumentModel, type DocumentRegistry } from "@jupyterlab/docregistry";
import type { Contents } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";
import "../../../style/graph.css";
import "../../../style/panels.css";
import type { ModelGraph } from "../../core/graph/model_graph";
import { el } from "../../core/shared/ui/dom";
import { FileProblem, problemMessage } from "../../core/shared/payload/file_problem";
import type { ModelPayload } from "../../core/shared/payload/payload";
import type { GraphState, GraphStore } from "../../core/shared/model/graph_store";
import { modelFileIcon } from "../icons";
import type { Kernels } from "./kernel_choice";
import { addReadOnly, type ViewerHost } from "./read_only_documents";
import { askHistogram, RangeSource } from "./server_file";

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

export function addModelFiles(host: ViewerHost): void {
  const { app, trans } = host;
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
  const kernels: Kernels = async ask => (await (await import("./kernel_choice")).kernelsOf(app))(ask);
  addReadOnly(host, {
    name: "ModuleKG Model File",
    label: trans.__("ModuleKG Model File"),
    fileTypes: [CERTAIN, POSSIBLE],
    defaultFor: [CERTAIN],
    modelName: MODEL,
    namespace: "model-files",
    icon: modelFileIcon,
    createContent: context => new ModelFileView(context, app.serviceManager.contents, trans, kernels)
  });
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

// A model file in a tab: read when it is opened, and again when it has changed.

const LOOK_AGAIN = 5000; // ms
const KEPT = ["selected", "expanded", "colorBy", "query", "view"] as const; // of what somebody chose in the file before

class ModelFileView extends Widget {
  private source: RangeSource | null = null;
  private payload: ModelPayload | null = null; // read and not yet drawn
  private graph: ModelGraph | null = null;
  private store: GraphStore | null = null;
  private gone: HTMLElement | null = null; // says that the file is no longer there
  private reading = 0; // only the latest counts
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(
    private readonly context: DocumentRegistry.Context,
    private readonly contents: Contents.IManager,
    private readonly trans: TranslationBundle,
    private readonly kernels: Kernels
  ) {
    super();
    this.addClass("mkg-saved-view");
    this.node.tabIndex = -1;
    this.say(trans.__("Reading…"), "status");
    void context.ready.then(() => this.follow());
  }

  override dispose(): void {
    clearInterval(this.timer);
    this.reading += 1;
    this.graph?.dispose();
    super.dispose();
  }

  /** The canvas needs the size that it has on the page. */
  protected override onAfterShow(): void {
    void this.draw();
    void this.lookAgain();
  }

  protected override onAfterAttach(): void {
    void this.draw();
  }

  protected override onActivateRequest(_message: Message): void {
    void this.lookAgain();
    this.node.focus({ preventScroll: true });
  }

  private follow(): void {
    if (this.isDisposed) return;
    this.context.fileChanged.connect(() => void this.read());
    this.context.pathChanged.connect(() => void this.read());
    this.timer = setInterval(() => void this.lookAgain(), LOOK_AGAIN);
    void this.read();
  }

  /** JupyterLab tells nobody when a file that is open is written anew, as checkpoints are. */
  private async lookAgain(): Promise<void> {
    const { source } = this;
    if (!source || !this.isVisible || document.hidden) return;
    const found = await source.lookAgain();
    if (this.isDisposed || source !== this.source) return;
    if (found === "changed") return this.read();
    this.sayGone(found === "gone");
  }

  /** What was read of a file stays when it is deleted. */
  private sayGone(isGone: boolean): void {
    if (isGone === (this.gone !== null)) return;
    this.gone?.remove();
    this.gone = null;
    if (!isGone) return;
    const text = this.trans.__("This file no longer exists. The view shows its last read content.");
    this.gone = el("div", "mkg-widget mkg-file-gone", text);
    this.gone.setAttribute("role", "alert");
    this.node.prepend(this.gone);
  }

  private async read(): Promise<void> {
    const reading = ++this.reading;
    try {
      const [source, { readModelFile }, { filePayload }] = await Promise.all([
        RangeSource.open(this.contents, this.context.path),
        import("../../core/files/registry"),
        import("../../core/files/tree/payload")
      ]);
      if (reading !== this.reading) return;
      this.source = source;
      const contents = await readModelFile(source);
      if (reading !== this.reading) return;
      this.payload = filePayload(contents, source.name);
      await this.draw();
    } catch (error) {
      if (reading !== this.reading) return;
      if (!(error instanceof FileProblem)) console.error("modulekg-widgets", error);
      this.clear();
      this.say(this.reasonOf(error), "alert");
    }
  }

  private reasonOf(error: unknown): string {
    if (!(error instanceof FileProblem)) return this.trans.__("This file cannot be shown.");
    const own = PathExt.basename(this.contents.localPath(this.context.path));
    const isOwn = error.reason === "missing" && error.part === own; // and not one that should lie beside it
    return isOwn ? this.trans.__("This file no longer exists.") : problemMessage(error, this.trans);
  }

  private async draw(): Promise<void> {
    const { payload } = this;
    if (!payload || !this.isAttached || !this.isVisible) return;
    this.payload = null;
    const [{ createModelGraph }, { GraphStore }] = await Promise.all([
      import("../../core/graph/model_graph"),
      import("../../core/shared/model/graph_store")
    ]);
    if (this.isDisposed) return;
    const store = new GraphStore(this.chosen());
    this.clear();
    const host = el("div");
    this.node.append(host);
    this.store = store;
    this.graph = createModelGraph(host, payload, store, {
      histogram: name => askHistogram(this.kernels, this.contents.localPath(this.context.path), name),
      size: this.source?.size
    });
  }

  /** What somebody looks at stays what they look at when the file is read again. */
  private chosen(): Partial<GraphState> {
    const before = this.store?.snapshot();
    if (!before) return { colorBy: "bytes", openToFit: true };
    return { ...Object.fromEntries(KEPT.map(key => [key, before[key]])), openToFit: before.openToFit };
  }

  private say(text: string, role: "alert" | "status"): void {
    const note = el("div", "mkg-widget mkg-message", text);
    note.setAttribute("role", role);
    this.node.append(note);
  }

  private clear(): void {
    this.graph?.dispose();
    this.graph = null;
    this.gone = null;
    this.node.replaceChildren();
  }
}
