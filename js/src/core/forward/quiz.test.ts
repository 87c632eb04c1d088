import { describe, expect, it } from "vitest";
import { golden, storeWith } from "../../testing/forward";
import { Forward } from "./payload";
import { RevealedShapes, parseShape, Quiz } from "./quiz";

function quizOn(hideShapes = true) {
  const forward = new Forward(golden("residual").payload);
  const store = storeWith({ hideShapes });
  const found = new RevealedShapes();
  return { forward, store, found, quiz: new Quiz(forward, store, found) };
}

describe("parseShape", () => {
  it.each<[string, readonly number[] | null]>([
    ["1, 64, 56, 56", [1, 64, 56, 56]],
    ["(1, 64)", [1, 64]],
    ["[3,]", [3]],
    ["1x2×3*4", [1, 2, 3, 4]],
    [" 5 6 ", [5, 6]],
    ["torch.Size([2, 3])".replace("(", " ").replace(")", ""), [2, 3]],
    ["()", []],
    ["scalar", []],
    ["", null],
    ["many", null],
    ["1.5, 2", null],
    ["-1, 2", null],
    ["99999999999999999999", null]
  ])("reads %s", (text, sizes) => {
    expect(parseShape(text)).toEqual(sizes);
  });
});

describe("Quiz", () => {
  it("hides nothing when it is off", () => {
    const { quiz, forward } = quizOn(false);
    expect([0, 1, 2, 3].every(i => quiz.showsInput(forward.step(i)) && quiz.showsOutput(forward.step(i)))).toBe(true);
  });

  it("shows the input of the model, and what comes of answers", () => {
    const { quiz, forward } = quizOn();
    const inputs = () => [0, 1, 2, 3].map(index => quiz.showsInput(forward.step(index)));
    expect(inputs()).toEqual([true, true, false, false]);
    expect([0, 1, 2, 3].some(index => quiz.showsOutput(forward.step(index)))).toBe(false);
    quiz.guess(forward.step(1), "2,2,2,2");
    expect(inputs()).toEqual([true, true, true, false]);
    quiz.guess(forward.step(2), "2,2,2,2");
    expect(inputs()).toEqual([true, true, true, true]); // the sum after the first ReLU
    quiz.guess(forward.step(3), "2,2,2,2");
    expect(quiz.showsOutput(forward.step(0))).toBe(true); // the same value
  });

  it("counts the first guess of each value", () => {
    const { quiz, forward, store } = quizOn();
    expect(quiz.guess(forward.step(1), "2, 2, 2, 3")).toEqual({
      right: false,
      text: "Incorrect: 3 of 4 sizes match."
    });
    expect(quiz.guess(forward.step(1), "9, 9, 9, 9")?.text).toBe("Incorrect: 0 of 4 sizes match.");
    expect(quiz.guess(forward.step(1), "2, 2")?.text).toBe("Incorrect: different number of dimensions.");
    expect(quiz.guess(forward.step(1), "what?")).toBeNull();
    expect(store.get("quiz")).toEqual({ asked: 1, right: 0 });
    expect(quiz.guess(forward.step(1), "2, 2, 2, 2")).toEqual({ right: true, text: "Correct." });
    expect(store.get("quiz")).toEqual({ asked: 1, right: 0 });
    quiz.guess(forward.step(2), "(2,2,2,2)");
    expect(store.get("quiz")).toEqual({ asked: 2, right: 1 });
    quiz.giveUp(forward.step(3));
    expect(store.get("quiz")).toEqual({ asked: 3, right: 1 });
    expect(quiz.showsOutput(forward.step(3))).toBe(true);
  });

  it("begins anew", () => {
    const { quiz, forward, store, found } = quizOn();
    let changes = 0;
    found.onChange(() => (changes += 1));
    quiz.guess(forward.step(1), "2,2,2,2");
    quiz.restart();
    expect([store.get("quiz"), quiz.showsOutput(forward.step(1)), changes]).toEqual([{ asked: 0, right: 0 }, false, 2]);
  });

  it("forgets the answers of another run, not those of another view", () => {
    const { quiz, forward, store, found } = quizOn();
    quiz.guess(forward.step(1), "2,2,2,2");
    expect(new Quiz(forward, store, found).showsOutput(forward.step(1))).toBe(true);
    const next = new Forward({ ...golden("residual").payload, run: 2 });
    expect(new Quiz(next, store, found).showsOutput(next.step(1))).toBe(false);
  });
});
