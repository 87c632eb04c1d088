"""What modulekg-widgets loads: the five registrations."""

from __future__ import annotations

import modulekg_widgets as mk
from mkg_sample import Gate


@mk.axis_rule("mkg_sample::gate", flops=lambda x, scale: 4 * x.numel())
def gate(call):
    x, scale = call.axes(call["x"]), call.axes(call["scale"])
    call.unify(x[-1], scale[0])
    return x


@mk.adapter(Gate)
def gate_sizes(sizes):
    return {"channels": sizes.parameter("scale", 0)}


@mk.importance("sample_last")
def last(group):
    return list(range(group.size))


@mk.metric("SampleOpened", needs="ForwardOutput")
def opened(output):
    return (output > 0).float().mean()


@mk.exporter("sample")
def names(graph):
    yield from (data["name"] for _, data in graph.nodes(data=True))
