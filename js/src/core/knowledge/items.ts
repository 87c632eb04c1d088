// What the map of a graph shows: circles, and what joins them.

import type { ThingKind, Thing } from "./data";

/** What stands for models is a square. */
export const isOfModels = (kind: MapItem["kind"]): boolean =>
  kind === "model" || kind === "family" || kind === "superfamily";

export interface MapItem {
  readonly id: string; // ids of what it lies in, then its own
  readonly kind: ThingKind | "more";
  readonly thing: Thing | null; // null: what is left out
  readonly parent: number; // place in the picture; -1: none
  readonly depth: number;
  readonly title: string;
  readonly detail: string;
  readonly count: number; // members
  readonly members: readonly number[]; // the structures that it stands for
  readonly isGroup: boolean; // can be opened
  readonly isOpen: boolean;
  readonly isHit: boolean; // or something in it is
}

export interface MapPicture {
  readonly items: readonly MapItem[];
  readonly links: readonly MapLink[];
  readonly isSearched: boolean;
  readonly isCut: boolean; // an open group is drawn closed, as it would be too much
}

export interface MapLink {
  readonly from: number; // places in the picture
  readonly to: number;
  readonly weight: number; // 0 … 1
  readonly kind: "alike" | "shares" | "contains";
}
