// Elements of the page: DOM helpers, of which text reaches the page only through `textContent`, icons, and keys of lines.

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

/** Nothing happens where the text is the same: what is said to those who do not see the page is not said again. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A push button; `title` doubles as the tooltip. */
export function button(className: string, text: string, title = ""): HTMLButtonElement {
  const element = el("button", className, text);
  element.type = "button"; // inside a form the default would submit
  if (title) element.title = title;
  return element;
}

/** A button with an icon alone; `key`: its shortcut, which the title names. */
export function iconButton(className: string, name: IconName, title: string, key = ""): HTMLButtonElement {
  const element = button(className, "", key === "" ? title : `${title} (${key})`);
  element.setAttribute("aria-label", title);
  if (key !== "") element.setAttribute("aria-keyshortcuts", key);
  element.append(icon(name));
  return element;
}

export function box(className: string, ...children: HTMLElement[]): HTMLElement {
  const element = el("div", className);
  element.append(...children);
  return element;
}

/** A control with its label before it. */
export function field(className: string, text: string, ...controls: HTMLElement[]): HTMLLabelElement {
  const label = el("label", className);
  label.append(el("span", "mkg-label", text), ...controls);
  return label;
}

/** A box to tick with its label behind it. */
export function checkbox(className: string, control: HTMLInputElement, text: string): HTMLElement {
  const label = el("label", className);
  label.append(control, el("span", "", text));
  return label;
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

let ids = 0;

/** An id that no other element of the page has. */
export const uniqueId = (): string => `mkg-${++ids}`;

/** Set or remove an attribute, touching the DOM only when it changes. */
export function setAttribute(element: Element, name: string, value: string | number | null): void {
  const text = value === null ? null : String(value);
  if (element.getAttribute(name) === text) return;
  if (text === null) element.removeAttribute(name);
  else element.setAttribute(name, text);
}

/** Gives an element its role and its name for screen readers. */
export function setRole(element: HTMLElement, role: string, label: string): void {
  element.setAttribute("role", role);
  element.setAttribute("aria-label", label);
}

export function listen<K extends keyof HTMLElementEventMap>(
  target: HTMLElement,
  type: K,
  handler: (event: HTMLElementEventMap[K]) => void
): Disposer {
  target.addEventListener(type, handler);
  return () => target.removeEventListener(type, handler);
}

/** Tells of each new size of an element, where the browser can. */
export function onResize(element: Element, act: () => void): Disposer {
  if (typeof ResizeObserver === "undefined") return () => undefined;
  const observer = new ResizeObserver(act);
  observer.observe(element);
  return () => observer.disconnect();
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

/** A part of a widget in a host element of its own, which it leaves empty. */
export class Part {
  protected readonly disposers = new Disposers();

  constructor(protected readonly host: HTMLElement) {}

  dispose(): void {
    this.disposers.dispose();
    this.host.replaceChildren();
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

const KEEP_URL = 60_000; // ms; some browsers read the blob after the click has returned

/** Saves bytes as a file, as a click on a link of the page would. */
export function saveFile(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = el("a", "mkg-offscreen");
  link.href = url;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), KEEP_URL);
}

// Line icons of the buttons, 16 by 16, in the color of the text beside them.

const PATHS = {
  "chevron-left": "M10 3 5 8l5 5",
  "chevron-right": "M6 3l5 5-5 5",
  "expand-all": "M4 6l4-4 4 4M4 10l4 4 4-4",
  "collapse-all": "M4 2l4 4 4-4M4 14l4-4 4 4",
  fit: "M1.5 3h13v10h-13zM3.8 8h8.4M6 5.8L3.8 8L6 10.2M10 5.8L12.2 8L10 10.2", // all between the window's edges
  "zoom-selection": "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M10.5 10.5L14 14M5.3 5.3h3.4v3.4h-3.4z",
  "full-screen": "M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4",
  "leave-full-screen": "M6 2v4H2M14 6h-4V2M10 14v-4h4M2 10h4v4",
  "open-tab": "M6.5 3H2.5v10.5H13V9.5M9.5 2.5h4v4M13.5 2.5L7.5 8.5",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  close: "M4 4l8 8M12 4l-8 8",
  download: "M8 2v8M4.5 7L8 10.5 11.5 7M2.5 13.5h11",
  refresh: "M13.5 8a5.5 5.5 0 1 1-1.6-3.9M13.5 1.5v3h-3",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M10.5 10.5L14 14",
  first: "M3.5 3v10M13 3L6 8l7 5z",
  back: "M11.5 3l-7 5 7 5z",
  play: "M4.5 2.5l8 5.5-8 5.5z",
  pause: "M5 3v10M11 3v10",
  circle: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11",
  clock: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M8 5v3.5l2.5 1.5",
  warning: "M8 2L14.5 13.5h-13zM8 6.5v3.2M8 11.6v.1",
  check: "M2.5 8.5l4 4L13.5 4",
  next: "M4.5 3l7 5-7 5z",
  last: "M12.5 3v10M3 3l7 5-7 5z",
  lock: "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  undo: "M6 3L3 6l3 3M3 6h6.5a3.5 3.5 0 0 1 0 7H6",
  redo: "M10 3l3 3-3 3M13 6H6.5a3.5 3.5 0 0 0 0 7H10"
} as const;

export type IconName = keyof typeof PATHS;

export function icon(name: IconName): SVGSVGElement {
  const picture = svg("svg", { viewBox: "0 0 16 16", width: 14, height: 14, class: "mkg-icon", "aria-hidden": "true" });
  const line = {
    fill: name === "play" ? "currentColor" : "none",
    stroke: "currentColor",
    "stroke-width": name === "pause" ? 3 : 1.5,
    "stroke-linecap": "round",
    "stroke-linejoin": "round"
  };
  picture.append(svg("path", { d: PATHS[name], ...line }));
  return picture;
}

// A line's key in a legend: its short stroke, and its name.

const WIDTH = 22;

export function keyLine(color: string, dash: readonly number[], isThick = false): SVGSVGElement {
  const picture = svg("svg", {
    viewBox: `0 0 ${WIDTH} 10`,
    width: WIDTH,
    height: 10,
    class: "mkg-metric-key",
    "aria-hidden": "true"
  });
  const stroke = { stroke: color, "stroke-width": isThick ? 3.5 : 2.5, "stroke-dasharray": dash.join(" ") || "none" };
  picture.append(svg("line", { x1: 0, y1: 5, x2: WIDTH, y2: 5, ...stroke }));
  return picture;
}

/** A name in two parts: where room is short, the first is cut and the end stays. */
export function nameParts({ label, suffix }: { readonly label: string; readonly suffix: string }): HTMLElement[] {
  const name = nameSpan("mkg-metric-name", label.slice(0, label.length - suffix.length));
  return suffix ? [name, nameSpan("mkg-metric-suffix", suffix)] : [name];
}
