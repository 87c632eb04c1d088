// The side panel of JupyterLab: lists of the objects in the focused notebook's kernel, with the actions on each.

import type { TranslationBundle } from "@jupyterlab/translation";
import type { CommandRegistry } from "@lumino/commands";
import { Widget } from "@lumino/widgets";
import { button, el, nameSpan, icon, setRole } from "../core/shared/ui/dom";
import { exactNumber, shortNumber } from "../core/shared/base/format";
import { COMMANDS } from "./commands";
import type { Host, Hosts } from "./kernel/hosts";
import { graphIcon } from "./icons";
import {
  type KernelObject,
  OBJECT_KINDS,
  type ObjectKind,
  TAB_KINDS,
  OTHER_VERSION,
  type TabKind,
  type AllKernelObjects,
  type KernelObjects
} from "./kernel/kernel_objects";
import { MODULE } from "../generated/version";

export const PANEL_ID = `${MODULE}-panel`;

interface PanelTools {
  readonly hosts: Hosts;
  readonly objects: AllKernelObjects;
  readonly commands: CommandRegistry;
  readonly trans: TranslationBundle;
}

export class ObjectPanel extends Widget {
  private host: Host | null = null;
  private followed: KernelObjects | null = null;
  private readonly heading = el("div", "mkg-lab-panel-of");
  private readonly body = el("div", "mkg-lab-panel-body");

  constructor(private readonly tools: PanelTools) {
    super();
    const { trans, hosts } = tools;
    this.id = PANEL_ID;
    this.addClass("mkg-widget");
    this.addClass("mkg-lab-panel");
    setRole(this.node, "region", trans.__("ModuleKG: kernel objects"));
    this.title.icon = graphIcon;
    this.title.caption = trans.__("ModuleKG: models, plans and training runs of the notebook");
    const refresh = button("mkg-icon-button mkg-lab-refresh", "", trans.__("Refresh"));
    refresh.setAttribute("aria-label", trans.__("Refresh"));
    refresh.append(icon("refresh"));
    refresh.onclick = () => this.followed?.refresh();
    const head = el("div", "mkg-lab-panel-head");
    head.append(this.heading, refresh);
    this.node.append(head, this.body);
    hosts.changed.connect(this.follow, this);
    this.follow();
  }

  override dispose(): void {
    this.tools.hosts.changed.disconnect(this.follow, this);
    this.followed?.changed.disconnect(this.draw, this);
    super.dispose();
  }

  private follow(): void {
    const host = this.tools.hosts.current;
    const objects = host ? this.tools.objects.of(host.sessionContext) : null;
    this.host = host;
    if (objects !== this.followed) {
      this.followed?.changed.disconnect(this.draw, this);
      this.followed = objects;
      objects?.changed.connect(this.draw, this);
    }
    this.draw();
  }

  private draw(): void {
    const { host, followed } = this;
    const path = host?.sessionContext.path ?? "";
    this.heading.replaceChildren(nameSpan("mkg-lab-panel-path", host?.widget.title.label ?? ""));
    this.heading.title = path;
    this.node.dataset.mkgPath = path;
    this.node.dataset.mkgKnown = followed?.known ?? "";
    const focused =
      document.activeElement instanceof HTMLElement ? document.activeElement.dataset.mkgAction : undefined;
    this.body.replaceChildren(...this.content());
    if (focused) {
      this.body.querySelector<HTMLElement>(`[data-mkg-action="${CSS.escape(focused)}"]`)?.focus();
    }
  }

