// Writes the AMD module: for classic notebooks and VS Code, with the file by which they find it, and for the networks that
// deliver packages of npm.
import { join } from "node:path";
import { bundle, bundleAmd } from "./bundle.mjs";
import { name, packageFolder, root, source, write } from "./files.mjs";
import { licensesOf, packagesInto } from "./licenses.mjs";

const folder = join(packageFolder, "nbextension");
const start = (await bundle(join(source, "classic.ts"))).trim();

// VS Code reads this file as text, and looks for this very form
const extension = `// Tells the module loader of the notebook where the widgets are.
define(function () {
  "use strict";
  window["requirejs"].config({
    map: { "*": { "${name}": "nbextensions/${name}/index" } }
  });
  return {
    load_ipython_extension: function () {
      ${start}
    }
  };
});
`;

write(join(folder, "extension.js"), extension);

const packages = new Set();
const module = await bundleAmd(source, [packagesInto(packages)]);
const licenses = licensesOf(packages);
for (const target of [folder, join(root, "dist")]) {
  write(join(target, "index.js"), module);
  write(join(target, "third-party-licenses.txt"), licenses);
}
