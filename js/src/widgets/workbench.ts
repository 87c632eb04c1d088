// The widget Workbench: the views of its parts in panes that can be resized.

import { DOMWidgetModel, DOMWidgetView } from "@jupyter-widgets/base";
import "../../style/workbench.css";
import { readSplit, type Split, WorkbenchPanes } from "../core/shared/ui/workbench";
import { Connection, modelDefaults, offerViewInTab, otherModels, TraitWriter } from "./base";

const PARTS = ["graph", "editor", "panel", "explorer"] as const;

export class WorkbenchModel extends DOMWidgetModel {
  static override serializers = {
    ...DOMWidgetModel.serializers,
    ...Object.fromEntries(PARTS.map(part => [part, otherModels]))
  };

  override defaults(): ReturnType<DOMWidgetModel["defaults"]> {
    const parts = Object.fromEntries(PARTS.map(part => [part, null]));
    return { ...super.defaults(), ...modelDefaults("Workbench"), ...parts, split: {} };
  }
}

export class WorkbenchView extends DOMWidgetView {
  private panes?: WorkbenchPanes;
  private connection?: Connection;
  private writer?: TraitWriter;
  private children: Promise<DOMWidgetView>[] = [];

  override render(): void {
    super.render();
    this.el.dataset.mkgId = this.model.model_id;
    this.connection = new Connection(this.model, () => undefined);
    this.writer = new TraitWriter(this, () => this.connection?.connected ?? false);
    offerViewInTab(this);
    const named: unknown[] = PARTS.map(part => this.model.get(part) as unknown);
    const parts = named.filter(part => part instanceof DOMWidgetModel); // saved state may name anything
    const split = readSplit(this.model.get("split"));
    const beneath = parts.length > 1 && parts[parts.length - 1] === named[PARTS.indexOf("explorer")];
    const write = (changed: Split) => this.writer?.write("split", changed, 60);
    const panes = new WorkbenchPanes(this.el, parts.length, split, write, beneath);
    this.panes = panes;
    this.listenTo(this.model, "change:split", () => panes.setSplit(readSplit(this.model.get("split"))));
    void this.displayed.then(() => {
      this.panes?.addButtons();
      this.children = parts.map((part, at) => this.show(part, panes.panes[at]));
    });
  }

  override remove(): void {
    this.writer?.dispose();
    this.connection?.dispose();
    for (const child of this.children) void child.then(view => view.remove());
    this.children = [];
    this.panes?.dispose();
    this.panes = undefined;
    super.remove();
  }

  /** A child measures its place on the page: it hears of being displayed only once it is there. */
  private async show(part: DOMWidgetModel, pane: HTMLElement): Promise<DOMWidgetView> {
    const view = await this.create_child_view<DOMWidgetView>(part);
    pane.append(view.el);
    view.trigger("displayed");
    return view;
  }
}
