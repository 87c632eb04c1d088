// Index of a knowledge graph's payload: uses, containment, and membership in families and communities.

import { toNumber } from "../../shared/payload/payload";
import { type Scalar, type Value } from "../../shared/base/schema";
import type { KnowledgePayload, TypeTable } from "./payload";

export interface Count {
  readonly index: number;
  readonly count: number;
}

export type EntityKind = "module" | "model" | "family" | "superfamily" | "community" | "type";

/** Something that can be selected. */
export interface Entity {
  readonly kind: EntityKind;
  readonly index: number; // of a type: its position in the table of its level
  readonly level: number; // of a type, else 0
}

export class Knowledge {
  readonly size: number; // structures
  readonly modelCount: number;
  readonly uses: Float64Array;
  readonly levelUses: readonly Float64Array[]; // by level
  readonly modelsOf: readonly (readonly Count[])[]; // of each structure, models and its uses there
  readonly params: readonly (number | null)[];
  readonly bytes: readonly (number | null)[];
  private readonly keys = new Map<string, Entity>();
  private readonly numbers = new Map<string, readonly (number | null)[]>();
  private readonly memberSets = new Map<number, ReadonlySet<number>>();
  private readonly groups = new Map<string, readonly number[]>();
  private readonly sharedRows = new Map<number, Uint32Array>();
  private readonly dominant = new Map<number, string[]>();
  private reached?: ReadonlySet<number>;
  private around?: readonly (readonly Count[])[];
  private readonly inFamily: readonly number[][]; // models
  private readonly inSuperfamily: readonly number[][]; // families

  constructor(readonly payload: KnowledgePayload) {
    const { entities, models } = payload;
    this.size = entities.name.length;
    this.modelCount = models.name.length;
    this.params = entities.params.map(toNumber);
    this.bytes = entities.bytes.map(toNumber);
    this.uses = new Float64Array(this.size);
    this.levelUses = [0, 1, 2, 3].map(() => new Float64Array(this.size));
    this.inFamily = grouped(models.family, payload.families.length);
    this.inSuperfamily = grouped(payload.superfamilies.of, payload.superfamilies.name.length);
    this.modelsOf = this.countUses();
    this.nameThings();
  }

  /** Whether anything is known of structures: of a large graph that comes after its models. */
  get isAnalysed(): boolean {
    return this.payload.analysis === "done";
  }

  /** The structures that hold each directly. */
  get parents(): readonly (readonly Count[])[] {
    this.around ??= this.findParents();
    return this.around;
  }

  /** The jobs of which a result is told. */
  get resultJobs(): ReadonlySet<number> {
    this.reached ??= new Set(this.payload.results.flatMap(({ job }) => job));
    return this.reached;
  }

  find(key: string | null): Entity | undefined {
    return key === null ? undefined : this.keys.get(key);
  }

  key({ kind, index, level }: Entity): string {
    const { entities, models, families, superfamilies } = this.payload;
    if (kind === "module") return entities.digest[index];
    if (kind === "model") return `Model:${models.name[index]}`;
    if (kind === "superfamily") return `Superfamily:${superfamilies.name[index]}`;
    if (kind === "family") return `Family:${families[index]}`;
    if (kind === "community") return `Community:${index}`;
    return `Type:${this.types(level)?.name[index] ?? ""}`;
  }

  name({ kind, index, level }: Entity): string {
    const { entities, models, families, superfamilies } = this.payload;
    if (kind === "module") return entities.name[index];
    if (kind === "model") return models.name[index];
    if (kind === "superfamily") return superfamilies.name[index];
    if (kind === "family") return families[index];
    if (kind === "community") return this.communityName(index);
    return this.types(level)?.name[index] ?? "";
  }

  className(entity: number): string {
    return this.payload.classes.name[this.payload.entities.class[entity]];
  }

  qualifiedName(entity: number): string {
    return this.payload.classes.qualified[this.payload.entities.class[entity]];
  }

