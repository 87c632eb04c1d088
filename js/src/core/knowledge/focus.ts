// Where the keyboard is in an explorer, so that it stays there when all is drawn anew.

export interface Focus {
  readonly selector: string;
  readonly selection?: readonly [number, number]; // in a field
}

const PLACES = [".mkg-search input", ".mkg-graph-canvas", ".mkg-side-panel button", "[role=toolbar] select"];

export function focusIn(host: HTMLElement): Focus | undefined {
  const active = document.activeElement;
  if (!(active instanceof HTMLElement) || !host.contains(active)) return undefined;
  const { mkgItem } = active.dataset;
  if (mkgItem !== undefined) return { selector: `[data-mkg-item="${CSS.escape(mkgItem)}"]` };
  const selector = PLACES.find(each => active.matches(each));
  if (selector === undefined) return undefined;
  const field = active instanceof HTMLInputElement ? active : undefined;
  return { selector, selection: field && [field.selectionStart ?? 0, field.selectionEnd ?? 0] };
}

export function giveFocus(host: HTMLElement, { selector, selection }: Focus): void {
  const element = host.querySelector<HTMLElement>(selector);
  element?.focus({ preventScroll: true });
  if (element instanceof HTMLInputElement && selection) element.setSelectionRange(...selection);
}
