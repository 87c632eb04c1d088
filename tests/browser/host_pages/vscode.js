// The manner of VS Code's Jupyter extension: RequireJS gets a path for each module, which the extension has looked up.
"use strict";

define("@jupyter-widgets/base", [], () => base);

/** What is needed of the usual widgets, which are not what is tested: a model and an empty view of any of them. */
const controls = new Proxy({}, {
  get: (_, name) => (String(name).endsWith("View") ? base.DOMWidgetView : base.DOMWidgetModel)
});

const required = module => new Promise((resolve, reject) => requirejs([module], resolve, reject));

const makeLoad = ask => {
  const paths = new Map();
  return async (module, version) => {
    if (module === "@jupyter-widgets/base") return base;
    if (module === "@jupyter-widgets/controls") return controls; // which it has itself
    if (!paths.has(module)) paths.set(module, ask("source", { module, version }));
    const address = await paths.get(module);
    if (!address) throw new Error(`no source of ${module} ${version}`);
    requirejs.config({ paths: { [module]: address.replace(/\.js$/, "") } });
    return required(module);
  };
};

const attach = ({ luminoWidget }, container) => luminoWidget.constructor.attach(luminoWidget, container);

begin({ makeLoad, attach, asBuffer: buffer => new DataView(buffer), hasKernel: true, isEager: true });
