// The base of every widget: live connection, guarded and debounced traits.

import { DOMWidgetModel, DOMWidgetView, unpack_models } from "@jupyter-widgets/base";
import "../../style/graph.css";
import "../../style/panels.css";
import { offerTab } from "../core/shared/ui/window_buttons";
import { MODULE, VERSION } from "../generated/version";

/** Defaults that make a model of ours; nothing else happens on creation. */
export function modelDefaults(name: string): Record<string, unknown> {
  return {
    _model_name: `${name}Model`,
    _model_module: MODULE,
    _model_module_version: VERSION,
    _view_name: `${name}View`,
    _view_module: MODULE,
    _view_module_version: VERSION
  };
}

/** Serializer of traits that name other models; one that a saved notebook lacks is no reason to show nothing. */
export const otherModels: { deserialize: typeof unpack_models } = {
  deserialize: (value, manager) => Promise.resolve(unpack_models(value, manager)).catch(() => null)
};

const MAX_TITLE_LENGTH = 60; // characters

/** What a tab of the host would show: the same live model once more. */
export function offerViewInTab({ model, el }: DOMWidgetView): void {
  const kind = String(model.get("_model_name")).replace(/Model$/, "");
  const { title } = (model.get("payload") ?? {}) as { title?: unknown };
  const name = typeof title === "string" && title !== "" ? `${kind}: ${title}` : kind;
  offerTab(el, { title: name.slice(0, MAX_TITLE_LENGTH), createView: () => model.widget_manager.create_view(model) });
}

interface SignalLike<T> {
  connect(slot: (sender: unknown, args: T) => void): boolean;
  disconnect(slot: (sender: unknown, args: T) => void): boolean;
}

/** The part of a kernel connection that is used. */
interface KernelLike {
  readonly isDisposed: boolean;
  readonly status: string;
  readonly connectionStatus: string;
  readonly statusChanged: SignalLike<string>;
  readonly connectionStatusChanged: SignalLike<string>;
  readonly disposed: SignalLike<void>;
}

// After one of these the kernel knows our comm no more, even when it is back.
const LOST = ["restarting", "autorestarting", "terminating", "dead"];

/** Tells whether the model's kernel answers. */
export class Connection {
  private readonly kernel: KernelLike | null;
  private lost = false;

  constructor(
    private readonly model: DOMWidgetModel,
    private readonly changed: (connected: boolean) => void
  ) {
    this.kernel = kernelOf(model);
    this.kernel?.statusChanged.connect(this.onStatus);
    this.kernel?.connectionStatusChanged.connect(this.onConnection);
    this.kernel?.disposed.connect(this.onGone);
    model.on("comm_live_update", this.onConnection);
    this.lost = this.kernel !== null && LOST.includes(this.kernel.status);
  }

  get connected(): boolean {
    const { kernel } = this;
    const reachable = !kernel || (!kernel.isDisposed && kernel.connectionStatus === "connected");
    return this.model.comm_live && reachable && !this.lost;
  }

  /** Whether it runs a cell, or answers. */
  get busy(): boolean {
    return this.connected && this.kernel?.status === "busy";
  }

  dispose(): void {
    this.kernel?.statusChanged.disconnect(this.onStatus);
    this.kernel?.connectionStatusChanged.disconnect(this.onConnection);
    this.kernel?.disposed.disconnect(this.onGone);
    this.model.off("comm_live_update", this.onConnection);
  }

  private readonly onStatus = (_: unknown, status: string): void => {
    this.lost ||= LOST.includes(status);
    this.changed(this.connected);
  };

  private readonly onConnection = (): void => this.changed(this.connected);

  private readonly onGone = (): void => {
    this.lost = true;
    this.changed(false);
  };
}

/** Only the managers of live front ends have a kernel; a static page has none. */
function kernelOf(model: DOMWidgetModel): KernelLike | null {
  const manager = model.widget_manager as unknown as { kernel?: KernelLike | null } | undefined;
  return manager?.kernel ?? null;
}

/** Browser → kernel writes: collected, sent once after `delay`, never while there is no kernel. */
export class TraitWriter {
  private readonly waiting = new Map<string, unknown>();
  private timer?: ReturnType<typeof setTimeout>;
  private due = Infinity;

  constructor(
    private readonly view: DOMWidgetView,
    private readonly isConnected: () => boolean
  ) {}

  write(trait: string, value: unknown, delay: number): void {
    this.waiting.set(trait, value);
    const due = performance.now() + delay;
    if (this.timer === undefined || due < this.due) {
      clearTimeout(this.timer);
      this.due = due;
      this.timer = setTimeout(() => this.flush(), delay);
    }
  }

  /** A value that the kernel has set since is not overwritten by an older one of ours. */
  forget(trait: string): void {
    this.waiting.delete(trait);
  }

  dispose(): void {
    this.flush();
  }

  private flush(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.due = Infinity;
    if (this.waiting.size === 0) {
      return;
    }
    this.view.model.set(Object.fromEntries(this.waiting));
    this.waiting.clear();
    if (this.isConnected()) {
      this.view.touch();
    }
  }
}
