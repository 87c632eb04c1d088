// The section of the side panel on a group of operators: what it is called, and all of them by their lines of code.

import type { Dataflow } from "../shared/model/dataflow";
import { el, nameSpan } from "../shared/ui/dom";
import { exactNumber } from "../shared/base/format";
import { groupTitle } from "../shared/model/operator_names";
import { byLine, visibleSteps } from "../shared/model/operator_parts";
import type { OperatorGroup } from "../shared/model/operator_groups";
import { Facts, section } from "./parts";
import * as words from "../words/panel";

const MAX_ROWS = 400; // operators that are listed

/** "23 operators", with their names, shapes and lines of code; of a line that ran several times its first run. */
export function groupSection(flow: Dataflow, steps: readonly number[]): HTMLElement {
  const facts = new Facts();
  const known = steps.map(step => flow.flops(step));
  const flops = known.reduce<number>((sum, one) => sum + (one ?? 0), 0);
  if (flow.isCounted && flops > 0) facts.number(words.FLOPS, flops, "flops", "", flops, words.FLOPS_HELP);
  const name = groupTitle(flow, steps, one => one);
  const list = el("ul", "mkg-operators");
  let room = MAX_ROWS;
  for (const group of byLine(flow, steps)) {
    if (room <= 0) break;
    const shown = visibleSteps(group).slice(0, room);
    room -= shown.length;
    list.append(lineHead(group), ...shown.map(step => rowOf(flow, step)));
  }
  const element = section(
    words.operators(steps.length),
    nameSpan("mkg-operator-name", name),
    facts.list,
    list,
    ...(room <= 0 ? [el("p", "mkg-panel-note", words.firstRows(exactNumber(MAX_ROWS)))] : [])
  );
  element.classList.add("mkg-operator");
  element.dataset.mkgOperators = String(steps.length);
  return element;
}

function lineHead({ line = "", times = 1 }: OperatorGroup): HTMLElement {
  const head = el("li", "mkg-operators-line");
  head.append(nameSpan("mkg-code", line === "" ? words.NO_LINE : line.slice(line.lastIndexOf("/") + 1)));
  head.title = line;
  if (times > 1) head.append(el("span", "mkg-dim", ` ×${exactNumber(times)}`));
  return head;
}

function rowOf(flow: Dataflow, step: number): HTMLElement {
  const row = el("li", "mkg-operators-row");
  const { inputs } = flow.payload.steps;
  const given = flow.values(step).filter((value, at) => at === 0 || flow.isRead(value));
  const [from, to] = [inputs[step], given].map(values => values.map(value => flow.shape(value)).join(", "));
  row.title = `${flow.fullName(step)}\n${from} → ${to}`;
  row.append(nameSpan("mkg-code", flow.name(step)), nameSpan("mkg-dim mkg-shape", to));
  return row;
}
