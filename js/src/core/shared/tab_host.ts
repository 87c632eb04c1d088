// Tabs of the host that can show a widget once more: the host says that it has some, each widget what it would show.

export interface TabRequest {
  readonly title: string;
  /** A second view of the same live model, as the host's widgets know it. */
  readonly createView: () => Promise<unknown>;
}

export interface TabHost {
  open(request: TabRequest): void;
}

let host: TabHost | null = null;
const waiting = new Set<() => void>();
const requests = new WeakMap<HTMLElement, TabRequest>();

/** Called once by a host that has tabs; other hosts never do. */
export function setTabHost(given: TabHost | null): void {
  host = given;
  for (const listener of [...waiting]) listener();
}

/** Returns the disposer. */
export function onTabHost(listener: () => void): () => void {
  waiting.add(listener);
  return () => void waiting.delete(listener);
}

/** `root`: of the widget that can be shown in a tab. */
export function offerTab(root: HTMLElement, request: TabRequest): void {
  requests.set(root, request);
}

/** Opens the widget in a tab; null where there is none for it, or it fills one already. */
export function tabOpener(root: HTMLElement): (() => void) | null {
  const request = requests.get(root);
  const isInTab = root.closest(".mkg-object-tab") !== null;
  return host && request && !isInTab ? () => host?.open(request) : null;
}
