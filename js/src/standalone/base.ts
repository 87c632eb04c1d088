// A stand-in for @jupyter-widgets/base: models and views, without a kernel or with one far away.
// Only what the views use is here; the build says so when one uses more.

import { isEqual } from "../core/shared/base/state_store";

// Events by name, as Backbone has them: as much as the widgets use.

export type Handler = (...args: unknown[]) => void;

interface Entry {
  readonly name: string;
  readonly handler: Handler;
  readonly owner: unknown;
}

const split = (names: string): string[] => names.split(/\s+/).filter(Boolean);

export class BackboneEvents {
  private entries: Entry[] = [];
  private heard = new Set<BackboneEvents>();

  on(names: string, handler: Handler, owner: unknown = this): this {
    for (const name of split(names)) this.entries.push({ name, handler, owner });
    return this;
  }

  once(names: string, handler: Handler, owner: unknown = this): this {
    const only: Handler = (...args) => {
      this.off(names, only);
      handler.apply(owner, args);
    };
    return this.on(names, only, owner);
  }

  /** Without a name, handler or owner: all of them. */
  off(names?: string | null, handler?: Handler | null, owner?: unknown): this {
    const known = names ? split(names) : null;
    this.entries = this.entries.filter(
      entry =>
        (known && !known.includes(entry.name)) ||
        (handler && entry.handler !== handler) ||
        (owner !== undefined && entry.owner !== owner)
    );
    return this;
  }

  trigger(names: string, ...args: unknown[]): this {
    for (const name of split(names)) {
      for (const { handler, owner } of this.entries.filter(entry => entry.name === name)) handler.apply(owner, args);
    }
    return this;
  }

  listenTo(other: BackboneEvents, names: string, handler: Handler): this {
    this.heard.add(other);
    other.on(names, handler, this);
    return this;
  }

  stopListening(other?: BackboneEvents, names?: string, handler?: Handler): this {
    for (const one of other ? [other] : [...this.heard]) one.off(names, handler, this);
    return this;
  }
}

type Attributes = Record<string, unknown>;
export type Serializers = Record<
  string,
  { serialize?: (value: unknown) => unknown; deserialize?: (value: unknown, manager: Manager) => unknown }
>;

/** Told when the kernel is done with a message. */
export interface Callbacks {
  readonly iopub?: { readonly status?: (message: unknown) => void };
}

/** What a model or a view may ask the page for. */
export interface Manager {
  readonly kernel: null;
  readonly isLive: boolean; // whether models look as they do with a kernel
  get_model(id: string): Promise<WidgetModel>;
  create_view(model: WidgetModel, options?: object): Promise<DOMWidgetView>;
  answer(model: WidgetModel, question: Attributes, buffers: readonly unknown[], callbacks?: Callbacks): void;
  /** What views have set since the last time. */
  save(model: WidgetModel, changed: Attributes): void;
}

interface ModelOptions {
  readonly model_id: string;
  readonly widget_manager: Manager;
}

const REFERENCE = "IPY_MODEL_";

/** Ids in a value, its items or its entries become the models that they name. */
export async function unpack_models(value: unknown, manager: Manager): Promise<unknown> {
  if (Array.isArray(value)) return Promise.all(value.map(item => unpack_models(item, manager)));
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).map(
      async ([key, item]) => [key, await unpack_models(item, manager)] as const
    );
    return Object.fromEntries(await Promise.all(entries));
  }
  const isReference = typeof value === "string" && value.startsWith(REFERENCE);
  return isReference ? manager.get_model(value.slice(REFERENCE.length)) : value;
}

export class WidgetModel extends BackboneEvents {
  static serializers: Serializers = {};
  readonly model_id: string;
  readonly widget_manager: Manager;
  /** Fulfilled when what the kernel has sent until now is set. */
  state_change: Promise<unknown> = Promise.resolve();
  readonly views: Record<string, Promise<DOMWidgetView>> = {};
  private attributes: Attributes;
  private before: Attributes = {};
  private changed: readonly string[] = [];
  private readonly unsaved = new Set<string>();

  constructor(state: Attributes, options: ModelOptions) {
    super();
    this.model_id = options.model_id;
    this.widget_manager = options.widget_manager;
    this.attributes = { ...this.defaults(), ...state };
    this.initialize(state, options);
  }

