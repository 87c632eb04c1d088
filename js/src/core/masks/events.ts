// A list of listeners for each kind of event.

export class SessionEvents<Kind extends string> {
  private readonly lists = new Map<Kind, Set<() => void>>();

  /** Returns the disposer. */
  on(kinds: Kind | readonly Kind[], listener: () => void): () => void {
    const entry = () => listener(); // a wrapper, so that one function may listen twice
    const watched = typeof kinds === "string" ? [kinds] : kinds;
    for (const kind of watched) {
      const list = this.lists.get(kind) ?? new Set();
      this.lists.set(kind, list);
      list.add(entry);
    }
    return () => watched.forEach(kind => this.lists.get(kind)?.delete(entry));
  }

  tell(kind: Kind): void {
    for (const listener of [...(this.lists.get(kind) ?? [])]) listener();
  }
}
