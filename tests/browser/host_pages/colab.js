// Colab's manner: a module's text is fetched from a content delivery network and evaluated by a loader of its own.
"use strict";

/** A class that can be extended as before there were classes: such ones Colab hands out of @jupyter-widgets/base. */
function extensible(Class) {
  function Extensible(...values) {
    return Reflect.construct(Class, values, new.target ?? this.constructor);
  }
  Extensible.prototype = Object.create(Class.prototype);
  return Object.setPrototypeOf(Extensible, Class);
}

const isClass = value => typeof value === "function" && String(value).startsWith("class ");
const handedOut = Object.entries(base).map(([name, value]) => [name, isClass(value) ? extensible(value) : value]);
const KNOWN = new Map([["@jupyter-widgets/base", Object.fromEntries(handedOut)]]);

function addressOf(module, version) {
  return `${cdn}/${module}@${version.replace(/^\^/, "")}/dist/index.js`;
}

/** What a module exports; it may ask for nothing but what is known. */
async function evaluated(module, version) {
  const address = addressOf(module, version);
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  let exported;
  const define = (needed, factory) => {
    const unknown = needed.filter(name => !KNOWN.has(name));
    if (unknown.length > 0) throw new Error(`${module} asks for ${unknown}`);
    exported = factory.apply(
      window,
      needed.map(name => KNOWN.get(name))
    );
  };
  new Function("define", `${await answer.text()}\n//# sourceURL=${address}`).call({ define }, define);
  return exported;
}

const modules = new Map();

function load(module, version) {
  if (KNOWN.has(module)) return Promise.resolve(KNOWN.get(module));
  if (!modules.has(module)) modules.set(module, evaluated(module, version));
  return modules.get(module);
}

/** Colab tells a view by hand that it is on the page. */
function attach(view, container) {
  const tell = type => view.luminoWidget.processMessage({ type, isConflatable: false, conflate: () => false });
  tell("before-attach");
  container.append(view.el);
  tell("after-attach");
}

begin({ makeLoad: () => load, attach, asBuffer: buffer => new Uint8Array(buffer), hasKernel: false, isEager: false });