  defaults(): Attributes {
    return {};
  }

  initialize(_state: Attributes, _options: ModelOptions): void {}

  get comm_live(): boolean {
    return this.widget_manager.isLive;
  }

  get(name: string): unknown {
    return this.attributes[name];
  }

  has(name: string): boolean {
    return this.attributes[name] !== undefined && this.attributes[name] !== null;
  }

  previous(name: string): unknown {
    return this.before[name];
  }

  set(key: string | Attributes, value?: unknown): this {
    const values = typeof key === "string" ? { [key]: value } : key;
    const changed = Object.keys(values).filter(name => !isEqual(this.attributes[name], values[name]));
    const [before, outer] = [{ ...this.attributes }, { before: this.before, changed: this.changed }];
    Object.assign(this, { before, changed });
    Object.assign(this.attributes, values);
    for (const name of changed) this.unsaved.add(name);
    for (const name of changed) this.trigger(`change:${name}`, this, values[name], {});
    if (changed.length) this.trigger("change", this, {});
    Object.assign(this, outer); // a listener may have set something else
    return this;
  }

  /** Within a change: whether it is one of this attribute. */
  hasChanged(name: string): boolean {
    return this.changed.includes(name);
  }

  /** A change from outside of the views, as the kernel's are. */
  async set_state(state: Attributes): Promise<void> {
    this.set(state);
    for (const name of Object.keys(state)) if (this.attributes[name] === state[name]) this.unsaved.delete(name);
  }

  save_changes(): void {
    const changed = Object.fromEntries([...this.unsaved].map(name => [name, this.attributes[name]]));
    this.unsaved.clear();
    if (Object.keys(changed).length) this.widget_manager.save(this, changed);
  }

  send(content: Attributes, callbacks?: Callbacks, buffers: readonly unknown[] = []): void {
    this.widget_manager.answer(this, content, buffers, callbacks);
  }

  /** The kernel has closed it: it goes with its views. */
  async close(): Promise<void> {
    this.stopListening();
    this.trigger("destroy", this);
    for (const view of Object.values(this.views)) (await view).remove();
  }
}

export class DOMWidgetModel extends WidgetModel {
  static override serializers: Serializers = {
    ...WidgetModel.serializers,
    layout: { deserialize: unpack_models }
  };

  override defaults(): Attributes {
    return { ...super.defaults(), _dom_classes: [], layout: null };
  }
}

interface ViewOptions {
  readonly model: WidgetModel;
  readonly options?: object;
}

export class WidgetView extends BackboneEvents {
  readonly model: WidgetModel;
  readonly options: object;
  readonly el = document.createElement("div");
  readonly displayed: Promise<this>;

  constructor({ model, options = {} }: ViewOptions) {
    super();
    this.model = model;
    this.options = options;
    this.displayed = new Promise(resolve => this.once("displayed", () => resolve(this)));
    this.initialize();
  }

  initialize(): void {}

  render(): void {}

  create_child_view(model: WidgetModel, options?: object): Promise<DOMWidgetView> {
    return this.model.widget_manager.create_view(model, options);
  }

  /** Hands over what the view has set. */
  touch(): void {
    this.model.save_changes();
  }

  send(content: Attributes, buffers?: readonly unknown[]): void {
    this.model.send(content, undefined, buffers);
  }

  remove(): this {
    this.stopListening();
    this.el.remove();
    return this;
  }
}

export class DOMWidgetView extends WidgetView {
  override render(): void {
    const layout = this.model.get("layout");
    if (layout instanceof WidgetModel) applyLayout(this.el, layout);
    for (const name of this.model.get("_dom_classes") as readonly string[]) this.el.classList.add(name);
  }
}

// of a layout what places a widget among others; a text that is no such value sets nothing
const LAYOUT = [
  ...["width", "min_width", "max_width", "height", "min_height", "max_height", "margin", "padding", "flex", "order"],
  ...["align_self", "align_items", "align_content", "justify_content", "flex_flow", "grid_gap", "overflow"],
  ...["grid_template_columns", "grid_template_rows", "grid_area", "grid_row", "grid_column"]
];

function applyLayout(element: HTMLElement, layout: WidgetModel): void {
  for (const name of LAYOUT) {
    const value = layout.get(name);
    if (typeof value === "string") element.style.setProperty(name.replace(/_/g, "-"), value);
  }
}
