import { afterEach, describe, expect, it } from "vitest";
import { KeyHelp } from "./key_help";

const press = (target: Element, key: string) =>
  target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));

afterEach(() => document.body.replaceChildren());

describe("the keys and gestures", () => {
  const open = () => {
    const [host, before] = [document.createElement("div"), document.createElement("button")];
    document.body.append(before, host);
    before.focus();
    const help = new KeyHelp(host);
    help.toggle();
    const dialog = host.querySelector<HTMLElement>("[role=dialog]") as HTMLElement;
    return { help, dialog, before, host };
  };

  it("are a dialog that takes the focus, and lists keys and badges", () => {
    const { dialog } = open();
    expect([dialog.hidden, dialog.getAttribute("aria-label")]).toEqual([false, "Keys and gestures"]);
    expect(document.activeElement?.classList.contains("mkg-close")).toBe(true);
    expect([...dialog.querySelectorAll("kbd")].map(({ textContent }) => textContent)).toEqual(
      expect.arrayContaining(["?", "Shift+F", "Shift+T", "Wheel after a click, Ctrl+wheel"])
    );
    expect(dialog.textContent).toContain("residual block");
  });

  it("go with Escape, by the button and when asked for again; the focus is where it was", () => {
    for (const close of [
      ({ dialog }: ReturnType<typeof open>) => void press(dialog, "Escape"),
      ({ dialog }: ReturnType<typeof open>) => dialog.querySelector("button")?.click(),
      ({ help }: ReturnType<typeof open>) => help.toggle()
    ]) {
      const opened = open();
      close(opened);
      expect([opened.dialog.hidden, document.activeElement]).toEqual([true, opened.before]);
      document.body.replaceChildren();
    }
  });

  it("keep the keys to themselves", () => {
    const { dialog, host } = open();
    const heard: string[] = [];
    host.addEventListener("keydown", ({ key }) => heard.push(key));
    press(dialog, "f");
    expect([heard, dialog.hidden]).toEqual([[], false]);
  });
});
