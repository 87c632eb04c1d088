// Layout of the circles: groups by their links, members packed inside. Forces without chance: the same graph, the same places.

import {
  forceCollide,
  forceLink,
  forceManyBody,
  forceSimulation,
  forceX,
  forceY,
  type SimulationNodeDatum
} from "d3-force";
import type { MapItem, MapLink } from "../data/map_items";
import { push } from "../../shared/base/multimap";

export interface Circle extends SimulationNodeDatum {
  x: number;
  y: number;
  r: number;
}

const HEADER = 30; // room for the name of an open group
const GAP = 60; // between groups: room for their names
const INNER_GAP = 7;
const RIM = 16; // of an open group around its members
const WIDE = 1.2; // a canvas is a little wider than high
const SPREAD = 1.2; // names are wider than high, too
const GOLDEN = Math.PI * (3 - Math.sqrt(5));

const MANY = 40; // models; from there on a family grows slowly

export interface GroupPosition {
  readonly id: string;
  readonly x: number;
  readonly y: number;
}

/** Circles of all items, in their order. `homes`: places of the groups while nothing is open. */
export function layoutCircles(items: readonly MapItem[], homes: readonly GroupPosition[]): Circle[] {
  const circles = items.map(item => ({ x: 0, y: 0, r: closedRadius(item) }));
  const inside = new Map<number, number[]>();
  items.forEach(({ parent }, place) => {
    push(inside, parent, place);
  });
  for (let place = items.length - 1; place >= 0; place -= 1) {
    const own = inside.get(place);
    if (own) pack(circles, own, circles[place]);
  }
  placeGroups(items, circles, inside.get(-1) ?? [], homes);
  items.forEach(({ parent }, place) => {
    if (parent < 0) return;
    circles[place].x += circles[parent].x;
    circles[place].y += circles[parent].y;
  });
  return circles;
}

function closedRadius({ kind, count, members, isGroup }: MapItem): number {
  if (kind === "community") return 17 + 1.4 * Math.sqrt(members.length);
  if (kind === "superfamily") return 12 + 1.7 * Math.sqrt(count);
  if (kind === "family") return 17 + 4 * Math.sqrt(Math.min(count, MANY)) + 0.5 * Math.sqrt(Math.max(0, count - MANY));
  if (kind === "model") return 16 + 0.8 * Math.sqrt(count);
  if (kind === "type") return 14 + 2.2 * Math.sqrt(count);
  if (kind === "more") return isGroup ? 30 : 17;
  return count > 0 ? 13 : 10;
}

/** Room that a member takes: a name stands below it. */
const ROOM = { least: 42, around: 12 };
const roomOf = ({ r }: Circle): number => Math.max(ROOM.least, r + ROOM.around);

/** Members around the middle of their group, each as near as it can be; the group grows around them. */
function pack(circles: Circle[], own: readonly number[], group: Circle): void {
  const placed: PackedCircle[] = [];
  let far = 0;
  for (const place of own) {
    const spot = freeSpot(placed, roomOf(circles[place]));
    placed.push(spot);
    [circles[place].x, circles[place].y] = [spot.x, spot.y + HEADER / 2];
    far = Math.max(far, Math.hypot(spot.x, spot.y) + spot.r);
  }
  group.r = far + RIM + HEADER / 2;
}

interface PackedCircle extends Circle {
  readonly step: number; // on the spiral
}

/** The first place on a spiral that no other circle reaches. */
function freeSpot(placed: readonly PackedCircle[], room: number): PackedCircle {
  // where one that is no larger found no place, this one finds none
  const tried = placed.filter(({ r }) => r <= room).map(({ step }) => step + 1);
  for (let step = Math.max(0, ...tried); ; step += 1) {
    const distance = 9 * Math.sqrt(step);
    const [x, y] = [distance * Math.cos(step * GOLDEN), distance * Math.sin(step * GOLDEN)];
    if (placed.every(other => isClear(other, x, y, room))) return { x, y, r: room, step };
  }
}

function isClear(other: Circle, x: number, y: number, room: number): boolean {
  const least = room + other.r + INNER_GAP;
  return (x - other.x) ** 2 + (y - other.y) ** 2 >= least * least;
}

