"""Uses, through the public names alone, what the sample package registers, and prints what came of it as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import modulekg_widgets as mk

loaded_at_import = "mkg_sample" in sys.modules
plan_of = mk.plan  # the first public name
loaded_at_first_use = "mkg_sample.mkg" in sys.modules

from mkg_sample import Net  # noqa: E402

torch.manual_seed(0)
net, x = Net(), torch.randn(5, 3)
graph = mk.trace(net, x)
verified = graph.axes.verify().ok
plan = plan_of(graph, ratio=0.5, importance="sample_last")
kept = net[0].weight.detach()[4:].clone()
scale = net[1].scale.detach()[4:].clone()
bias, last = net[0].bias.detach()[4:], net[2].weight.detach()[:, 4:].clone()
by_hand = torch.nn.functional.linear((x @ kept.T + bias) * scale.sigmoid(), last, net[2].bias.detach())
plan.cut(net)

with mk.Monitor(net, {"Gate": ["SampleOpened"]}) as monitor:
    for step in range(2):
        net(x).square().mean().backward()
        monitor.track(step)

known = mk.KnowledgeGraph()
known.add_model(net, name="net")
written = known.export(Path(sys.argv[1]) / "net.sample")

facts = {
    "loaded": [loaded_at_import, loaded_at_first_use],
    "plugins": [[each.name, each.distribution, each.target, each.error] for each in mk.plugins()],
    "unknown": [str(each) for each in graph.unknown],
    "gate flops": graph.flops().by_operator["mkg_sample::gate"],
    "verified": verified,
    "dropped": {cut.name: cut.dropped for cut in plan.axes},
    "channels": net[1].channels,
    "exact": torch.allclose(net(x), by_hand, atol=1e-6),
    "measured": monitor.get_output()["1"]["SampleOpened"],
    "exported": written.read_text().splitlines(),
    "structures": sorted(data["name"] for _, data in known.to_networkx().nodes(data=True)),
}
print(json.dumps(facts))
