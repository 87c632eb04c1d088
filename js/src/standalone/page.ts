// The models and views of a saved page, from its list of widgets.

import type { SavedBuffer, SavedPage, SavedWidget } from "../core/export/html";
import { WidgetModel, type Callbacks, type DOMWidgetView, type Manager, type Serializers } from "./base";
import "../../style/theme.css";

type Attributes = Record<string, unknown>;
export type ModelClass = (new (...args: ConstructorParameters<typeof WidgetModel>) => WidgetModel) & {
  serializers: Serializers;
};
type ViewClass = new (options: { model: WidgetModel; options?: object }) => DOMWidgetView;

/** Classes by name: `<kind>Model` and `<kind>View`. */
export type Kinds = Readonly<Record<string, unknown>>;

export abstract class Models implements Manager {
  readonly kernel = null;
  abstract readonly isLive: boolean;
  protected readonly models = new Map<string, Promise<WidgetModel>>();

  constructor(private readonly kinds: Kinds) {}

  abstract answer(model: WidgetModel, question: Attributes, buffers: readonly unknown[], callbacks?: Callbacks): void;
  abstract save(model: WidgetModel, changed: Attributes): void;
  protected abstract make(id: string): Promise<WidgetModel>;

  get_model(id: string): Promise<WidgetModel> {
    const known = this.models.get(id) ?? this.make(id);
    this.models.set(id, known);
    return known;
  }

  async create_view(model: WidgetModel, options?: object): Promise<DOMWidgetView> {
    const View = this.find<ViewClass>(String(model.get("_view_name")));
    const view = new View({ model, options });
    model.views[`view-${Object.keys(model.views).length}`] = Promise.resolve(view);
    await view.render();
    return view;
  }

  /** The view of a model in its place. */
  protected async show(id: string, host: HTMLElement): Promise<void> {
    const view = await this.create_view(await this.get_model(id));
    host.append(view.el);
    view.trigger("displayed");
  }

  protected async build(kind: string, id: string, state: Attributes): Promise<WidgetModel> {
    const Model = this.find<ModelClass>(`${kind}Model`);
    return new Model(await this.deserialized(Model, state), { model_id: id, widget_manager: this });
  }

  protected async deserialized({ serializers }: ModelClass, state: Attributes): Promise<Attributes> {
    const whole = { ...state };
    for (const [name, { deserialize }] of Object.entries(serializers)) {
      if (deserialize && name in whole) whole[name] = await deserialize(whole[name], this);
    }
    return whole;
  }

  private find<T>(name: string): T {
    const found = new Map(Object.entries(this.kinds)).get(name);
    if (typeof found !== "function") throw new Error("a widget of an unknown kind");
    return found as T;
  }
}

// Light or dark, where somebody else than the system says which: the classes are those of style/theme.css.

const THEMES = ["light", "dark"] as const;
type Theme = (typeof THEMES)[number];

/** As the system has it, without a theme. */
export function showTheme(shown?: Theme): void {
  for (const theme of THEMES) document.body.classList.toggle(`mkg-theme-${theme}`, theme === shown);
}

/**
 * The address may end in #theme=light or #theme=dark, and change while the page is shown: a site around its frame can do that
 * where it may not reach into it, as between files of a disk. Nothing else is read of it.
 */
export function followAddress(): void {
  const follow = () => showTheme(THEMES.find(theme => location.hash === `#theme=${theme}`));
  window.addEventListener("hashchange", follow);
  follow();
}

export class Page extends Models {
  readonly isLive = true; // the views look the same as with a kernel; what needs one is hidden
  private readonly saved = new Map<string, SavedWidget>();

  constructor(
    private readonly page: SavedPage,
    kinds: Kinds
  ) {
    super(kinds);
    for (const widget of page.widgets) this.saved.set(widget.id, widget);
  }

  /** Show the page's views in `host`, and join what is linked. */
  async mount(host: HTMLElement): Promise<void> {
    for (const id of this.page.views) await this.show(id, host);
    await Promise.all(this.page.widgets.map(({ id }) => this.get_model(id)));
  }

  answer(model: WidgetModel, question: Record<string, unknown>, buffers: readonly unknown[]): void {
    const answers = this.saved.get(model.model_id)?.answers ?? [];
    const fits = (wanted: object) => Object.entries(wanted).every(([key, value]) => question[key] === value);
    const found = answers.find(answer => fits(answer.question));
    if (!found) return;
    // later, as it would come from a kernel
    const given = found.buffers?.map(decoded) ?? buffers;
    setTimeout(() => model.trigger("msg:custom", { ...question, ...found.content }, given), 0);
  }

  /** There is nobody to hear it. */
  save(): void {}

  protected async make(id: string): Promise<WidgetModel> {
    const widget = this.saved.get(id);
    if (!widget) throw new Error("a widget is missing");
    const model = await this.build(widget.kind, id, withBuffers(widget.state, widget.buffers));
    for (const { content, buffers } of widget.messages ?? []) {
      model.trigger("msg:custom", content, (buffers ?? []).map(decoded));
    }
    return model;
  }
}

/** The state with its binary values, each at its path, as the views get them from a kernel. */
function withBuffers(state: Record<string, unknown>, buffers: readonly SavedBuffer[] = []): Record<string, unknown> {
  const whole = { ...state };
  for (const { path, data } of buffers) {
    let place = whole as Record<string | number, unknown>;
    for (const step of path.slice(0, -1)) place = place[step] as typeof place;
    place[path[path.length - 1]] = decoded(data);
  }
  return whole;
}

function decoded(base64: string): DataView {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return new DataView(bytes.buffer);
}
