// The few DOM helpers that the panels share. Text reaches the page only through `textContent`.

export type Disposer = () => void;

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className = "",
  text?: string
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

/** A push button; `title` doubles as the tooltip. */
export function button(className: string, text: string, title = ""): HTMLButtonElement {
  const element = el("button", className, text);
  element.type = "button"; // inside a form the default would submit
  if (title) element.title = title;
  return element;
}

export function option(value: string, text: string): HTMLOptionElement {
  const element = el("option", "", text);
  element.value = value;
  return element;
}

/** A module's name: verbatim, and isolated so that bidirectional controls cannot reorder what stands beside it. */
export function nameSpan(className: string, text: string): HTMLElement {
  return el("bdi", className, text);
}

const SVG = "http://www.w3.org/2000/svg";

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string | number>> = {}
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

/** Set or remove an attribute, touching the DOM only when it changes. */
export function setAttribute(element: Element, name: string, value: string | number | null): void {
  const text = value === null ? null : String(value);
  if (element.getAttribute(name) === text) return;
  if (text === null) element.removeAttribute(name);
  else element.setAttribute(name, text);
}

export function listen<K extends keyof HTMLElementEventMap>(
  target: HTMLElement,
  type: K,
  handler: (event: HTMLElementEventMap[K]) => void
): Disposer {
  target.addEventListener(type, handler);
  return () => target.removeEventListener(type, handler);
}

/** Collects what has to be undone when a component goes. */
export class Disposers {
  private readonly pending: Disposer[] = [];

  add(...disposers: Disposer[]): void {
    this.pending.push(...disposers);
  }

  dispose(): void {
    for (const disposer of this.pending.splice(0).reverse()) disposer();
  }
}

/** `run` soon after the last `call`; `flush` runs a waiting call now. */
export class Debounced {
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly run: () => void,
    private readonly delay: number
  ) {}

  call(): void {
    this.cancel();
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.run();
    }, this.delay);
  }

  flush(): void {
    if (this.timer === undefined) return;
    this.cancel();
    this.run();
  }

  cancel(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }
}

/** The widget that `host` belongs to; shortcuts such as "/" listen there. */
export function widgetRoot(host: HTMLElement): HTMLElement {
  return host.closest<HTMLElement>(".mkg-widget") ?? host;
}

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // no permission, or a page without https
  }
}

function copyBySelection(text: string): boolean {
  const field = el("textarea", "mkg-offscreen");
  const focused = document.activeElement;
  field.value = text;
  document.body.append(field);
  field.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    field.remove();
    if (focused instanceof HTMLElement) focused.focus();
  }
}

/** Whether keys that are pressed there write text or choose something. */
export function isField(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(input|select|textarea|option)$/i.test(target.tagName))
  );
}
