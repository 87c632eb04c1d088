// Tabs of the main area that show objects of a kernel, and how they come back after a reload of the page.

import type { ILabShell, ILayoutRestorer } from "@jupyterlab/application";
import { MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { refreshIcon, ToolbarButton } from "@jupyterlab/ui-components";
import { type ReadonlyPartialJSONObject, UUID } from "@lumino/coreutils";
import { graphIcon } from "./icons";
import {
  isPlainName,
  isTabId,
  isTabKind,
  type TabKind,
  restoreLine,
  lineFor,
  NO_OUTPUT,
  sendToKernel
} from "./kernel/kernel_objects";
import { MODULE } from "../generated/version";
import { Panel, Widget } from "@lumino/widgets";
import { setTabHost, type TabRequest } from "../core/shared/ui/window_buttons";
import { OutputAreaModel, SimplifiedOutputArea } from "@jupyterlab/outputarea";
import type { Kernel, KernelMessage } from "@jupyterlab/services";
import type { TranslationBundle } from "@jupyterlab/translation";
import { button, el, nameSpan } from "../core/shared/ui/dom";
import type { Host, Hosts } from "./kernel/hosts";

export type ObjectTab = MainAreaWidget<ObjectView>;

export const RESTORE_COMMAND = `${MODULE}:restore-tab`;

const MAX_INPUTS_LENGTH = 10_000;

interface Request {
  readonly kind: TabKind;
  readonly name: string;
  readonly path: string;
  readonly inputs?: string;
  readonly beside?: string; // id of the widget that it shall stand next to
}

export class Tabs {
  private readonly tracker = new WidgetTracker<ObjectTab>({ namespace: `${MODULE}-tabs` });
  private readonly wanted = new WeakMap<ObjectTab, ViewRequest>();

  constructor(
    private readonly shell: ILabShell,
    private readonly tools: ViewTools
  ) {
    tools.hosts.changed.connect(() => this.tracker.forEach(tab => this.followName(tab)));
  }

  restoreBy(restorer: ILayoutRestorer): void {
    void restorer.restore(this.tracker, {
      command: RESTORE_COMMAND,
      args: tab => this.saved(tab),
      name: tab => this.wanted.get(tab)?.tab ?? tab.id
    });
  }

  open({ kind, name, path, inputs, beside }: Request): ObjectTab {
    const tab = this.make({ kind, name, path, inputs, tab: `mkg-${UUID.uuid4()}` }, false);
    this.shell.add(tab, "main", beside === undefined ? {} : { ref: beside, mode: "split-right" });
    this.shell.activateById(tab.id);
    return tab;
  }

  /** A tab of an earlier page; null for what no earlier page can have kept. */
  restore(saved: ReadonlyPartialJSONObject): ObjectTab | null {
    const { kind, name, path, tab, inputs } = saved;
    const isWhole = isTabKind(kind) && isPlainName(name) && isTabId(tab) && typeof path === "string";
    const isInputs = inputs === undefined || (typeof inputs === "string" && inputs.length <= MAX_INPUTS_LENGTH);
    if (!isWhole || !isInputs || this.tracker.find(open => open.id === tab)) {
      return null;
    }
    const restored = this.make({ kind, name, path, tab, inputs }, true);
    this.shell.add(restored, "main", { activate: false });
    return restored;
  }

  private make(wanted: ViewRequest, isRestored: boolean): ObjectTab {
    const { trans } = this.tools;
    const content = new ObjectView(wanted, this.tools, isRestored);
    const tab = new MainAreaWidget({ content });
    tab.id = wanted.tab;
    tab.addClass("mkg-object-tab");
    tab.title.label = wanted.name;
    tab.title.caption = this.caption(wanted);
    tab.title.icon = graphIcon;
    tab.title.closable = true;
    tab.toolbar.addItem(
      "again",
      new ToolbarButton({ icon: refreshIcon, label: trans.__("Run again"), onClick: () => void content.run() })
    );
    this.wanted.set(tab, wanted);
    void this.tracker.add(tab);
    return tab;
  }

  private caption({ kind, name, path }: ViewRequest): string {
    const { trans } = this.tools;
    switch (kind) {
      case "graph":
        return trans.__("Model %1 of %2", name, path);
      case "masks":
        return trans.__("Masks of %1 of %2", name, path);
      case "panel":
        return trans.__("Metrics of %1 of %2", name, path);
      default:
        return trans.__("Plan %1 of %2", name, path);
    }
  }

  /** The notebook may have another name now. */
  private followName(tab: ObjectTab): void {
    const wanted = this.wanted.get(tab);
    if (wanted && wanted.path !== tab.content.path) {
      this.wanted.set(tab, { ...wanted, path: tab.content.path });
      tab.title.caption = this.caption({ ...wanted, path: tab.content.path });
      void this.tracker.save(tab);
    }
  }

  private saved(tab: ObjectTab): ReadonlyPartialJSONObject {
    const wanted = this.wanted.get(tab);
    if (!wanted) {
      return {};
    }
    const { kind, name, tab: id, inputs } = wanted;
    return { kind, name, tab: id, path: tab.content.path, ...(inputs === undefined ? {} : { inputs }) };
  }
}

// A widget of a notebook in a tab of the main area: a second view of the same live model.

/** The part of a widget's view that a tab needs. */
interface TabView {
  readonly el: HTMLElement;
  readonly luminoWidget: Widget;
}

/** From now on every view offers to be opened in a tab. Such tabs go with their model, so a reload does not bring them back. */
export function offerTabs(shell: ILabShell): void {
  setTabHost({ open: request => void open(shell, request) });
}

async function open(shell: ILabShell, { title, createView }: TabRequest): Promise<void> {
  const view = (await createView()) as TabView;
  const content = new Panel();
  const tab = new MainAreaWidget({ content });
  tab.id = `mkg-view-${UUID.uuid4()}`;
  tab.addClass("mkg-object-tab");
  tab.title.label = title;
  tab.title.caption = title;
  tab.title.icon = graphIcon;
  tab.title.closable = true;
  tab.toolbar.hide(); // the view has its own
  content.addClass("mkg-view-tab");
  view.el.classList.add("mkg-is-tab");
  // a model that goes takes its views along
  view.luminoWidget.disposed.connect(() => tab.dispose());
  content.addWidget(view.luminoWidget);
  shell.add(tab, "main");
  shell.activateById(tab.id);
}

// The inside of a tab, which runs one line in the kernel of a notebook, and shows what comes of it or why nothing does.

/** What a tab shows; kept over a reload of the page. */
interface ViewRequest {
  readonly kind: TabKind;
  readonly name: string;
  readonly path: string; // of the notebook or console
  readonly tab: string;
  readonly inputs?: string; // Python that somebody typed
}

interface ViewTools {
  readonly hosts: Hosts;
  readonly trans: TranslationBundle;
  openNotebook(path: string): void;
}

type State = "waiting" | "shown" | "problem" | "asking";

class ObjectView extends Panel {
  private host: Host | null = null;
  private kernel: Kernel.IKernelConnection | null = null;
  private area: SimplifiedOutputArea | null = null;
  private note: Widget | null = null;
  private runs = 0;

  /** `isRestored`: the kernel may still have what an earlier page has shown. */
  constructor(
    private wanted: ViewRequest,
    private readonly tools: ViewTools,
    private isRestored: boolean
  ) {
    super();
    this.addClass("mkg-object-view");
    this.node.dataset.mkgTab = wanted.tab;
    this.node.dataset.mkgKind = wanted.kind;
    tools.hosts.changed.connect(this.onHosts, this);
    void this.run();
  }

  get path(): string {
    return this.host && !this.host.widget.isDisposed ? this.host.sessionContext.path : this.wanted.path;
  }

  /** Runs the line; what an earlier run has shown goes. */
  async run(): Promise<void> {
    const { trans } = this.tools;
    const run = ++this.runs;
    this.clear();
    const { path } = this;
    this.host = this.tools.hosts.find(path);
    if (!this.host) {
      this.tell("problem", trans.__("Open “%1” to see “%2” here.", path, this.wanted.name), true);
      return;
    }
    this.tell("waiting", trans.__("Waiting for the kernel of “%1”…", path));
    const { sessionContext } = this.host;
    await sessionContext.ready;
    if (run !== this.runs || this.isDisposed) {
      return;
    }
    this.kernel = sessionContext.session?.kernel ?? null;
    if (!this.kernel) {
      this.tell("problem", trans.__("“%1” has no kernel. Start one and try again.", path));
      return;
    }
    await this.execute(this.kernel, this.host, run);
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this.runs += 1;
    this.tools.hosts.changed.disconnect(this.onHosts, this);
    sendToKernel(this.kernel, { method: "close", tab: this.wanted.tab });
    super.dispose();
  }

  private async execute(kernel: Kernel.IKernelConnection, host: Host, run: number): Promise<void> {
    const { kind, name, tab, inputs } = this.wanted;
    const { isRestored } = this;
    const area = new SimplifiedOutputArea({
      model: new OutputAreaModel({ trusted: true }), // as a cell's own output: somebody asked for this
      rendermime: host.rendermime
    });
    this.area = area;
    area.outputLengthChanged.connect(() => run === this.runs && this.reveal(area));
    const future = kernel.requestExecute({
      code: isRestored ? restoreLine(name, tab) : lineFor(kind, name, tab, inputs),
      store_history: false,
      allow_stdin: false,
      stop_on_error: false
    });
    area.future = future;
    try {
      const reply = await future.done;
      if (run === this.runs && !this.isDisposed) {
        this.isRestored = false;
        this.finish(reply.content, isRestored);
      }
    } catch {
      if (run === this.runs && !this.isDisposed) {
        this.tell("problem", this.tools.trans.__("The kernel stopped before it answered. Try again."));
      }
    }
  }

  private reveal(area: SimplifiedOutputArea): void {
    // an error becomes a sentence when the reply comes
    if (area.isAttached || area.model.length === 0 || area.model.get(0).type === "error") {
      return;
    }
    this.note?.dispose();
    this.note = null;
    this.node.dataset.mkgState = "shown";
    this.addWidget(area);
  }

  private finish(reply: KernelMessage.IExecuteReplyMsg["content"], isRestored: boolean): void {
    if (reply.status === "ok") {
      return;
    }
    const { trans } = this.tools;
    const { name, inputs } = this.wanted;
    const { ename, evalue } = reply.status === "error" ? reply : { ename: "", evalue: "" };
    if (isRestored && ename === NO_OUTPUT && inputs === undefined) {
      void this.run();
    } else if (isRestored && ename === NO_OUTPUT) {
      this.ask(inputs ?? ""); // code that somebody typed in an earlier page is not run before it was looked at
    } else if (ename === "NameError" && evalue.includes(`'${name}'`)) {
      this.tell("problem", trans.__("The kernel of “%1” no longer has “%2”.", this.path, name));
    } else {
      this.tell("problem", trans.__("Could not be shown: %1", `${ename} ${evalue}`.trim()));
    }
  }

  private ask(inputs: string): void {
    const { trans } = this.tools;
    const text = trans.__("The inputs of “%1” were entered before the page was reloaded. Run them?", this.wanted.name);
    this.tell("asking", text, false, inputs);
  }

  /** A sentence instead of the object, with what can be done about it. */
  private tell(state: State, text: string, canOpen = false, code = ""): void {
    const { trans } = this.tools;
    this.clear();
    const box = el("div", "mkg-lab-note");
    box.setAttribute("role", state === "waiting" ? "status" : "alert");
    box.append(nameSpan("mkg-lab-note-text", text));
    if (code) {
      box.append(nameSpan("mkg-lab-note-code", code));
    }
    if (state !== "waiting") {
      const again = button("mkg-button", state === "asking" ? trans.__("Run") : trans.__("Try again"));
      again.onclick = () => void this.run();
      box.append(again);
    }
    if (canOpen) {
      const open = button("mkg-button", trans.__("Open"));
      open.onclick = () => this.tools.openNotebook(this.wanted.path);
      box.append(open);
    }
    this.note = new Widget({ node: box });
    this.note.addClass("mkg-widget");
    this.node.dataset.mkgState = state;
    this.addWidget(this.note);
  }

  private clear(): void {
    this.area?.dispose();
    this.note?.dispose();
    this.area = this.note = null;
  }

  /** The notebook came, or went. */
  private onHosts(): void {
    const isLacking = this.node.dataset.mkgState === "problem" && !this.host;
    this.wanted = { ...this.wanted, path: this.path };
    if (this.host?.widget.isDisposed) {
      this.host = this.kernel = null;
      void this.run();
    } else if (isLacking && this.tools.hosts.find(this.wanted.path)) {
      void this.run();
    }
  }
}
