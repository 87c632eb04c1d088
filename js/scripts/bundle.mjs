// One self-contained script from an entry file.
import { build } from "esbuild";

// The page cannot carry its own source: inside it, that module is empty.
const withoutItself = {
  name: "without-itself",
  setup(builder) {
    builder.onResolve({ filter: /generated\/standalone_source$/ }, () => ({ path: "empty", namespace: "empty" }));
    builder.onLoad({ filter: /.*/, namespace: "empty" }, () => ({ contents: 'export const STANDALONE_JS = "";' }));
  }
};

export async function bundle(entry) {
  const result = await build({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    format: "iife",
    target: "es2021",
    charset: "ascii",
    legalComments: "none",
    loader: { ".css": "text" },
    logOverride: { "ignored-bare-import": "silent" }, // the page takes its style sheets as text
    plugins: [withoutItself],
    write: false
  });
  return result.outputFiles[0].text.replaceAll("</script", "<\\/script");
}