  hyper(entity: number): [string, Scalar][] {
    const { entities, classes, values } = this.payload;
    const fields = classes.fields[entities.class[entity]];
    const row = entities.hyper[entity];
    return fields.flatMap((field, i) => ((row[i] ?? -1) < 0 ? [] : [[field, values[row[i]]] as [string, Scalar]]));
  }

  children(entity: number): Count[] {
    return pairs(this.payload.entities.children[entity]);
  }

  isContainer(entity: number): boolean {
    return this.payload.entities.children[entity].length > 0;
  }

  types(level: number): TypeTable | undefined {
    return this.payload.types.find(table => table.level === level);
  }

  /** The structures of a group, those with most uses first. */
  members(thing: Entity): readonly number[] {
    const key = this.key(thing);
    let found = this.groups.get(key);
    if (!found) {
      found = this.findMembers(thing).sort((a, b) => this.uses[b] - this.uses[a] || a - b);
      this.groups.set(key, found);
    }
    return found;
  }

  modelsIn(family: number): readonly number[] {
    return this.inFamily[family];
  }

  /** Those of most models first. */
  familiesIn(superfamily: number): readonly number[] {
    return [...this.inSuperfamily[superfamily]].sort((a, b) => this.inFamily[b].length - this.inFamily[a].length);
  }

  superfamilyOf(model: number): number {
    const { models, superfamilies } = this.payload;
    return superfamilies.of[models.family[model]];
  }

  /** The models that a thing stands for; undefined: it stands for structures. */
  modelsFor({ kind, index }: Entity): readonly number[] | undefined {
    if (kind === "model") return [index];
    if (kind === "family") return this.modelsIn(index);
    return kind === "superfamily" ? this.inSuperfamily[index].flatMap(family => this.inFamily[family]) : undefined;
  }

  /** Models like one, the likest first; `count` is the likeness, from 0 to 1. */
  nearest(model: number): Count[] {
    return pairs(this.payload.models.nearest[model]).map(({ index, count }) => ({ index, count: count / 1000 }));
  }

  memberSet(model: number): ReadonlySet<number> {
    let found = this.memberSets.get(model);
    if (!found) {
      const { members } = this.payload.models;
      found = new Set(members[model].filter((_, i) => i % 3 === 0));
      this.memberSets.set(model, found);
    }
    return found;
  }

  /** How many structures two models have in common. */
  shared(one: number, other: number): number {
    return this.sharedWith(one)[other];
  }

  /** The part of the structures of two models that both have (Jaccard). */
  overlap(one: number, other: number): number {
    if (one === other) return 1;
    const { structures } = this.payload.models;
    const shared = this.shared(one, other);
    return shared / Math.max(1, structures[one] + structures[other] - shared);
  }

  /** How many structures a model shares with each: of thousands of models only the rows that are asked for. */
  private sharedWith(model: number): Uint32Array {
    let row = this.sharedRows.get(model);
    if (!row) {
      row = new Uint32Array(this.modelCount);
      for (const entity of this.memberSet(model)) for (const { index } of this.modelsOf[entity]) row[index] += 1;
      this.sharedRows.set(model, row);
    }
    return row;
  }

  get measures(): string[] {
    return Object.keys(this.payload.entities.importance);
  }

  /** A number of every structure by its name in searches and tables. */
  column(name: string): readonly (number | null)[] | undefined {
    const known = this.numbers.get(name);
    if (known) return known;
    const made = this.makeColumn(name);
    if (made) this.numbers.set(name, made);
    return made;
  }

  /** "3 efficientnet_b6": its number, as in Python and in searches, and what is particular about it. */
  communityName(index: number): string {
    const { names } = this.payload.communities;
    return `${index} ${names?.[index] ?? this.familiesOf(index)[0] ?? "mixed"}`;
  }

  /** The families whose models have most of a community's structures, at most two. */
  familiesOf(community: number): string[] {
    const known = this.dominant.get(community);
    if (known) return known;
    const own = this.members({ kind: "community", index: community, level: 0 });
    const counts = new Map<number, number>();
    for (const entity of own) {
      const families = new Set(this.modelsOf[entity].map(({ index }) => this.payload.models.family[index]));
      for (const family of families) counts.set(family, (counts.get(family) ?? 0) + 1);
    }
    const ranked = [...counts].sort((a, b) => b[1] - a[1]);
    const main = ranked.filter(([, count]) => count > own.length / 4).slice(0, 2);
    const found = main.map(([family]) => this.payload.families[family]);
    this.dominant.set(community, found);
    return found;
  }