  private content(): HTMLElement[] {
    const { trans } = this.tools;
    const { followed } = this;
    if (!followed) {
      return [el("p", "mkg-lab-empty", trans.__("Open a notebook to list its models, plans and training runs."))];
    }
    if (followed.known === OTHER_VERSION) {
      const text = trans.__("The kernel has another version of modulekg-widgets. Restart it and reload the page.");
      return [el("p", "mkg-lab-empty", text)];
    }
    if (followed.known === "nothing") {
      const wake = button("mkg-button", trans.__("Inspect this kernel"));
      wake.onclick = () => void followed.wake();
      return [el("p", "mkg-lab-empty", trans.__("modulekg_widgets is not imported in this kernel.")), wake];
    }
    const { objects, leftOut } = followed.list;
    const sections = OBJECT_KINDS.map(kind =>
      this.section(
        kind,
        objects.filter(object => object.kind === kind)
      )
    );
    if (objects.length === 0) {
      sections.push(el("p", "mkg-lab-empty", trans.__("No models, plans or training runs in this kernel.")));
    }
    if (leftOut > 0) {
      sections.push(el("p", "mkg-lab-empty", trans._n("%1 more not listed.", "%1 more not listed.", leftOut)));
    }
    return sections.filter(section => section !== null);
  }

  private section(kind: ObjectKind, objects: readonly KernelObject[]): HTMLElement | null {
    if (objects.length === 0) {
      return null;
    }
    const section = el("section", "mkg-lab-section");
    const heading = el("h3", "mkg-lab-heading", this.headings()[kind]);
    const list = el("ul", "mkg-lab-list");
    heading.id = `${PANEL_ID}-${kind}`;
    list.setAttribute("aria-labelledby", heading.id);
    list.append(...objects.map(object => this.row(object)));
    section.append(heading, list);
    return section;
  }

  private row(object: KernelObject): HTMLElement {
    const row = el("li", "mkg-lab-object");
    const text = el("div", "mkg-lab-object-text");
    const actions = el("div", "mkg-lab-actions");
    row.dataset.mkgName = object.name;
    row.dataset.mkgKind = object.kind;
    text.append(nameSpan("mkg-lab-object-name", object.name), nameSpan("mkg-lab-object-class", object.className));
    const size = el("span", "mkg-lab-object-size", this.size(object));
    size.title = object.size?.map(exactNumber).join(" → ") ?? "";
    text.append(size);
    actions.append(...TAB_KINDS[object.kind].map(tab => this.action(object, tab)));
    row.append(text, actions);
    const [first] = TAB_KINDS[object.kind];
    if (first) {
      text.ondblclick = () => this.open(object.name, first);
    }
    return row;
  }

  private action({ name }: KernelObject, kind: TabKind): HTMLElement {
    const { trans } = this.tools;
    const texts: Record<TabKind, [string, string]> = {
      graph: [trans.__("Explore"), trans.__("Explore %1", name)],
      masks: [trans.__("Masks…"), trans.__("Edit masks of %1", name)],
      panel: [trans.__("Open panel"), trans.__("Open the metrics of %1", name)],
      plan: [trans.__("Show plan"), trans.__("Show the plan %1", name)]
    };
    const [short, long] = texts[kind];
    const action = button("mkg-button mkg-lab-action", short, long);
    action.setAttribute("aria-label", long);
    action.dataset.mkgAction = `${kind} ${name}`;
    action.onclick = () => this.open(name, kind);
    return action;
  }

  private open(name: string, kind: TabKind): void {
    void this.tools.commands.execute(COMMANDS.show, { name, kind });
  }

  private headings(): Record<ObjectKind, string> {
    const { trans } = this.tools;
    return {
      model: trans.__("Models"),
      plan: trans.__("Pruning plans"),
      monitor: trans.__("Monitors"),
      recording: trans.__("Recordings"),
      graph: trans.__("Data-flow graphs")
    };
  }

  private size({ kind, size }: KernelObject): string {
    const { trans } = this.tools;
    const [first = 0, second = 0] = size ?? [];
    if (size === null) {
      return "";
    }
    switch (kind) {
      case "model":
        return trans.__("%1 parameters", shortNumber(first));
      case "plan":
        return trans.__("%1 → %2 parameters", shortNumber(first), shortNumber(second));
      case "graph":
        return trans._n("%1 operator", "%1 operators", first);
      default:
        return trans._n("%1 series", "%1 series", first);
    }
  }
}
