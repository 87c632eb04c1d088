// What the tensors along a channel group are to it: its output channels, the inputs that follow, and what only carries it.

import type { Axes, Member } from "../shared/model/axes";
import type { Dataflow } from "../shared/model/dataflow";
import type { Hierarchy } from "../shared/model/hierarchy";
import { el } from "../shared/ui/dom";
import * as words from "../words/panel";

const MAX_CARRIERS = 6; // kinds that are named

type Role = "made" | "read" | "carried" | "other";

/** By the calls of a tensor's module: the group runs through what they give, what they take, or both. */
export class AxisRoles {
  constructor(
    private readonly h: Hierarchy,
    private readonly axes: Axes,
    private readonly flow: Dataflow,
    private readonly axis: number
  ) {}

  roleOf({ node }: Member): Role {
    const calls = this.flow.callsOf(node);
    const [isRead, isMade] = (["inputs", "outputs"] as const).map(kind => calls.some(call => this.runsIn(call, kind)));
    if (isRead && isMade) return "carried";
    return isMade ? "made" : isRead ? "read" : "other";
  }

  /** "5 tensors: output channels, removed", and so on, of a fixed group without the end; empty where nothing is known. */
  legend(): HTMLElement[] {
    const counts = new Map<Role, number>();
    for (const member of this.axes.members(this.axis)) {
      const role = this.roleOf(member);
      counts.set(role, (counts.get(role) ?? 0) + 1);
    }
    const isFree = this.axes.frozen(this.axis) === null;
    const lines = words.ROLES.flatMap(([role, what, then]) => {
      const count = counts.get(role) ?? 0;
      return count > 0 ? [`${words.tensors(count)}: ${isFree ? `${what}, ${then}` : what}`] : [];
    });
    const carriers = this.carriers();
    const more = carriers.length - MAX_CARRIERS;
    if (carriers.length > 0) lines.push(words.carriedBy(carriers.slice(0, MAX_CARRIERS), Math.max(0, more)));
    const list = el("ul", "mkg-axis-roles");
    list.append(...lines.map(line => el("li", "mkg-dim", line)));
    return lines.length > 0 ? [list] : [];
  }

  private runsIn(call: number, kind: "inputs" | "outputs"): boolean {
    const { calls, values } = this.flow.payload;
    return calls[kind][call].some(value => values.axes[value].includes(this.axis));
  }

  /** Modules and operators without tensors of their own along the group, each kind once, in the order they run. */
  private carriers(): string[] {
    const { h, flow } = this;
    const { call: owner, inputs } = flow.payload.steps;
    const { axes } = flow.payload.values;
    const members = new Set(this.axes.nodes(this.axis));
    const runs = (value: number) => axes[value].includes(this.axis);
    const found = new Set<string>();
    for (const step of [...flow.pathOf(this.axis).steps].sort((a, b) => a - b)) {
      const node = flow.payload.calls.node[owner[step]];
      const isCarried = inputs[step].some(runs) && flow.values(step).some(runs);
      if (!isCarried || members.has(node) || !flow.computes(step)) continue;
      found.add(flow.isLeaf(owner[step]) && node > 0 ? h.className(node) : flow.name(step).replace(/_$/, "")); // also "add_"
    }
    return [...found];
  }
}
