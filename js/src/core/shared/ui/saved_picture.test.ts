// @vitest-environment jsdom
import { describe, expect, it } from "vitest";
import { pictureAddress, pictureElement, VIEW_TYPE } from "./saved_picture";
import { STATIC_PREVIEW } from "../../words/shared";

const SVG = '<svg class="mkg-saved-picture" xmlns="http://www.w3.org/2000/svg"><text>50 % of "a" # b</text></svg>';
const VIEW = { [VIEW_TYPE]: { model_id: "1" } };
const text = (address: string | null) =>
  decodeURIComponent((address ?? "").replace("data:image/svg+xml;charset=utf-8,", ""));

describe("the address of a saved picture", () => {
  it("holds the whole picture, also from a list of lines", () => {
    expect(text(pictureAddress({ ...VIEW, "image/svg+xml": SVG }))).toBe(SVG);
    expect(text(pictureAddress({ ...VIEW, "image/svg+xml": SVG.split(/(?=<text)/) }))).toBe(SVG);
  });

  it("leaves the words out that the page writes below it", () => {
    const given = SVG.replace("</svg>", `<text class="mkg-words" x="16" y="9">${STATIC_PREVIEW}</text></svg>`);
    expect(text(pictureAddress({ ...VIEW, "image/svg+xml": given }))).toBe(SVG);
  });

  it.each([
    {},
    VIEW,
    { ...VIEW, "image/svg+xml": "<svg></svg>" }, // somebody else's widget
    { ...VIEW, "image/svg+xml": 7 },
    { ...VIEW, "image/svg+xml": [7, {}] },
    { ...VIEW, "image/png": "AAAA" },
    { "image/svg+xml": SVG } // no widget
  ])("is none for %j", data => expect(pictureAddress(data)).toBeNull());

  it("survives half characters", () => {
    expect(text(pictureAddress({ ...VIEW, "image/svg+xml": `${SVG}\ud800` }))).toBe(`${SVG}\ufffd`);
  });
});

it("is shown as an image, with words as text", () => {
  const figure = pictureElement("data:image/svg+xml,x", `<b>${STATIC_PREVIEW}</b>`);
  expect(figure.querySelector("img")?.getAttribute("src")).toBe("data:image/svg+xml,x");
  expect(figure.querySelector("b")).toBeNull();
  expect(figure.textContent).toBe(`<b>${STATIC_PREVIEW}</b>`);
});
