import { describe, expect, it } from "vitest";
import { container, leaf, lineOf, payloadOf, resnet } from "../../testing/payloads";
import { measurer } from "../shared/base/canvas";
import { Hierarchy } from "../shared/model/hierarchy";
import { GraphStore } from "../shared/model/graph_store";
import { LayoutClient } from "../layout/client";
import { Layouter } from "../layout/layouter";
import type { LayoutResult } from "../layout/types";
import type { Scene } from "./scene/scene";
import { SceneLayout } from "./scene_layout";

const canvas = (clientWidth: number, clientHeight: number) => ({ clientWidth, clientHeight }) as HTMLElement;

/** A model on a canvas, drawn when it is asked for. */
function drawing(width = 760, height = 600) {
  const h = new Hierarchy(resnet());
  const store = new GraphStore({ expanded: ["layer1", "layer2", "layer3", "layer4"] });
  const layouter = new Layouter();
  const sceneLayout = new SceneLayout(h, store, measurer(), new LayoutClient(), "hierarchy", false);
  sceneLayout.fill(canvas(width, height));
  const draw = () => {
    const scene = sceneLayout.scene();
    const layout = layouter.run(sceneLayout.request(scene));
    sceneLayout.remember(scene, layout);
    return { scene, layout };
  };
  const toggle = (path: string) => {
    const open = store.get("expanded");
    store.set("expanded", open.includes(path) ? open.filter(other => other !== path) : [...open, path]);
  };
  return { sceneLayout, store, draw, toggle };
}

const rowsOf = ({ scene, layout }: { scene: Scene; layout: LayoutResult }) =>
  layout.groups[layout.groups.length - 1].rows.map(place => scene.nodes[place].id);

describe("Scenery", () => {
  it("asks for the rows of the drawing before, by what began them", () => {
    const { sceneLayout, draw, toggle } = drawing();
    expect(sceneLayout.request(sceneLayout.scene()).groups.every(({ rows }) => rows === undefined)).toBe(true);
    const rows = rowsOf(draw());
    expect(rows.length).toBeGreaterThan(1);
    toggle("layer4.1");
    const scene = sceneLayout.scene();
    const { groups } = sceneLayout.request(scene);
    expect(groups[groups.length - 1].rows?.map(place => scene.nodes[place].id)).toEqual(rows);
    expect(sceneLayout.isLikeBefore).toBe(true);
    expect(rowsOf(draw())).toEqual(rows);
  });

  it("comes back to the same drawing when a card is opened and closed", () => {
    const { draw, toggle } = drawing();
    const before = draw();
    toggle("layer4.1");
    expect(rowsOf(draw())).toEqual(rowsOf(before));
    toggle("layer4.1");
    expect(draw().layout).toEqual(before.layout);
  });

  it("asks for rows of any kind on a canvas of another size, and when it is told to forget them", () => {
    const { sceneLayout, draw } = drawing();
    draw();
    sceneLayout.fill(canvas(765, 600)); // a scroll bar
    sceneLayout.request(sceneLayout.scene());
    expect(sceneLayout.isLikeBefore).toBe(true);
    sceneLayout.forget();
    sceneLayout.request(sceneLayout.scene());
    expect(sceneLayout.isLikeBefore).toBe(false);
    draw();
    sceneLayout.fill(canvas(1200, 600));
    sceneLayout.request(sceneLayout.scene());
    expect(sceneLayout.isLikeBefore).toBe(false);
  });

  it("opens at first what modules ran in, and leaves closed what called none of its own", () => {
    const net = container("Net", [
      ["attention", container("Attention", [["out", leaf("Linear")]])],
      ["mlp", container("Mlp", [["act", leaf("ReLU")]])]
    ]);
    const flow = lineOf([1, 4]); // the attention by itself, and the layer in the other
    flow.calls = {
      node: [0, 1, 3, 4],
      parent: [-1, 0, 0, 2],
      inputs: [[0], [0], [1], [1]],
      outputs: [[2], [1], [2], [2]]
    };
    flow.steps.call = [1, 3];
    const store = new GraphStore({ openToFit: true });
    const h = new Hierarchy({ ...payloadOf(net), traced: true, flow });
    const sceneLayout = new SceneLayout(h, store, measurer(), new LayoutClient(), "hierarchy", false);
    sceneLayout.fill(canvas(760, 600));
    sceneLayout.openToFit();
    expect(store.get("expanded")).toEqual(["mlp"]);
  });
});
