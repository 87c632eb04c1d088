// Where the scripts read and write.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
export const source = join(root, "src");
export const packageFolder = join(root, "..", "modulekg_widgets");
export const { name, version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

export function write(file, text) {
  mkdirSync(dirname(file), { recursive: true });
  if (!existsSync(file) || readFileSync(file, "utf8") !== text) {
    writeFileSync(file, text); // unchanged files keep their time, so watchers stay quiet
  }
}
