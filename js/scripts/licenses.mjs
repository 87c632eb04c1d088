// The licenses of the packages that a bundle is made of: who passes the bundle on has to pass them on.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const FOLDER = /^.*[\\/]node_modules[\\/](?:@[^\\/]+[\\/])?[^\\/]+/;

/** A plugin of esbuild that adds the folder of each package that is read to `folders`. */
export function packagesInto(folders) {
  return {
    name: "packages",
    setup(builder) {
      builder.onLoad({ filter: FOLDER }, ({ path }) => {
        folders.add(FOLDER.exec(path)[0]);
      });
    }
  };
}

/** One text of all their licenses, by name. */
export function licensesOf(folders) {
  return [...folders]
    .sort()
    .map(licenseOf)
    .join(`\n${"-".repeat(80)}\n\n`);
}

function licenseOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find(entry => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} comes without its license: leave it out of the bundle.`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
}
