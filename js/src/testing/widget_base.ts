// Stand-ins for @jupyter-widgets/base and a kernel: as little as the widgets use.

type Handler = (...args: unknown[]) => void;

class Emitter {
  private readonly handlers: [string, Handler][] = [];

  get listeners(): number {
    return this.handlers.length;
  }

  on(name: string, handler: Handler): void {
    this.handlers.push([name, handler]);
  }

  off(name: string, handler: Handler): void {
    const at = this.handlers.findIndex(([other, known]) => other === name && known === handler);
    if (at >= 0) {
      this.handlers.splice(at, 1);
    }
  }

  trigger(name: string): void {
    this.handlers.filter(([other]) => other === name).forEach(([, handler]) => handler());
  }
}

class Signal<T> {
  readonly slots = new Set<(sender: unknown, args: T) => void>();

  connect(slot: (sender: unknown, args: T) => void): boolean {
    this.slots.add(slot);
    return true;
  }

  disconnect(slot: (sender: unknown, args: T) => void): boolean {
    return this.slots.delete(slot);
  }

  emit(args: T): void {
    this.slots.forEach(slot => slot(this, args));
  }
}

export class FakeKernel {
  isDisposed = false;
  status = "idle";
  connectionStatus = "connected";
  readonly statusChanged = new Signal<string>();
  readonly connectionStatusChanged = new Signal<string>();
  readonly disposed = new Signal<void>();

  get listeners(): number {
    return this.statusChanged.slots.size + this.connectionStatusChanged.slots.size + this.disposed.slots.size;
  }

  setStatus(status: string): void {
    this.status = status;
    this.statusChanged.emit(status);
  }

  setConnection(status: string): void {
    this.connectionStatus = status;
    this.connectionStatusChanged.emit(status);
  }

  dispose(): void {
    this.isDisposed = true;
    this.disposed.emit();
  }
}

/** A model on the browser's side; `sent` is what would reach the kernel. */
export class FakeModel extends Emitter {
  readonly model_id = "model-1";
  readonly sent: Record<string, unknown>[] = [];
  readonly asked: unknown[] = []; // custom messages
  readonly widget_manager: { kernel: FakeKernel | null };
  comm_live = true;
  private changed: Record<string, unknown> = {};

  constructor(
    private readonly state: Record<string, unknown>,
    kernel: FakeKernel | null
  ) {
    super();
    this.widget_manager = { kernel };
  }

  get(trait: string): unknown {
    return this.state[trait];
  }

  set(values: Record<string, unknown>): void {
    const different = Object.entries(values).filter(([trait, value]) => this.state[trait] !== value);
    Object.assign(this.state, values);
    Object.assign(this.changed, values);
    different.forEach(([trait]) => this.trigger(`change:${trait}`));
  }

  send(content: unknown, ..._more: unknown[]): void {
    this.asked.push(content);
  }

  save_changes(): void {
    this.sent.push(this.changed);
    this.changed = {};
  }

  /** A state message from the kernel. */
  receive(values: Record<string, unknown>): void {
    this.set(values);
    this.changed = {};
  }

  setCommLive(live: boolean): void {
    this.comm_live = live;
    this.trigger("comm_live_update");
  }
}

export class DOMWidgetModel {
  defaults(): Record<string, unknown> {
    return { _dom_classes: [] };
  }
}

export class DOMWidgetView {
  readonly el = document.createElement("div");
  readonly displayed = Promise.resolve();
  readonly model: FakeModel;
  private readonly heard: [FakeModel, string, Handler][] = [];

  constructor({ model }: { model: FakeModel }) {
    this.model = model;
  }

  render(): void {}

  listenTo(model: FakeModel, name: string, handler: Handler): void {
    this.heard.push([model, name, handler]);
    model.on(name, handler);
  }

  touch(): void {
    this.model.save_changes();
  }

  remove(): void {
    this.heard.forEach(([model, name, handler]) => model.off(name, handler));
    this.el.remove();
  }
}
