// The settings: colors, limits and motion of all our views on the page.

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import "../../style/lab.css";
import { DEFAULT_LIMITS, setPreferences } from "../core/shared/preferences";
import { MODULE } from "./version";

const ID = `${MODULE}:settings`; // js/schema/settings.json

/** Classes of the body, which style/lab.css gives the colors of a theme. */
const THEMES = ["light", "dark", "high-contrast"].map(theme => [theme, `mkg-theme-${theme}`] as const);
const CALM = "mkg-reduced-motion";

export const settingsPlugin: JupyterFrontEndPlugin<void> = {
  id: ID,
  description: "Settings of the modulekg-widgets views.",
  autoStart: true,
  optional: [ISettingRegistry],
  activate: (_app: JupyterFrontEnd, registry: ISettingRegistry | null) => {
    // not waited for: the views are there before their settings are, and follow them
    void registry
      ?.load(ID)
      .then(settings => {
        const follow = () => apply(settings);
        settings.changed.connect(follow);
        follow();
      })
      .catch(() => undefined); // a server without our schema: the defaults stay
  }
};

function apply(settings: ISettingRegistry.ISettings): void {
  const { theme, motion, softLimit, hardLimit } = settings.composite;
  const { classList } = document.body;
  THEMES.forEach(([name, className]) => classList.toggle(className, theme === name));
  classList.toggle(CALM, motion === "reduced");
  setPreferences({
    calm: motion === "reduced",
    limits: { soft: whole(softLimit, DEFAULT_LIMITS.soft), hard: whole(hardLimit, DEFAULT_LIMITS.hard) }
  });
}

function whole(value: unknown, otherwise: number): number {
  return typeof value === "number" && Number.isInteger(value) && value > 0 ? value : otherwise;
}
