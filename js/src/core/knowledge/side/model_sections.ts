// Sections of the side panel for a model: trainings, results, and nearest models.

import { el, nameSpan } from "../../shared/ui/dom";
import { counted, exactNumber, shortNumber } from "../../shared/base/format";
import { folded, foldedWhenLong, section } from "../../panel/parts";
import { toNumber } from "../../shared/payload/payload";
import type { Value } from "../../shared/base/schema";
import type { Knowledge, Entity } from "../data/knowledge";
import { oneLine } from "../../shared/base/canvas";
import { valueText } from "../../metrics/base/value_axis";
import type { ResultColumn } from "../data/payload";

const MAX_ROWS = 60; // lines; all are in the table of training

/** The jobs of some models, the best first; of all for null. Those of nobody that say a result alone are results. */
export function jobsOf(data: Knowledge, models: readonly number[] | null): number[] {
  const { jobs, models: table } = data.payload;
  const names = models && new Set(models.map(index => table.name[index]));
  const isRun = (job: number) => jobs.user[job] !== null || jobs.metrics[job].length > 0 || !data.resultJobs.has(job);
  const found = jobs.name.flatMap((_, job) =>
    isRun(job) && (!names || names.has(jobs.model[job] ?? "")) ? [job] : []
  );
  const accuracy = (job: number) => toNumber(jobs.accuracy[job]) ?? -1;
  return found.sort((a, b) => accuracy(b) - accuracy(a) || a - b);
}

export function jobSection(
  data: Knowledge,
  found: readonly number[],
  link: (thing: Entity) => HTMLElement
): HTMLElement[] {
  if (found.length === 0) return [];
  const list = el("ul", "mkg-kg-list");
  for (const job of found.slice(0, MAX_ROWS)) list.append(jobLine(data, job, link));
  const shown = foldedWhenLong(Math.min(MAX_ROWS, found.length), "job", list);
  if (found.length <= MAX_ROWS) return [section("Who trained what", shown)];
  return [
    section("Who trained what", shown, el("p", "mkg-dim", `${found.length - MAX_ROWS} more are under Training.`))
  ];
}

function jobLine(data: Knowledge, job: number, link: (thing: Entity) => HTMLElement): HTMLElement {
  const { jobs, models } = data.payload;
  const line = el("li", "mkg-kg-job");
  const model = models.name.indexOf(jobs.model[job] ?? "");
  line.append(nameSpan("mkg-kg-job-user", jobs.user[job] ?? "somebody"), " trained ");
  if (model >= 0) line.append(link({ kind: "model", index: model, level: 0 }));
  else line.append(nameSpan("", jobs.model[job] ?? "a model"));
  if (jobs.dataset[job] !== null) line.append(" on ", nameSpan("", jobs.dataset[job] ?? ""));
  const accuracy = percent(jobs.accuracy[job]);
  if (accuracy) line.append(`: ${accuracy}`);
  const steps = toNumber(jobs.convergence[job]);
  if (steps !== null && Number.isFinite(steps))
    line.append(el("span", "mkg-dim", `, settled after ${counted(Math.round(steps), "step")}`));
  return line;
}

/** A fraction as people say it. */
export function percent(value: Value): string {
  const share = toNumber(value);
  return share === null ? "" : Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : shortNumber(share);
}

export function day(seconds: Value): string {
  const time = toNumber(seconds);
  return time === null || time === 0 || !(Math.abs(time) < 8.64e12)
    ? ""
    : new Date(1000 * time).toISOString().slice(0, 10);
}

// What a model reached, and which models are like it.

type Link = (thing: Entity) => HTMLElement;

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
