"""What reads a layer's output in one forward pass, and nothing else does."""

from __future__ import annotations

from modulekg_widgets.engine.errors import shown
from modulekg_widgets.engine.torch_runtime.hooks import has_hooks
from modulekg_widgets.engine.tracing.dataflow import Dataflow, DataNode, ModuleCall, ModuleNode


class Flow:
    """A traced forward pass, asked about modules that follow each other."""

    def __init__(self, graph: Dataflow) -> None:
        self.graph = graph
        # by object: a shared module has one node under several paths
        self.modules = list({id(node): node for node in graph.modules.values()}.values())
        self._escaped = {node for node, _ in graph.escaped}
        self._watched: dict[DataNode, str] = {}
        self._readers: dict[DataNode, list[ModuleNode]] = {}
        for module in self.modules:
            for node in module.inputs:
                self._readers.setdefault(node, []).append(module)
            if has_hooks(module.module):
                for node in (*module.inputs, *module.outputs):
                    self._watched.setdefault(node, module.path)

    def why_not_once(self, module: ModuleNode) -> str:
        """Why a module is no function of one tensor that is called once; empty when it is."""
        if len(module.calls) != 1:
            return f"{shown(module.path)} is called {len(module.calls)} times"
        call = module.calls[0]
        if len(call.inputs) != 1 or len(call.outputs) != 1:
            return f"{shown(module.path)} takes {len(call.inputs)} tensors and gives {len(call.outputs)}"
        return ""

    def why_read_outside(self, module: ModuleNode) -> str:
        """Which of its parameters and buffers is read outside its calls; empty when none is."""
        for name, node in module.params.items():
            if not all(_inside(operator.index, module.calls) for operator in node.consumers):
                return f"its {name} is read outside it"
        return ""

    def why_not_between(self, layer: ModuleNode, reader: ModuleNode) -> str:
        """Why the output of `layer` is more than the input of `reader`, each called once; empty when it is not."""
        why = self.why_not_once(layer) or self.why_not_once(reader)
        return why or self.why_read(layer.outputs[0], reader)

    def readers(self, module: ModuleNode) -> list[ModuleNode]:
        """The modules that take what a module gives."""
        return [node for value in module.outputs for node in self._readers.get(value, ())]

    def why_read(self, value: DataNode, reader: ModuleNode) -> str:
        """Who reads a value beside the module `reader`; empty for nobody."""
        if why := self.why_seen(value):
            return why
        others = [operator for operator in value.consumers if not _inside(operator.index, reader.calls)]
        return f"its output is read by {others[0].where}, too" if others else ""

    def why_seen(self, value: DataNode) -> str:
        """Who sees a value beside operators; empty for nobody."""
        if value.is_output:
            return "the model gives its output, too"
        if value in self._escaped:
            return "its output leaves torch, too"
        if value in self._watched:
            return f"a hook of {shown(self._watched[value]) or 'the model'} sees its output"
        return ""


def _inside(index: int, calls: list[ModuleCall]) -> bool:
    return any(call.start <= index < (call.end or 0) for call in calls)
