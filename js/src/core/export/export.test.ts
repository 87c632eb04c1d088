import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { foreignParts, hostileTexts, press, smallNet, storeOf } from "../../testing/sample";
import {
  quoted,
  pictureToDot,
  fileName,
  printable,
  type GraphPicture,
  type PictureNode,
  pictureToSvg
} from "./graph_picture";
import { graphPage, jsonForScript, PAGE_ID, PAGE_VERSION, standaloneHtml } from "./html";
import { ExportMenu, type Picture } from "./menu";

const node = (id: string, more: Partial<PictureNode> = {}): PictureNode => ({
  id,
  label: id,
  sublabel: "",
  x: 0,
  y: 0,
  width: 120,
  height: 40,
  color: null,
  kind: "module",
  ...more
});

const scene: GraphPicture = {
  nodes: [
    node("\u0000input", { label: "input", kind: "pseudo" }),
    node("layer1", { kind: "group", y: 150, width: 300, height: 200, sublabel: "Sequential" }),
    node("layer1.0", { kind: "fold", y: 150, label: "0", sublabel: "Block ×4", color: "#440154" }),
    node("fc", { y: 320, color: "#fde725" })
  ],
  edges: [
    { source: "\u0000input", target: "layer1", kind: "order", label: "" },
    { source: "layer1", target: "fc", kind: "data", label: "1×512" },
    { source: "fc", target: "nowhere", kind: "order", label: "" }
  ]
};

const HOSTILE = [
  ...hostileTexts(),
  'a"b\\',
  "two\nlines",
  "bell\u0007",
  "lone \ud800 half",
  "\\N \\G \\l",
  "&amp; &#39;",
  "]]>",
  ""
];

function parseXml(text: string): Document {
  const parsed = new DOMParser().parseFromString(text, "application/xml");
  expect(parsed.querySelector("parsererror")?.textContent ?? "").toBe("");
  return parsed;
}

