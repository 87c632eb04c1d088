// Keys of a widget: they belong to the one that was clicked or has the focus, and not to the notebook around it.

const SUPPRESS = "data-lm-suppress-shortcuts";

const roots = new WeakSet<EventTarget>();
let owner: HTMLElement | null = null; // the widget that was clicked, or had the focus, last
let isHandedOn = false; // while a key is given to the page around

/** Gives a widget the keys that are pressed after a click anywhere in it, also on text or on what is drawn anew then. */
export function captureKeys(root: HTMLElement): void {
  root.setAttribute(SUPPRESS, "true");
  if (!root.hasAttribute("tabindex")) root.tabIndex = -1; // a click on its text is a click into it
  roots.add(root);
  // both once, however often a widget is built anew
  root.addEventListener("focusin", suppressShortcuts);
  root.addEventListener("keydown", confirmField);
}

// once for the page, whatever is shown on it
document.addEventListener("pointerdown", event => (owner = rootOf(event)), true);
document.addEventListener("focusin", event => followFocus(event), true);
window.addEventListener("keydown", event => keepKey(event), true); // before JupyterLab, which listens at the document

const rootOf = (event: Event) =>
  (event.composedPath().find(each => roots.has(each)) as HTMLElement | undefined) ?? null;

/** A notebook that takes the focus of a widget in it, as after a click there, does not take its keys. */
function followFocus(event: Event): void {
  const root = rootOf(event);
  const isAround = owner !== null && event.target instanceof Node && event.target.contains(owner);
  if (root !== null || !isAround) owner = root;
}

function keepKey(event: KeyboardEvent): void {
  if (isHandedOn) return;
  const root = rootOf(event);
  if (isSave(event) && root !== null) {
    handOn(event);
  } else if (event.key === "Tab") {
    if (root === null) owner = null; // the focus goes elsewhere
  } else if (root === null && owner !== null && isLost(event.target, owner)) {
    event.stopImmediatePropagation();
    owner.focus({ preventScroll: true });
    repeat(event, owner);
  }
}

/** Whether a widget that is seen has lost the focus to nothing, or to what stands around it. */
function isLost(target: EventTarget | null, root: HTMLElement): boolean {
  const isSeen = root.isConnected && root.getClientRects().length > 0;
  return isSeen && target instanceof Node && target.contains(root);
}

const isSave = ({ key, ctrlKey, metaKey, altKey, shiftKey }: KeyboardEvent) =>
  key.toLowerCase() === "s" && (ctrlKey || metaKey) && !altKey && !shiftKey;

/** Saving is the notebook's, wherever the focus is. */
function handOn(event: KeyboardEvent): void {
  event.stopImmediatePropagation();
  isHandedOn = true;
  try {
    repeat(event, document.body);
  } finally {
    isHandedOn = false;
  }
}

function repeat(event: KeyboardEvent, target: HTMLElement): void {
  if (!target.dispatchEvent(new KeyboardEvent(event.type, event))) event.preventDefault();
}

/** JupyterLab asks what has the focus before it asks what stands around it. */
function suppressShortcuts({ target }: FocusEvent): void {
  if (target instanceof Element) target.setAttribute(SUPPRESS, "true");
}

/** In JupyterLab the browser tells no change of a field when Enter is pressed. */
function confirmField({ key, target }: KeyboardEvent): void {
  if (key === "Enter" && target instanceof HTMLInputElement && /^(text|number|search)$/.test(target.type)) {
    target.dispatchEvent(new Event("change", { bubbles: true }));
  }
}
