// What corresponds to a module in the model that it is compared with.

import { Hierarchy } from "./hierarchy";
import type { Comparison } from "./payload";

export class Counterparts {
  private readonly h: Hierarchy;
  private readonly partners: ReadonlyMap<number, number>;

  constructor(compare: Comparison) {
    this.h = new Hierarchy(compare.model);
    this.partners = new Map(compare.pairs);
  }

  path(node: number): string | undefined {
    return this.ask(node, partner => this.h.path(partner));
  }

  hyper(node: number): ReturnType<Hierarchy["hyper"]> | undefined {
    return this.ask(node, partner => this.h.hyper(partner));
  }

  tensors(node: number): ReturnType<Hierarchy["tensors"]> | undefined {
    return this.ask(node, partner => this.h.tensors(partner));
  }

  private ask<T>(node: number, question: (partner: number) => T): T | undefined {
    const partner = this.partners.get(node);
    return partner === undefined ? undefined : question(partner);
  }
}
