// Prints as JSON how many milliseconds the layout worker takes for each large request, the best of three.
import { join } from "node:path";
import { runInThisContext } from "node:vm";
import { bundle, bundleWorker } from "./bundle.mjs";
import { source } from "./files.mjs";

const cases = await bundle(join(source, "testing", "layout_cases.ts"), { globalName: "cases" });
const requests = runInThisContext(`${cases};cases`).largeRequests();
const worker = await bundleWorker(source);

let answer;
globalThis.postMessage = message => (answer = message);

/** A fresh worker: nothing that it remembers helps. */
function timeOf(request) {
  runInThisContext(worker);
  const started = performance.now();
  globalThis.onmessage({ data: { id: 1, request } });
  const took = performance.now() - started;
  if (!answer?.result) throw new Error("no layout");
  answer = undefined;
  return took;
}

const times = Object.entries(requests).map(([name, request]) => [
  name,
  Math.min(...[0, 1, 2].map(() => timeOf(request)))
]);
console.log(JSON.stringify(Object.fromEntries(times)));
