// A laid-out scene as cytoscape elements, and the smallest change that leads from one to the next.

import type { Core, ElementDefinition } from "cytoscape";
import type { Box } from "./layout";
import type { Placed } from "./routes";

type Data = Record<string, unknown>;

/** What changes about a card without a new layout. */
export interface Look {
  fill: string;
  onAxis: boolean;
}

/** Brings the graph to the scene: removes, adds and updates only what differs. */
export function applyScene(cy: Core, now: Placed, look: (place: number) => Look): void {
  const wanted = new Map<string, ElementDefinition>();
  const spans = contentSpans(now);
  now.scene.nodes.forEach((_, place) => {
    const element = nodeElement(now, place, spans.get(place), look(place));
    wanted.set(String(element.data.id), element);
  });
  for (const { id, source, target, kind, label } of now.scene.edges) {
    const ends = { source: now.scene.nodes[source].id, target: now.scene.nodes[target].id };
    wanted.set(id, { group: "edges", data: { id, ...ends, kind, label } });
  }
  cy.batch(() => {
    removeOthers(cy, wanted);
    cy.add([...wanted.values()].filter(element => cy.getElementById(String(element.data.id)).empty()));
    wanted.forEach(element => update(cy, element));
  });
}

/** cytoscape's selection follows ours; clicks cannot change it, as elements are not selectable for long. */
export function selectOnly(cy: Core, id: string | null): void {
  const wanted = cy.getElementById(id ?? "");
  cy.$(":selected").difference(wanted).selectify().unselect().unselectify();
  wanted.selectify().select().unselectify();
}

/** Gone, or under another frame than before (then it comes back as a new element). */
function removeOthers(cy: Core, wanted: ReadonlyMap<string, ElementDefinition>): void {
  const stale = cy.elements().filter(element => {
    const next = wanted.get(element.id());
    return !next || (element.isNode() && (element.data("parent") ?? null) !== (next.data.parent ?? null));
  });
  cy.remove(stale); // a removed frame takes its children along: those still wanted are added again
}

function update(cy: Core, { data, position }: ElementDefinition): void {
  const element = cy.getElementById(String(data.id));
  const changed = Object.entries(data).filter(([key, value]) => !Object.is(element.data(key), value));
  if (changed.length > 0) {
    element.data(Object.fromEntries(changed));
  }
  // a frame follows its children; placing it would drag them along
  if (position && element.isNode() && element.isChildless()) {
    const before = element.position();
    if (before.x !== position.x || before.y !== position.y) {
      element.position({ ...position });
    }
  }
}

function nodeElement(now: Placed, place: number, span: Box | undefined, look: Look): ElementDefinition {
  const node = now.scene.nodes[place];
  const [x, y, width, height] = now.boxes[place];
  const data: Data = {
    id: node.id,
    index: node.index,
    path: node.path,
    kind: node.kind,
    label: node.title,
    sublabel: node.subtitle,
    detail: node.detail,
    badge: node.badge,
    width,
    height,
    ...look
  };
  if (node.parent >= 0) {
    data.parent = now.scene.nodes[node.parent].id;
  }
  if (span) {
    // how a frame's surplus over its content is shared out: exactly the room that the layout left
    data.left = span[0] - x;
    data.right = x + width - span[0] - span[2];
    data.top = span[1] - y;
    data.bottom = y + height - span[1] - span[3];
  }
  return { group: "nodes", selectable: false, data, position: { x: x + width / 2, y: y + height / 2 } };
}

/** What the children of each frame cover. */
function contentSpans({ scene, boxes }: Placed): Map<number, Box> {
  const spans = new Map<number, Box>();
  for (const { node, items } of scene.groups) {
    const [left, top] = [0, 1].map(i => Math.min(...items.map(item => boxes[item][i])));
    const [right, bottom] = [0, 1].map(i => Math.max(...items.map(item => boxes[item][i] + boxes[item][i + 2])));
    spans.set(node, [left, top, right - left, bottom - top]);
  }
  return spans;
}
