// The payload itself, as the kernel sent it.

import type { ModelPayload } from "../shared/payload";

export function payloadToJson(payload: ModelPayload): string {
  return `${JSON.stringify(payload)}\n`;
}
