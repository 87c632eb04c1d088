// Saved graphs and plans, opened by a double click: read and drawn, never run and never written.

import type { DocumentRegistry } from "@jupyterlab/docregistry";
import type { TranslationBundle } from "@jupyterlab/translation";
import { Widget } from "@lumino/widgets";
import "../../../style/graph.css";
import "../../../style/panels.css";
import { el } from "../../core/shared/ui/dom";
import { FileProblem, problemMessage } from "../../core/shared/payload/file_problem";
import type { ModelGraph } from "../../core/graph/model_graph";
import { showPlan } from "../../core/panel/plan_view";
import { readSavedFile, type SavedFile } from "../../core/shared/payload/saved_file";
import { graphIcon } from "../icons";
import { addReadOnly, type ViewerHost } from "./read_only_documents";

const FILE_TYPE = "modulekg";
const EXTENSION = ".modulekg.json";

export function addViewer(host: ViewerHost): void {
  const { app, trans } = host;
  app.docRegistry.addFileType({
    name: FILE_TYPE,
    displayName: trans.__("ModuleKG graph or plan"),
    extensions: [EXTENSION],
    mimeTypes: ["application/json"],
    contentType: "file",
    fileFormat: "text",
    icon: graphIcon
  });
  addReadOnly(host, {
    name: "ModuleKG",
    label: trans.__("ModuleKG Viewer"),
    fileTypes: [FILE_TYPE],
    defaultFor: [FILE_TYPE],
    namespace: "files",
    icon: graphIcon,
    createContent: context => new SavedView(context, trans)
  });
}

class SavedView extends Widget {
  private file: SavedFile | null = null;
  private graph: ModelGraph | null = null;
  private text: string | null = null;

  constructor(
    private readonly context: DocumentRegistry.Context,
    private readonly trans: TranslationBundle
  ) {
    super();
    this.addClass("mkg-saved-view");
    void context.ready.then(() => this.follow());
  }

  override dispose(): void {
    this.graph?.dispose();
    super.dispose();
  }

  /** The canvas needs the size that it has on the page. */
  protected override onAfterShow(): void {
    this.draw();
  }

  protected override onAfterAttach(): void {
    this.draw();
  }

  private follow(): void {
    if (!this.isDisposed) {
      this.context.model.contentChanged.connect(() => this.read());
      this.read();
    }
  }

  private read(): void {
    const text = this.context.model.toString();
    if (this.isDisposed || text === this.text) {
      return;
    }
    this.text = text;
    this.clear();
    try {
      this.file = readSavedFile(text);
      this.draw();
    } catch (error) {
      this.file = null;
      this.explain(
        error instanceof FileProblem ? problemMessage(error, this.trans) : this.trans.__("This file cannot be shown.")
      );
    }
  }

  private draw(): void {
    const { file } = this;
    if (!file || !this.isAttached || !this.isVisible || this.node.firstChild) {
      return;
    }
    const host = el("div");
    this.node.append(host);
    if (file.kind === "plan") {
      showPlan(host, file.plan, this.trans);
    } else {
      void this.drawGraph(host, file.payload);
    }
  }

  private async drawGraph(host: HTMLElement, payload: unknown): Promise<void> {
    const [{ createModelGraph }, { GraphStore }] = await Promise.all([
      import("../../core/graph/model_graph"),
      import("../../core/shared/model/graph_store")
    ]);
    if (host.isConnected) {
      this.graph = createModelGraph(host, payload, new GraphStore());
    }
  }

  private explain(text: string): void {
    const note = el("div", "mkg-widget mkg-message", text);
    note.setAttribute("role", "alert");
    this.node.append(note);
  }

  private clear(): void {
    this.graph?.dispose();
    this.graph = null;
    this.node.replaceChildren();
  }
}
