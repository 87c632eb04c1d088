import { afterEach, expect, it } from "vitest";
import { followAddress, showTheme } from "./page";

const themes = () => [...document.body.classList].filter(name => name.startsWith("mkg-theme"));

async function goTo(hash: string): Promise<void> {
  location.hash = hash;
  await new Promise(resolve => setTimeout(resolve, 5)); // the event comes later
}

afterEach(() => {
  location.hash = "";
  showTheme();
});

it("follows the address as it changes", async () => {
  await goTo("#theme=dark");
  followAddress();
  expect(themes()).toEqual(["mkg-theme-dark"]);
  await goTo("#theme=light");
  expect(themes()).toEqual(["mkg-theme-light"]);
});

it.each(["", "#theme=", "#theme=high-contrast", "#theme=dark mkg-x", "#theme=toString", "#dark", "#theme=<i>"])(
  "is as the system has it with %j",
  async hash => {
    followAddress();
    await goTo("#theme=dark");
    await goTo(hash);
    expect(themes()).toEqual([]);
  }
);
