// Loads an AMD module as hosts do that get it from a network: with a loader that knows @jupyter-widgets/base alone. Prints as
// JSON the names of the classes that it exports.
import { readFileSync } from "node:fs";
import { JSDOM } from "jsdom";

function Base() {} // stands in for every class and function of that package
const known = { "@jupyter-widgets/base": new Proxy({}, { get: () => Base }) };

function load(text) {
  const { window } = new JSDOM("", { runScripts: "outside-only" });
  let exported;
  window.matchMedia = () => new window.EventTarget(); // jsdom has none
  window.define = (names, make) => {
    const strangers = names.filter(name => !Object.hasOwn(known, name));
    if (strangers.length > 0) throw new Error(`it asks for ${strangers.join(", ")}, which no such host has`);
    exported = make(...names.map(name => known[name]));
  };
  window.eval(text);
  if (!exported) throw new Error("it defines no module");
  return exported;
}

try {
  const exported = load(readFileSync(process.argv[2], "utf8"));
  console.log(JSON.stringify(Object.keys(exported).filter(name => typeof exported[name] === "function")));
} catch (error) {
  console.error(error.message); // not the whole line of the module in which it came up
  process.exitCode = 1;
}
