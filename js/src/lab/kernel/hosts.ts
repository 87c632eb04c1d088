// Open notebooks and consoles, and which of them had the focus last.

import type { ILabShell } from "@jupyterlab/application";
import type { ISessionContext, IWidgetTracker } from "@jupyterlab/apputils";
import type { ConsolePanel } from "@jupyterlab/console";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { Signal } from "@lumino/signaling";
import type { Widget } from "@lumino/widgets";

export interface Host {
  readonly widget: Widget;
  readonly sessionContext: ISessionContext;
  readonly rendermime: IRenderMimeRegistry; // knows the manager of the notebook's widgets
}

export class Hosts {
  readonly changed = new Signal<this, void>(this); // another one has the focus, or has come
  private last: Host | null = null;

  constructor(
    private readonly shell: ILabShell,
    private readonly notebooks: IWidgetTracker<NotebookPanel> | null,
    private readonly consoles: IWidgetTracker<ConsolePanel> | null
  ) {
    shell.currentChanged.connect(() => this.follow());
    notebooks?.widgetAdded.connect((_, panel) => this.added(panel));
    consoles?.widgetAdded.connect((_, panel) => this.added(panel));
    this.follow();
  }

  /** The notebook or console that had the focus last; null when there is none. */
  get current(): Host | null {
    return this.last;
  }

  /** The open notebook or console of a path. */
  find(path: string): Host | null {
    const isIt = (panel: NotebookPanel | ConsolePanel) => !panel.isDisposed && panel.sessionContext.path === path;
    const panel = this.notebooks?.find(isIt) ?? this.consoles?.find(isIt);
    return panel ? this.hostOf(panel) : null;
  }

  private added(panel: Widget): void {
    panel.disposed.connect(() => this.follow());
    this.follow();
  }

  private follow(): void {
    const focused = this.hostOf(this.shell.currentWidget);
    const stays = this.last && !this.last.widget.isDisposed ? this.last : null;
    const next =
      focused ?? stays ?? this.hostOf(this.notebooks?.currentWidget) ?? this.hostOf(this.consoles?.currentWidget);
    this.last = next?.widget === this.last?.widget ? this.last : next;
    this.changed.emit();
  }

  private hostOf(widget: Widget | null | undefined): Host | null {
    if (!widget || widget.isDisposed) {
      return null;
    }
    if (this.notebooks?.has(widget)) {
      const panel = widget as NotebookPanel;
      return { widget, sessionContext: panel.sessionContext, rendermime: panel.content.rendermime };
    }
    if (this.consoles?.has(widget)) {
      const panel = widget as ConsolePanel;
      return { widget, sessionContext: panel.sessionContext, rendermime: panel.console.rendermime };
    }
    return null;
  }
}
