// What a model reached, and which models are like it.

import { oneLine } from "../shared/canvas";
import { el, nameSpan } from "../shared/dom";
import { exactNumber } from "../shared/format";
import { folded, section } from "../panel/parts";
import { toNumber } from "../shared/payload";
import { valueText } from "../metrics/value_axis";
import type { Knowledge, Thing } from "./data";
import type { ResultColumn } from "./payload";

const SHOWN = 10; // results before the rest is folded up

type Link = (thing: Thing) => HTMLElement;

/** One line per value, those of one target together, the best first. */
export function resultSection(data: Knowledge, model: number): HTMLElement[] {
  const lines = data.payload.results.flatMap(column => linesOf(data, column, model));
  if (lines.length === 0) return [];
  const listOf = (some: readonly HTMLElement[]) => {
    const list = el("ul", "mkg-kg-list");
    list.append(...some);
    return list;
  };
  const more = lines.slice(SHOWN);
  const rest = more.length > 0 ? [folded(`${exactNumber(more.length)} more`, listOf(more))] : [];
  return [section("Results", listOf(lines.slice(0, SHOWN)), ...rest)];
}

function linesOf(data: Knowledge, column: ResultColumn, model: number): HTMLElement[] {
  const { target, unit, dataset, device, cost } = column;
  const found = column.model.flatMap((each, at) => {
    const value = each === model ? toNumber(column.value[at]) : null;
    return value === null ? [] : [{ at, value }];
  });
  found.sort((a, b) => (cost ? a.value - b.value : b.value - a.value));
  const where = [dataset, device].filter((part): part is string => part !== null);
  return found.map(({ at, value }) => {
    const line = el("li", "mkg-kg-result-line");
    line.append(nameSpan("", oneLine([target, ...where].join(", "))));
    line.append(el("b", "mkg-kg-count", ` ${valueText(value)}${unit === null ? "" : ` ${oneLine(unit)}`}`));
    const training = data.payload.jobs.training[column.job[at]] ?? sizeText(toNumber(column.size[at]));
    if (training) line.append(el("span", "mkg-dim", ` ${oneLine(training)}`));
    return line;
  });
}

const sizeText = (size: number | null): string => (size === null ? "" : `image_size ${exactNumber(size)}`);

/** The models whose structure is most like one's, as `kg.similar` tells them. */
export function nearestSection(data: Knowledge, model: number, link: Link): HTMLElement[] {
  const nearest = data.nearest(model);
  if (nearest.length === 0) return [];
  const list = el("ul", "mkg-kg-list");
  for (const { index, count: likeness } of nearest) {
    const line = el("li");
    const shared = data.shared(model, index);
    const common = shared > 0 ? ` · ${exactNumber(shared)} in common` : "";
    line.append(
      link({ kind: "model", index, level: 0 }),
      el("span", "mkg-kg-count", ` ${likeness.toFixed(2)}${common}`)
    );
    list.append(line);
  }
  return [section("Most alike", list)];
}
