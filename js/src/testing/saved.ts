// Saved plans for tests.

/** A plan as plan.save writes it. */
export function savedPlan() {
  return {
    format: "modulekg-plan",
    version: 1,
    params: [1000, 750],
    flops: [2000000, 1500000],
    macs: [1000000, 750000],
    axes: [
      {
        name: "conv1.weight[0]",
        size: 8,
        dropped: [0, 1, 2, 5],
        members: ["conv1.weight[0]", "bn1.weight[0]", "fc.weight[1]", "bn1.bias[0]"]
      },
      { name: "fc.weight[0]", size: 10, dropped: [] as number[], members: ["fc.weight[0]"] }
    ],
    changes: [{ kind: "argument", what: "view(-1, 8) → view(-1, 4)", source: "model.py:12" }],
    attributes: { "conv1.out_channels": [8, 4], "norm.normalized_shape": [{ tuple: [8] }, { tuple: [4] }] },
    tensors: [{ names: ["conv1.weight"], shape: [8, 3, 3, 3], kept: { "0": 0 }, produced: [0] }],
    positions: [[3, 4, 6, 7]]
  };
}