/** From their homes open groups push the others outwards; what overlaps then moves apart. */
function placeGroups(
  items: readonly MapItem[],
  circles: Circle[],
  own: readonly number[],
  homes: readonly GroupPosition[]
): void {
  const known = new Map(homes.map(home => [home.id, home]));
  for (const place of own) {
    const home = known.get(items[place].id);
    [circles[place].x, circles[place].y] = [home?.x ?? 0, home?.y ?? 0];
  }
  for (const place of own) {
    const grown = circles[place].r - closedRadius(items[place]);
    if (items[place].isOpen)
      for (const other of own) if (other !== place) pushApart(circles[other], circles[place], grown);
  }
  separate(own.map(place => circles[place]));
}

function pushApart(circle: Circle, from: Circle, distance: number): void {
  const [dx, dy] = [circle.x - from.x, circle.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  circle.x += (dx / length) * distance;
  circle.y += (dy / length) * distance;
}

const keepApart = () => forceCollide<Circle>(({ r }) => r + GAP / 2).strength(1);
const overlaps = (circles: readonly Circle[]): boolean =>
  circles.some((one, i) =>
    circles.slice(0, i).some(other => Math.hypot(one.x - other.x, one.y - other.y) < one.r + other.r + GAP - 0.5)
  );

/** Moves what overlaps apart, the larger one less. */
function separate(circles: Circle[]): void {
  const simulation = forceSimulation(circles).stop().velocityDecay(0).force("apart", keepApart());
  for (let round = 0; round < MAX_ROUNDS && overlaps(circles); round += 1) {
    for (const circle of circles) [circle.vx, circle.vy] = [0, 0]; // a push is no swing
    simulation.tick();
  }
}

/**
 * Places of the groups while none is open: joined ones near each other, the same for the same graph. `aspect`: width to
 * height of where they are shown; 0: it is not known.
 */
export function groupPositions(items: readonly MapItem[], links: readonly MapLink[], aspect = 0): GroupPosition[] {
  const own = items.flatMap(({ depth }, place) => (depth === 0 ? [place] : []));
  const at = new Map(own.map((place, i) => [place, i]));
  // places to begin with, so that no force has to draw any
  const circles: Circle[] = own.map((place, i) => {
    const distance = 70 * Math.sqrt(i + 0.5);
    return {
      x: distance * WIDE ** 0.5 * Math.cos(i * GOLDEN),
      y: distance * Math.sin(i * GOLDEN),
      r: closedRadius(items[place])
    };
  });
  const joined = links.flatMap(({ from, to, weight }) => {
    const [source, target] = [at.get(from), at.get(to)];
    return source === undefined || target === undefined ? [] : [{ source, target, weight }];
  });
  const degrees = circles.map(() => 0);
  for (const { source, target } of joined) for (const end of [source, target]) degrees[end] += 1;
  const bonds = joined.map(link => ({
    ...link,
    strength: (0.25 + 0.5 * link.weight) / Math.min(degrees[link.source], degrees[link.target]),
    length: circles[link.source].r + circles[link.target].r + GAP
  }));
  forceSimulation(circles)
    .stop()
    .force("apart", keepApart())
    .force("aside", forceManyBody<Circle>().strength(REPULSION).distanceMax(REACH))
    .force(
      "together",
      forceLink<Circle, (typeof bonds)[number]>(bonds)
        .distance(({ length }) => length)
        .strength(({ strength }) => strength)
    )
    .force("across", forceX<Circle>(0).strength(GATHER))
    .force("down", forceY<Circle>(0).strength(GATHER * WIDE)) // and more so from above and below
    .tick(ROUNDS);
  separate(circles);
  for (const circle of circles) circle.x *= SPREAD;
  if (aspect > 0) fill(circles, aspect);
  return own.map((place, i) => ({ id: items[place].id, x: circles[i].x, y: circles[i].y }));
}

/** Stretches what is higher or wider than its place, as far as that does not tear it apart. */
function fill(circles: Circle[], aspect: number): void {
  const extent = (at: (circle: Circle) => number) =>
    Math.max(...circles.map(circle => at(circle) + circle.r)) -
    Math.min(...circles.map(circle => at(circle) - circle.r));
  const natural = extent(({ x }) => x) / extent(({ y }) => y);
  const stretch = Math.min(MAX_STRETCH, Math.max(1 / MAX_STRETCH, Math.sqrt(aspect / natural)));
  if (!Number.isFinite(stretch)) return;
  for (const circle of circles) [circle.x, circle.y] = [circle.x * stretch, circle.y / stretch];
  separate(circles);
}

const MAX_STRETCH = 1.4;

const ROUNDS = 320;
const MAX_ROUNDS = 300; // to separate what overlaps
const REACH = 420; // beyond it circles do not push each other
const REPULSION = -40;
const GATHER = 0.05;
