// Self-contained scripts from entry files.
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { experiments } from "@rspack/core";
import { build } from "esbuild";

// A script that is embedded in another cannot carry that one: inside it, the page's source is empty.
const withoutItself = {
  name: "without-itself",
  setup(builder) {
    builder.onResolve({ filter: /generated\/standalone_source$/ }, () => ({ path: "empty", namespace: "empty" }));
    builder.onLoad({ filter: /.*/, namespace: "empty" }, () => ({ contents: 'export const STANDALONE_JS = "";' }));
  }
};

const ADD_STYLE = `export function add(textContent) {
  document.head.append(Object.assign(document.createElement("style"), { textContent }));
}`;

// An imported style sheet takes effect with the first use of its module, as it does in JupyterLab.
const styles = {
  name: "styles",
  setup(builder) {
    builder.onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { code } = await builder.esbuild.transform(await readFile(path, "utf8"), { loader: "css", minify: true });
      const contents = `import { add } from "styles:add"; add(${JSON.stringify(code.trim())});`;
      return { contents, loader: "js" };
    });
    builder.onResolve({ filter: /^styles:add$/ }, ({ path }) => ({ path, namespace: "styles" }));
    builder.onLoad({ filter: /.*/, namespace: "styles" }, () => ({ contents: ADD_STYLE }));
  }
};

const layoutCode = source => bundle(join(source, "core", "layout", "worker.ts"), { globalName: "layout" });

/** The script of the layout worker. */
export async function bundleWorker(source) {
  return `${await layoutCode(source)}layout.listen();`;
}

// A page needs the layout twice, in its own script and in the worker's: one function has it, whose text is the worker's.
const layoutOnce = source => ({
  name: "layout-once",
  setup(builder) {
    const modules = {
      code: async () => `export function code() { ${await layoutCode(source)} return layout; }`,
      page: () => 'import { code } from "layout:code"; export const { Layouter } = code();',
      worker: () => 'import { code } from "layout:code"; export const LAYOUT_WORKER = `(${code})().listen()`;'
    };
    const once = path => ({ path, namespace: "layout" });
    builder.onResolve({ filter: /^layout:code$/ }, () => once("code"));
    builder.onResolve({ filter: /^\.\/layouter$/ }, () => once("page"));
    builder.onResolve({ filter: /generated\/layout_worker_source$/ }, () => once("worker"));
    builder.onLoad({ filter: /.*/, namespace: "layout" }, async ({ path }) => ({ contents: await modules[path]() }));
  }
});

// Simulations here are stepped by hand and heard by nobody: what d3-force has for that needs neither clock nor listeners.
const stepped = {
  name: "stepped",
  setup(builder) {
    const modules = {
      "d3-timer": "export const timer = () => ({ restart() {}, stop() {} });",
      "d3-dispatch": "export const dispatch = () => ({ on() {}, call() {} });"
    };
    builder.onResolve({ filter: /^d3-(timer|dispatch)$/ }, ({ path }) => ({ path, namespace: "stepped" }));
    builder.onLoad({ filter: /.*/, namespace: "stepped" }, ({ path }) => ({ contents: modules[path] }));
  }
};

export async function bundle(entry, { plugins = [], ...options } = {}) {
  const result = await build({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    format: "iife",
    target: "es2021",
    charset: "ascii",
    legalComments: "none",
    plugins: [styles, ...plugins],
    write: false,
    ...options
  });
  return embeddable(result.outputFiles[0].text);
}

const embeddable = code => code.replaceAll("</script", "<\\/script");

/** With escapes for all letters beyond ASCII: a browser keeps such a script in half the memory, and compiles it sooner. */
const narrow = code =>
  code.replace(/[^\0-\x7f]/g, letter => {
    const digits = letter.charCodeAt(0).toString(16);
    return digits.length > 2 ? `\\u${digits.padStart(4, "0")}` : `\\x${digits}`;
  });

/** What esbuild has minified, smaller by a fiftieth: every saved page carries the script. */
async function minified(script) {
  const options = {
    ecma: 2021,
    compress: { ecma: 2021, passes: 3 },
    mangle: true,
    format: { asciiOnly: false, comments: false }
  };
  return narrow(embeddable((await experiments.swc.minify(script, options)).code));
}

/** The script of saved pages, in which models and views live without Jupyter; `isLive`: also of those in another page. */
export async function bundlePage(source, isLive = false) {
  const script = await bundle(`${source}/standalone.ts`, {
    alias: { "@jupyter-widgets/base": `${source}/standalone/base.ts` },
    define: { WITH_LIVE: String(isLive) },
    mangleProps: /^(disposers|followKernel|isContainer|sceneLayout)$/, // often used, known to nothing outside
    plugins: [withoutItself, stepped, layoutOnce(source)]
  });
  return minified(script);
}

/** An AMD module of all models and views, for hosts that know no JupyterLab extensions. */
export async function bundleAmd(source, plugins) {
  const external = "@jupyter-widgets/base";
  const code = await bundle(`${source}/nbextension.ts`, { format: "cjs", external: [external], plugins });
  const open = `define(["${external}"],function(base){var require=function(){return base},module={exports:{}},exports=module.exports;`;
  return `${open}${code}\nreturn module.exports});\n`;
}

/** The code of an anywidget: an ES module that holds the script of live pages. */
export async function bundleAnywidget(source) {
  const contents = `export const STANDALONE_JS = ${JSON.stringify(await bundlePage(source, true))};`;
  const live = {
    name: "live",
    setup(builder) {
      builder.onLoad({ filter: /generated.standalone_source\.ts$/ }, () => ({ contents }));
    }
  };
  return bundle(`${source}/marimo.ts`, { format: "esm", plugins: [live] });
}
