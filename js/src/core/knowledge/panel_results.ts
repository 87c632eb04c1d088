// What a model reached, and which models are like it.

import { oneLine } from "../shared/canvas";
import { el, nameSpan } from "../shared/dom";
import { counted, exactNumber } from "../shared/format";
import { folded, section } from "../panel/parts";
import { toNumber } from "../shared/payload";
import { valueText } from "../metrics/value_axis";
import type { Knowledge, Thing } from "./data";
import type { ResultColumn } from "./payload";

type Link = (thing: Thing) => HTMLElement;

interface Reached {
  readonly column: ResultColumn;
  readonly at: number; // place in it
  readonly value: number;
}

/** The best value of each target, accuracies before costs; then, folded up, all others. */
export function resultSection(data: Knowledge, model: number): HTMLElement[] {
  const columns = data.payload.results.map(column => reachedBy(column, model)).filter(found => found.length > 0);
  if (columns.length === 0) return [];
  const ranked = [false, true].flatMap(isCost => columns.filter(([{ column }]) => column.cost === isCost));
  const best = ranked.map(([first]) => first);
  const others = ranked.flatMap(([, ...rest]) => rest);
  const rest = others.length > 0 ? [folded(`${exactNumber(others.length)} more`, listOf(data, others))] : [];
  return [section("Results", listOf(data, best), ...rest)];
}

/** The best first. */
function reachedBy(column: ResultColumn, model: number): Reached[] {
  const found = column.model.flatMap((each, at) => {
    const value = each === model ? toNumber(column.value[at]) : null;
    return value === null ? [] : [{ column, at, value }];
  });
  return found.sort((a, b) => (column.cost ? a.value - b.value : b.value - a.value));
}

function listOf(data: Knowledge, every: readonly Reached[]): HTMLElement {
  const list = el("ul", "mkg-kg-list");
  for (const { column, at, value } of every) {
    const { target, unit, dataset, device } = column;
    const where = [dataset, device].filter((part): part is string => part !== null);
    const line = el("li", "mkg-kg-result-line");
    line.append(nameSpan("", oneLine([target, ...where].join(", "))));
    line.append(el("b", "mkg-kg-count", ` ${valueText(value)}${unit === null ? "" : ` ${oneLine(unit)}`}`));
    const training = data.payload.jobs.training[column.job[at]] ?? sizeText(toNumber(column.size[at]));
    if (training) line.append(el("span", "mkg-dim", ` ${oneLine(training)}`));
    list.append(line);
  }
  return list;
}

const sizeText = (size: number | null): string => (size === null ? "" : `image_size ${exactNumber(size)}`);

/** The models whose structure is most like one's, as `kg.similar` tells them. */
export function nearestSection(data: Knowledge, model: number, link: Link): HTMLElement[] {
  const nearest = data.nearest(model);
  if (nearest.length === 0) return [];
  const list = el("ul", "mkg-kg-list");
  for (const { index, count: likeness } of nearest) {
    const line = el("li", "mkg-kg-near");
    const shared = data.shared(model, index);
    line.append(link({ kind: "model", index, level: 0 }), el("span", "mkg-kg-count", ` ${likeness.toFixed(2)}`));
    if (shared > 0) line.append(el("span", "mkg-dim", `${counted(shared, "structure")} in common`));
    list.append(line);
  }
  const note = el("p", "mkg-dim", "By the plan of their operations, whatever the widths; 1 is the same plan.");
  return [section("Most alike", note, list)];
}
