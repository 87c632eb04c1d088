// Writes the AMD module for classic notebooks and VS Code, and the file by which they find it.
import { join } from "node:path";
import { bundle, bundleAmd } from "./bundle.mjs";
import { name, packageFolder, source, write } from "./files.mjs";

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
write(join(folder, "index.js"), await bundleAmd(source));
