// The panel's fixed data: the names of its runs and how many points a series may hold.

import { OTHER_VERSION } from "../shared/payload";
import { isObject, isStrings, need, PayloadError } from "../shared/payload_checks";

export interface PanelPayload {
  readonly runs: readonly string[];
  readonly limit: number; // points held of one series
}

export const PANEL_VERSION = 1;
export const DEFAULT_LIMIT = 2000;

/** The payload, once its version and its parts are known to be right. */
export function readPanel(raw: unknown): PanelPayload {
  if (!isObject(raw) || raw.schema_version !== PANEL_VERSION || raw.kind !== "metric_panel") {
    throw new PayloadError(OTHER_VERSION);
  }
  const { runs, limit } = raw;
  need(isStrings(runs), "runs");
  need(Number.isInteger(limit) && (limit as number) > 0, "limit");
  return { runs: runs as string[], limit: limit as number };
}

/** How many points a series may hold, whatever else the payload is. */
export function limitOf(raw: unknown): number {
  const limit = isObject(raw) ? raw.limit : undefined;
  return Number.isInteger(limit) && (limit as number) > 0 ? (limit as number) : DEFAULT_LIMIT;
}
