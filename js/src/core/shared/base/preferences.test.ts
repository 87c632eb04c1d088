import { afterEach, describe, expect, it, vi } from "vitest";
import { DEFAULT_LIMITS, isCalm, onPreferences, preferences, setPreferences } from "./preferences";
import { hardLimit, manyNodes, softLimit, tooMany } from "../model/expansion";

afterEach(() => {
  vi.unstubAllGlobals();
  setPreferences({ limits: DEFAULT_LIMITS, calm: false });
});

describe("preferences", () => {
  it("begin as they were before there were any", () => {
    expect(preferences()).toEqual({ limits: { soft: 150, hard: 500 }, calm: false });
  });

  it("set what is drawn at once, and the texts about it", () => {
    setPreferences({ limits: { soft: 20, hard: 60 } });
    expect([softLimit(), hardLimit()]).toEqual([20, 60]);
    expect([manyNodes(), tooMany()].map(text => /\d+/.exec(text)?.[0])).toEqual(["20", "60"]);
  });

  it("never refuse what needs no notice", () => {
    setPreferences({ limits: { soft: 700, hard: 500 } });
    expect(preferences().limits).toEqual({ soft: 700, hard: 700 });
  });

  it("tell who listens, until they stop", () => {
    const heard = vi.fn();
    const stop = onPreferences(heard);
    setPreferences({ calm: true });
    stop();
    setPreferences({ calm: false });
    expect(heard).toHaveBeenCalledTimes(1);
  });

  it("are calm when the system or the settings say so", () => {
    expect(isCalm()).toBe(false);
    setPreferences({ calm: true });
    expect(isCalm()).toBe(true);
    setPreferences({ calm: false });
    vi.stubGlobal("matchMedia", () => ({ matches: true }));
    expect(isCalm()).toBe(true);
  });
});
