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
