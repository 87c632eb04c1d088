// What to write where there is nothing to show yet, as code to copy.

import { button, copyText, el } from "../shared/dom";
import { counted } from "../shared/format";
import { icon } from "../shared/icons";
import type { Knowledge } from "./data";
import type { ExplorerStore } from "./state";

interface Advice {
  readonly said: string;
  readonly code: string;
}

const ADVICE = {
  models: {
    said: "The graph has no models yet. With kg as the graph and explorer as this widget:",
    code: 'import torchvision\nkg.add_model(torchvision.models.resnet18(), name="resnet18")\nexplorer.refresh()'
  },
  others: {
    said: "There is only one model, and nothing to compare it with. Add another:",
    code: 'import torchvision\nkg.add_model(torchvision.models.resnet50(), name="resnet50")\nexplorer.refresh()'
  },
  results: {
    said: "No two numbers are known of the same models. Results come from tables, for example those of timm:",
    code: 'kg.add_results(mk.published_results("timm"))\nexplorer.refresh()'
  },
  jobs: {
    said: "No training runs are known yet. A run is a job of the graph, with a model that it has:",
    code:
      'kg.add_user("me")\nkg.add_dataset("my data")\n' +
      'kg.add_job(user="me", dataset="my data", model="resnet18", accuracy=0.91)\nexplorer.refresh()'
  }
} as const satisfies Record<string, Advice>;

/** That something is missing, and the code that would change it, with a button that copies it. */
export function emptyNote(what: keyof typeof ADVICE, store: ExplorerStore): HTMLElement {
  const { said, code } = ADVICE[what];
  const note = el("div", "mkg-kg-nothing");
  const copy = button("mkg-button mkg-kg-copy-code", "");
  copy.append(icon("copy"), el("span", "", "Copy the code"));
  copy.addEventListener("click", () => void tell(copyText(code), store));
  note.append(el("p", "", said), el("pre", "mkg-kg-code", code), copy);
  return note;
}

/** That structures will come, or why they do not. */
export function waitingNote(data: Knowledge): HTMLElement {
  const note = el("div", "mkg-kg-nothing");
  note.setAttribute("role", "status");
  const count = counted(data.payload.size, "structure");
  const said =
    data.payload.analysis === "running"
      ? `${count} are being analysed by the kernel. Graph and Scatter show the models meanwhile.`
      : `${count} could not be analysed: the log of the kernel says why.`;
  note.append(el("p", "", said));
  return note;
}

async function tell(copied: Promise<boolean>, store: ExplorerStore): Promise<void> {
  store.set("notice", (await copied) ? "Copied." : "The browser did not allow copying.");
}
