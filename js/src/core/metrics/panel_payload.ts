// The panel's fixed data: the names of its runs and how many points a series may hold.

import * as v from "valibot";
import { checked, is, isCount, isObject, isString, list, parts } from "../shared/schema";

export const PANEL_VERSION = 1;
export const DEFAULT_LIMIT = 2000;

const isLimit = (value: unknown): value is number => isCount(value) && value > 0;

const PanelSchema = parts({
  schema_version: v.literal(PANEL_VERSION),
  kind: v.literal("metric_panel"),
  runs: list(isString),
  limit: is(isLimit) // points held of one series
});

export type PanelPayload = v.InferOutput<typeof PanelSchema>;

/** The payload, once its version and its parts are known to be right. */
export const readPanel = (raw: unknown): PanelPayload => checked(PanelSchema, raw);

/** How many points a series may hold, whatever else the payload is. */
export function limitOf(raw: unknown): number {
  return isObject(raw) && isLimit(raw.limit) ? raw.limit : DEFAULT_LIMIT;
}
