"""TensorBoard's page of graphs; the model reaches it by torch.jit.trace."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from benchmarks.research.rivals.drawing import Drawing, share
from benchmarks.research.rivals.tool import Args, Tool, program
from browser.lab import free_port

# its elements have trees of their own
BOXES = """() => {
  const found = [];
  const look = tree => {
    for (const element of tree.querySelectorAll('*')) {
      if (element.shadowRoot) { look(element.shadowRoot); }
      if (element.matches('g.node')) {
        const shape = element.querySelector(':scope > .nodeshape') ?? element;
        const { x, y, width, height } = shape.getBoundingClientRect();
        const { classList, dataset } = element; // its name is an attribute, or known to d3 alone
        const opens = classList.contains('meta') && !classList.contains('expanded') && shape.querySelector('rect');
        found.push({ id: dataset.name, x: x + width / 2, y: y + height / 2, opens: Boolean(opens) });
      }
    }
  };
  look(document);
  return found;
}"""
# what only carries values on, or brings weights and constants
PASSING = ("prim::ListConstruct", "prim::TupleConstruct")
NO_DATA = ("prim::GetAttr", "prim::Constant")


def prepare() -> object:
    from torch.utils import tensorboard

    return tensorboard


def make(model: nn.Module, args: Args, file: Path) -> Path:
    from torch.utils.tensorboard import SummaryWriter

    path = file.with_suffix(".events")
    with SummaryWriter(str(path)) as writer:
        writer.add_graph(model, args, use_strict_trace=False)  # outputs may be dictionaries
    return path


def drawn(file: Path) -> Drawing:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(file))
    events.Reload()
    nodes = {node.name: node for node in events.Graph().node if node.op not in NO_DATA}

    def sources(name: str) -> Iterator[str]:
        """The boxes whose values come in, through lists and tuples."""
        for given in nodes[name].input:
            if given in nodes:
                yield from sources(given) if nodes[given].op in PASSING else (given,)

    boxes = [name for name, node in nodes.items() if node.op not in PASSING]
    arrows = frozenset((source, box) for box in boxes for source in sources(box))
    return Drawing(
        names={box: nodes[box].op for box in boxes},
        arrows=arrows,
        shaped=share("_output_shapes" in nodes[begin].attr for begin, _ in arrows),
        levels=max(box.count("/") for box in boxes) - 1,  # without the model, and without the operator
        modules={box: ".".join(re.findall(r"\[([^]]*)\]", box)) for box in boxes},
    )


@contextmanager
def served(file: Path) -> Iterator[str]:
    port = free_port()
    with program([sys.executable, "-m", "tensorboard.main", "--logdir", str(file), "--port", str(port)], port):
        yield f"http://127.0.0.1:{port}/#graphs"


TOOL = Tool(
    name="TensorBoard",
    package="tensorboard",
    call="SummaryWriter().add_graph(model, args, use_strict_trace=False)",
    prepare=prepare,
    make=make,
    served=served,
    drawn=drawn,
    boxes=BOXES,
    clicks=2,
)
