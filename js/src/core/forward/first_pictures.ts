// The pictures that come with the steps: what can be shown before the kernel answers any question.

import * as v from "valibot";
import {
  arrayOf,
  checked,
  count,
  is,
  isBoolean,
  isCount,
  isInteger,
  list,
  PayloadError,
  parts,
  record,
  relations
} from "../shared/schema";
import { bytesOf, isDrawing, keyOf, type MapPage, sizeOf } from "./map_page";

export const PICTURES_VERSION = 1;

export interface FirstPicture {
  readonly page: MapPage;
  readonly isWhole: boolean; // the kernel has no finer one
}

const PicturesSchema = v.pipe(
  parts({
    schema_version: v.literal(PICTURES_VERSION),
    kind: v.literal("forward_pictures"),
    run: is(isInteger),
    sample: count,
    each: list(record({ steps: arrayOf(isCount), whole: isBoolean, maps: isDrawing })),
    pixels: v.pipe(v.unknown(), v.transform(bytesOf)) // of all, one after the other
  }),
  relations({ pixels: ({ each, pixels }) => each.reduce((sum, { maps }) => sum + sizeOf(maps), 0) === pixels.length })
);

/** The pictures by the requests that they answer; none where there are none that can be read. */
export function readFirstPictures(raw: unknown): Map<string, FirstPicture> {
  const found = new Map<string, FirstPicture>();
  try {
    const { run, sample, each, pixels } = checked(PicturesSchema, raw);
    let at = 0;
    for (const { steps, whole, maps } of each) {
      const picture = { page: { ...maps, pixels: pixels.subarray(at, at + sizeOf(maps)) }, isWhole: whole };
      for (const step of steps) found.set(keyOf({ run, step, sample, page: 0 }), picture);
      at += sizeOf(maps);
    }
  } catch (error) {
    if (!(error instanceof PayloadError)) throw error;
  }
  return found;
}
