// What stands for @jupyter-widgets/base in a saved page: models and views without a kernel.
// Only what the views use is here; the build says so when one uses more.

import { isEqual } from "../core/shared/state_store";
import { BackboneEvents } from "./events";

type Attributes = Record<string, unknown>;
export type Serializers = Record<string, { deserialize?: (value: unknown, manager: Manager) => unknown }>;

/** What a model or a view may ask the page for; there is no kernel. */
export interface Manager {
  readonly kernel: null;
  get_model(id: string): Promise<WidgetModel>;
  create_view(model: WidgetModel, options?: object): Promise<DOMWidgetView>;
  answer(model: WidgetModel, question: Attributes, buffers: readonly unknown[]): void;
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
  // the views look the same as with a kernel; what needs one is hidden
  readonly comm_live = true;
  readonly model_id: string;
  readonly widget_manager: Manager;
  readonly state_change = Promise.resolve();
  readonly views: Record<string, Promise<DOMWidgetView>> = {};
  private attributes: Attributes;
  private before: Attributes = {};
  private changed: readonly string[] = [];

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
  }

  /** There is nobody to hear it. */
  save_changes(): void {}

  send(content: Attributes, _callbacks?: unknown, buffers: readonly unknown[] = []): void {
    this.widget_manager.answer(this, content, buffers);
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

  touch(): void {}

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
