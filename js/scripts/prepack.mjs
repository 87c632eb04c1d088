// Before npm packs: removes what older sources have left in lib/, and copies the license to where npm looks for it.
import { copyFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { root } from "./files.mjs";

rmSync(join(root, "lib"), { recursive: true, force: true });
copyFileSync(join(root, "..", "LICENSE"), join(root, "LICENSE"));
