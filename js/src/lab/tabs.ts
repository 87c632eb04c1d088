// Tabs of the main area that show objects of a kernel, and how they come back after a reload of the page.

import type { ILabShell, ILayoutRestorer } from "@jupyterlab/application";
import { MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { refreshIcon, ToolbarButton } from "@jupyterlab/ui-components";
import { type ReadonlyPartialJSONObject, UUID } from "@lumino/coreutils";
import { graphIcon } from "./icons";
import { isPlainName, isTabId, isTabKind, type TabKind } from "./kernel/kernel_protocol";
import { ObjectView, type ViewTools, type ViewRequest } from "./object_view";
import { MODULE } from "../generated/version";
import { Panel, type Widget } from "@lumino/widgets";
import { setTabHost, type TabRequest } from "../core/shared/ui/window_buttons";

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
        return trans.__("Values of %1 of %2", name, path);
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
