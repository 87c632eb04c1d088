import { afterEach, describe, expect, it, vi } from "vitest";
import { DEFAULT_LIMITS, isMotionReduced, nodeLimits, onSettings, applySettings } from "./settings";
import { nodeLimit, manyNodes, noticeLimit, tooMany } from "../model/expansion";

afterEach(() => {
  vi.unstubAllGlobals();
  applySettings({ limits: DEFAULT_LIMITS, reducedMotion: false });
});

describe("settings", () => {
  it("begin as they were before there were any", () => {
    expect(nodeLimits()).toEqual({ notice: 150, refusal: 500 });
    expect(isMotionReduced()).toBe(false);
  });

  it("set what is drawn at once, and the texts about it", () => {
    applySettings({ limits: { notice: 20, refusal: 60 } });
    expect([noticeLimit(), nodeLimit()]).toEqual([20, 60]);
    expect([manyNodes(), tooMany()].map(text => /\d+/.exec(text)?.[0])).toEqual(["20", "60"]);
  });

  it("never refuse what needs no notice", () => {
    applySettings({ limits: { notice: 700, refusal: 500 } });
    expect(nodeLimits()).toEqual({ notice: 700, refusal: 700 });
  });

  it("tell who listens, until they stop", () => {
    const heard = vi.fn();
    const stop = onSettings(heard);
    applySettings({ reducedMotion: true });
    stop();
    applySettings({ reducedMotion: false });
    expect(heard).toHaveBeenCalledTimes(1);
  });

  it("are calm when the system or the settings say so", () => {
    expect(isMotionReduced()).toBe(false);
    applySettings({ reducedMotion: true });
    expect(isMotionReduced()).toBe(true);
    applySettings({ reducedMotion: false });
    vi.stubGlobal("matchMedia", () => ({ matches: true }));
    expect(isMotionReduced()).toBe(true);
  });
});
