// Who trained what, on which data, and how well it went.

import { el, nameSpan } from "../shared/dom";
import { counted, shortNumber } from "../shared/format";
import { foldedWhenLong, section } from "../panel/parts";
import { toNumber } from "../shared/payload";
import { type Value } from "../shared/schema";
import type { Knowledge, Thing } from "./data";

const MOST = 60; // lines; all are in the table of training

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
  link: (thing: Thing) => HTMLElement
): HTMLElement[] {
  if (found.length === 0) return [];
  const list = el("ul", "mkg-kg-list");
  for (const job of found.slice(0, MOST)) list.append(jobLine(data, job, link));
  const shown = foldedWhenLong(Math.min(MOST, found.length), "job", list);
  if (found.length <= MOST) return [section("Who trained what", shown)];
  return [section("Who trained what", shown, el("p", "mkg-dim", `${found.length - MOST} more are under Training.`))];
}

function jobLine(data: Knowledge, job: number, link: (thing: Thing) => HTMLElement): HTMLElement {
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