  /** The models that have any of these structures. */
  modelsWith(members: readonly number[]): number[] {
    const found = new Set<number>();
    for (const entity of members) for (const { index } of this.modelsOf[entity]) found.add(index);
    return [...found].sort((a, b) => a - b);
  }

  /** The community that most of a group's structures belong to; -1: none. */
  mainCommunity(members: readonly number[]): number {
    const counts = new Map<number, number>();
    let best = -1;
    for (const entity of members) {
      const community = this.payload.entities.community[entity];
      const count = (counts.get(community) ?? 0) + 1;
      counts.set(community, count);
      if (count > (counts.get(best) ?? 0)) best = community;
    }
    return best;
  }

  private makeColumn(name: string): readonly (number | null)[] | undefined {
    if (name === "params") return this.params;
    if (name === "bytes") return this.bytes;
    if (name === "uses") return Array.from(this.uses);
    if (name === "models") return this.modelsOf.map(models => models.length);
    const { importance } = this.payload.entities;
    return Object.prototype.hasOwnProperty.call(importance, name) ? numbers(importance[name]) : undefined;
  }

  private countUses(): Count[][] {
    const found: { index: number; count: number }[][] = Array.from({ length: this.size }, () => []);
    this.payload.models.members.forEach((members, model) => {
      for (let at = 0; at < members.length; at += 3) {
        const [entity, level, count] = [members[at], members[at + 1], members[at + 2]];
        this.uses[entity] += count;
        this.levelUses[level][entity] += count;
        const last = found[entity][found[entity].length - 1] as { index: number; count: number } | undefined;
        if (last?.index === model) last.count += count;
        else found[entity].push({ index: model, count });
      }
    });
    return found;
  }

  private findParents(): Count[][] {
    const parents: Count[][] = Array.from({ length: this.size }, () => []);
    for (let entity = 0; entity < this.size; entity += 1) {
      for (const { index, count } of this.children(entity)) parents[index].push({ index: entity, count });
    }
    return parents;
  }

  private nameThings(): void {
    const { communities, families, models, superfamilies, types } = this.payload;
    const add = (kind: EntityKind, count: number, level = 0) => {
      for (let index = 0; index < count; index += 1) {
        const thing = { kind, index, level };
        const key = this.key(thing);
        if (!this.keys.has(key)) this.keys.set(key, thing);
      }
    };
    add("module", this.size);
    add("model", models.name.length);
    add("family", families.length);
    add("superfamily", superfamilies.name.length);
    add("community", communities.count);
    types.forEach(table => add("type", table.name.length, table.level));
  }

  private findMembers(thing: Entity): number[] {
    const { kind, index, level } = thing;
    const { entities } = this.payload;
    if (kind === "module") return [index];
    if (kind === "community") return positions(entities.community, index);
    if (kind === "type") return positions(this.types(level)?.of ?? [], index);
    const found = new Set<number>();
    for (const model of this.modelsFor(thing) ?? []) for (const entity of this.memberSet(model)) found.add(entity);
    return [...found];
  }
}

/** For each group the places that belong to it. */
function grouped(of: readonly number[], count: number): number[][] {
  const found: number[][] = Array.from({ length: count }, () => []);
  of.forEach((group, place) => void found[group].push(place));
  return found;
}

function positions(column: readonly number[], wanted: number): number[] {
  const found: number[] = [];
  column.forEach((value, i) => {
    if (value === wanted) found.push(i);
  });
  return found;
}

function pairs(flat: readonly number[]): Count[] {
  const found: Count[] = [];
  for (let at = 0; at < flat.length; at += 2) found.push({ index: flat[at], count: flat[at + 1] });
  return found;
}

function numbers(values: readonly Value[]): (number | null)[] {
  return values.map(toNumber);
}
