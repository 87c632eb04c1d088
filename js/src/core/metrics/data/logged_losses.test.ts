import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { message, numbers, type EntryRow } from "../../../testing/metrics";
import { compareLosses, isLoss, lossesWith } from "./logged_losses";
import { MetricData } from "./metric_data";
import { decodeUpdate } from "./payload";

/** What the picture of a saved notebook goes by as well. */
const table = JSON.parse(
  readFileSync(join(dirname(fileURLToPath(import.meta.url)), "../../../../../tests/views/loss_names.json"), "utf8")
) as {
  losses: string[];
  others: string[];
  ordered: [string[], string[]][];
  charts: [string[], string, string[]][];
};

function dataOf(entries: EntryRow[]): MetricData {
  const data = new MetricData(100);
  const { content, buffers } = message(1, { entries });
  const update = decodeUpdate(content, buffers);
  if (update) data.apply(update);
  return data;
}

describe("the names of losses", () => {
  it.each(table.losses)("have %j", name => {
    expect(isLoss(name)).toBe(true);
  });

  it.each(table.others)("have no %j", name => {
    expect(isLoss(name)).toBe(false);
  });

  it.each(table.ordered)("%j are in the order %j", (names, expected) => {
    expect([...names].sort(compareLosses)).toEqual(expected);
  });

  it.each(table.charts)("of %j %j is drawn with %j", (names, name, expected) => {
    expect(lossesWith(dataOf(names.flatMap(one => numbers(one, [""]))), name)).toEqual(expected);
  });

  it("are of the whole run: a metric of layers is alone", () => {
    const data = dataOf([...numbers("loss", [""]), ...numbers("val_loss", ["", "a"])]);
    expect(lossesWith(data, "loss")).toEqual(["loss"]);
    expect(lossesWith(data, "val_loss")).toEqual(["val_loss"]);
  });
});