describe("svg", () => {
  it("draws the scene", () => {
    const text = pictureToSvg(scene, "Net");
    const picture = parseXml(text);
    expect(Array.from(picture.querySelectorAll("text"), element => element.textContent)).toEqual([
      "layer1Sequential",
      "1×512",
      "input",
      "0",
      "Block ×4",
      "fc"
    ]);
    expect(picture.querySelectorAll("path[stroke-dasharray]")).toHaveLength(1);
    expect(text).not.toMatch(/href|url\((?!#arrow)|@import|https?:\/\/(?!www\.w3\.org\/2000\/svg)/);
    expect(text).toContain('fill="#440154"');
    expect(text).not.toContain("NaN");
  });

  it("draws nothing too", () => {
    expect(parseXml(pictureToSvg({ nodes: [], edges: [] }, "")).documentElement.getAttribute("viewBox")).toBe(
      "-24 -24 48 48"
    );
  });

  it.each(HOSTILE)("shows %j verbatim and nothing else", hostile => {
    const all: GraphPicture = {
      nodes: [
        node(hostile, { sublabel: hostile }),
        node("b", { kind: "group", label: hostile, width: 400, height: 300 })
      ],
      edges: [{ source: "b", target: hostile, kind: "data", label: hostile }]
    };
    const picture = parseXml(pictureToSvg(all, hostile));
    const names = new Set(Array.from(picture.querySelectorAll("*"), element => element.tagName));
    for (const name of names)
      expect(["svg", "title", "defs", "marker", "path", "rect", "g", "text", "tspan"]).toContain(name);
    expect(foreignParts(picture)).toEqual([]);
    const texts = Array.from(picture.querySelectorAll("text, title"), element => element.textContent);
    expect(new Set(texts)).toEqual(new Set([printable(hostile), "b"]));
  });
});

describe("dot", () => {
  it("makes clusters and edges between them", () => {
    const text = pictureToDot(scene, "Net");
    expect(text).toContain('n0 -> n1 [lhead="cluster_n1", style=dashed];');
    expect(text).toContain('n1 -> n3 [ltail="cluster_n1", label="1×512"];');
    expect(text.indexOf('subgraph "cluster_n1"')).toBeLessThan(text.indexOf("n2 [label"));
    expect(text).toContain(
      'n2 [label="0\\nBlock ×4", tooltip="layer1.0", fillcolor="#440154", fontcolor="#ffffff", peripheries=2];'
    );
  });

  it("quotes", () => {
    expect(quoted('a"b\\c\nd&')).toBe('"a\\"b\\\\c\\nd&amp;"');
    expect(quoted("\u0000\ud800")).toBe('"\ufffd\ufffd"');
  });

  it("writes labels as Python does, which reads the same file", () => {
    const file = join(dirname(fileURLToPath(import.meta.url)), "../../../../tests/cases/dot_labels.json");
    for (const [label, written] of JSON.parse(readFileSync(file, "utf8")) as [string, string][])
      expect(quoted(label)).toBe(written);
  });

  const hasGraphviz = spawnSync("dot", ["-V"]).status === 0;

  it.skipIf(!hasGraphviz).each(HOSTILE.filter(Boolean))(
    "shows %j in Graphviz as it is",
    hostile => {
      const text = pictureToDot({ nodes: [node(hostile), node("b")], edges: [] }, hostile);
      const drawn = spawnSync("dot", ["-Tsvg"], { input: text, encoding: "utf8" });
      expect(drawn.stderr).toBe("");
      const picture = parseXml(drawn.stdout.replace(/<!DOCTYPE[^>]*>/, ""));
      const shown = Array.from(picture.querySelectorAll("text"), element =>
        element.textContent?.replace(/\u00a0/g, " ")
      );
      expect(shown).toEqual([
        ...printable(hostile, true)
          .split("\n")
          .map(line => line.trimEnd()),
        "b"
      ]);
    },
    20_000
  );
});

describe("html", () => {
  it.each(HOSTILE)("carries %j without a way out of the script element", hostile => {
    const { payload } = smallNet();
    const named = {
      ...payload,
      title: hostile,
      nodes: { ...payload.nodes, name: payload.nodes.name.map((name, i) => (i === 1 ? hostile : name)) }
    };
    const saved = graphPage(named, storeOf({ selected: hostile }));
    const page = standaloneHtml(hostile, saved, 'console.log("</script><script>window.__xss=1")', "abc");
    const parsed = new DOMParser().parseFromString(page, "text/html");
    expect(parsed.querySelectorAll("script")).toHaveLength(2);
    expect(parsed.querySelectorAll("*")).toHaveLength(11);
    expect(parsed.title).toBe(printable(hostile).trim().replace(/\s+/g, " "));
    const data: unknown = JSON.parse(parsed.getElementById(PAGE_ID)?.textContent ?? "");
    expect(data).toEqual(saved);
    expect(data).toMatchObject({
      schema_version: PAGE_VERSION,
      views: ["graph"],
      widgets: [{ kind: "ModelGraph", id: "graph", state: { payload: named, selected: hostile, color_by: "none" } }]
    });
  });

  it("admits its own script only", () => {
    const page = standaloneHtml("Net", graphPage(smallNet().payload, storeOf()), "start()", "abc");
    const policy = new DOMParser()
      .parseFromString(page, "text/html")
      .querySelector("meta[http-equiv]")
      ?.getAttribute("content");
    expect(policy).toContain("default-src 'none'; script-src 'nonce-abc';");
    expect(policy).not.toMatch(/unsafe-eval|https?:|\*/);
  });

  it("escapes what ends a script", () => {
    expect(jsonForScript("</script><!--\u2028")).toBe('"\\u003c/script\\u003e\\u003c!--\\u2028"');
  });
});

it.each([
  ["ResNet", "ResNet.svg"],
  ["../../etc/passwd", "etc_passwd.svg"],
  ["a/b\\c:d", "a_b_c_d.svg"],
  ["", "model.svg"],
  ["…", "model.svg"],
  ["x".repeat(500), `${"x".repeat(80)}.svg`],
  ["name\u202efdp.exe", "name_fdp.exe.svg"]
])("file name of %j", (title, name) => expect(fileName(title, "svg")).toBe(name));

describe("menu", () => {
  let host: HTMLElement;
  let saved: { name: string; blob: Blob }[];
  const picture: Picture = { scene: () => scene, exportPng: () => Promise.resolve(new Blob(["png"])) };

  beforeEach(() => {
    host = document.createElement("div");
    document.body.append(host);
    saved = [];
    let blob = new Blob();
    URL.createObjectURL = (made: Blob | MediaSource) => {
      blob = made as Blob;
      return "blob:made";
    };
    URL.revokeObjectURL = () => undefined;
    vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (this: HTMLAnchorElement) {
      saved.push({ name: this.download, blob });
    });
  });

  afterEach(() => {
    host.remove();
    vi.restoreAllMocks();
  });

  const choose = async (format: string, isDone = () => saved.length > 0) => {
    (host.querySelector(".mkg-export-button") as HTMLElement).click();
    (host.querySelector(`[data-mkg-export="${format}"]`) as HTMLElement).click();
    await vi.waitUntil(isDone, { timeout: 4000, interval: 10 });
  };

  it.each([
    ["svg", "image/svg+xml"],
    ["png", "image/png"],
    ["dot", "text/vnd.graphviz"],
    ["json", "application/json"],
    ["html", "text/html"]
  ])("saves %s", async (format, type) => {
    const menu = new ExportMenu(host, smallNet(), storeOf(), { graph: () => picture });
    await choose(format);
    expect(saved.map(file => file.name)).toEqual([`Net.${format}`]);
    expect(saved[0].blob.type.split(";")[0]).toBe(type);
    menu.dispose();
    expect(host.childElementCount).toBe(0);
  });

  it("saves the payload itself as JSON", async () => {
    const menu = new ExportMenu(host, smallNet(), storeOf(), { graph: () => picture });
    await choose("json");
    const reader = new FileReader();
    reader.readAsText(saved[0].blob);
    await vi.waitUntil(() => reader.result !== null);
    expect(JSON.parse(String(reader.result))).toEqual(smallNet().payload);
    menu.dispose();
  });

  it("says so when there is no picture, or when it fails", async () => {
    const store = storeOf();
    const shown: { graph?: Picture } = {};
    const menu = new ExportMenu(host, smallNet(), store, { graph: () => shown.graph });
    await choose("svg", () => store.get("notice").includes("not ready yet"));
    shown.graph = { ...picture, exportPng: () => Promise.reject(new Error("<img src=x>")) };
    await choose("png", () => store.get("notice") === "The PNG file could not be created. Try again.");
    expect(saved).toEqual([]);
    menu.dispose();
  });

  it("works from the keyboard", () => {
    const menu = new ExportMenu(host, smallNet(), storeOf(), { graph: () => picture });
    const opener = host.querySelector(".mkg-export-button") as HTMLElement;
    opener.click();
    expect(opener.getAttribute("aria-expanded")).toBe("true");
    expect((document.activeElement as HTMLElement).dataset.mkgExport).toBe("svg");
    press(document.activeElement as Element, "ArrowUp");
    expect((document.activeElement as HTMLElement).dataset.mkgExport).toBe("html");
    press(document.activeElement as Element, "Escape");
    expect(opener.getAttribute("aria-expanded")).toBe("false");
    expect(document.activeElement).toBe(opener);
    opener.click();
    document.body.dispatchEvent(new Event("pointerdown", { bubbles: true }));
    expect(opener.getAttribute("aria-expanded")).toBe("false");
    menu.dispose();
  });
});
