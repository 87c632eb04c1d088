"""`graph.forward` fills every node with what the model itself computes."""

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torchvision import models

import modulekg_widgets as mk
from checks.model_state import unchanged
from models.functional import Lambda
from modulekg_widgets.engine.torch_runtime.pytree import tensors
from tracing.test_writes import assert_consistent

Tensor = torch.Tensor
SIZES = {"vit_b_32": 224, "inception_v3": 96}
EXACT = ["resnet18", "densenet121", "swin_t", "swin_v2_t", "convnext_tiny", "googlenet", "inception_v3",
         "mobilenet_v3_small", "efficientnet_b0", "shufflenet_v2_x0_5", "squeezenet1_1", "vit_b_32"]  # fmt: skip
# on tensors without data attention is written out, on real ones it is one kernel
ROUNDED = {"vit_b_32"}


def outputs_of_modules(model: nn.Module, args: tuple[Any, ...], seed: int = 0) -> tuple[Any, dict[str, list[Tensor]]]:
    """What the model returns, and what its modules return, each as a copy of that moment."""
    seen: dict[str, list[Tensor]] = {}

    def hook(name: str) -> Callable[..., None]:
        def keep(module: nn.Module, given: Any, output: Any) -> None:
            seen.setdefault(name, []).extend(tensor.clone() for _, tensor in tensors(output))

        return keep

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    torch.manual_seed(seed)
    torch.backends.mha.set_fastpath_enabled(False)  # which calls no module
    try:
        with torch.no_grad():
            return model(*args), seen
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
        for handle in handles:
            handle.remove()


def assert_same(model: nn.Module, graph: Any, args: tuple[Any, ...], tolerance: float = 0.0) -> None:
    torch.manual_seed(0)
    got = graph.forward(*args)
    expected, seen = outputs_of_modules(model, args)
    for name, values in seen.items():
        found = [node.value for node in graph.modules[name].outputs]
        torch.testing.assert_close(found, values, rtol=tolerance, atol=tolerance, msg=lambda text: f"{name}: {text}")  # noqa: B023
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)
    assert type(got) is type(expected)


@pytest.mark.parametrize("name", EXACT)
def test_every_module_of_a_vision_model(name: str) -> None:
    torch.manual_seed(0)
    model = models.get_model(name, weights=None).eval()
    size = SIZES.get(name, 64)
    graph = mk.trace(model, torch.empty(1, 3, size, size))
    assert graph.traced_on == "meta"
    assert_same(model, graph, (torch.randn(1, 3, size, size),), 1e-5 if name in ROUNDED else 0.0)
    if name in ("resnet18", "swin_t", "googlenet"):
        assert_consistent(graph)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "swin_t"])
def test_in_train_mode_with_the_same_random_numbers(name: str) -> None:
    torch.manual_seed(0)
    model = models.get_model(name, weights=None)
    x = torch.randn(2, 3, 64, 64)
    graph = mk.trace(model, x, training=True)
    with unchanged_state(model):
        torch.manual_seed(0)
        got = graph.forward(x)
    expected, _ = outputs_of_modules(model.train(), (x,))
    assert torch.equal(got, expected)
    assert {node.shape for node in graph.outputs} == {tuple(got.shape)}


class unchanged_state:
    """The body must leave parameters and buffers byte for byte as they are."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def bytes(self) -> list[bytes]:
        return [tensor.detach().numpy().tobytes() for tensor in self.model.state_dict().values()]

    def __enter__(self) -> None:
        self.before = self.bytes()

    def __exit__(self, *_: object) -> None:
        assert self.bytes() == self.before


def test_statistics_and_their_counter() -> None:
    model = nn.BatchNorm1d(3)
    x = torch.randn(8, 3)
    graph = mk.trace(model, x, training=True)
    with unchanged(model, x):
        graph.forward(x)
    counter = graph.state["num_batches_tracked"]
    (counting,) = counter.consumers
    assert (counter.value.item(), counting.outputs[0].value.item()) == (0, 1)
    assert torch.equal(graph.state["running_mean"].value, torch.zeros(3))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(layer: type[nn.Module], batch_first: bool) -> None:
    torch.manual_seed(0)
    model = layer(4, 6, num_layers=2, bidirectional=True, batch_first=batch_first)
    x = torch.randn(3, 5, 4)
    assert_same(model, mk.trace(model, x), (torch.randn(3, 5, 4),), 1e-6)


def test_transformer_encoder_layer() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    graph = mk.trace(model, torch.randn(2, 5, 8))
    assert_same(model, graph, (torch.randn(2, 5, 8),), 1e-6)


Pair = namedtuple("Pair", "first second")


@dataclass
class Answer:
    logits: Tensor
    hidden: list[Tensor]
    note: str = "none"


def test_the_structure_of_the_output() -> None:
    def forward(module: nn.Module, x: Tensor) -> Any:
        y = module.linear(x)
        return {
            "pair": Pair(y, None), "answer": Answer(y + 1, [x, y]), "same": y, 3: (y.sum(), "text", 7),
            "ordered": OrderedDict(a=y.relu()), "top": torch.max(y, 0),
        }  # fmt: skip

    torch.manual_seed(0)
    model = Lambda(forward, linear=nn.Linear(4, 4))
    graph = mk.trace(model, torch.randn(2, 4))
    x = torch.randn(2, 4)
    got, expected = graph.forward(x), model(x)
    assert list(got) == list(expected)
    assert [type(part) for part in got.values()] == [type(part) for part in expected.values()]
    for (place, left), (other, right) in zip(tensors(got), tensors(expected), strict=True):
        assert place == other
        assert torch.equal(left, right)
    assert (got["answer"].note, got["pair"].second, got[3][1:]) == ("none", None, ("text", 7))
    assert got["same"] is got["pair"].first


def test_outputs_that_are_no_tensors() -> None:
    model = Lambda(lambda module, x: None)
    assert mk.trace(model, torch.randn(2)).forward(torch.randn(2)) is None
    model = Lambda(lambda module, x: x)
    x = torch.randn(2)
    assert mk.trace(model, torch.randn(2)).forward(x) is x


def test_keywords_in_any_order() -> None:
    class Subtracts(nn.Module):
        def forward(self, x: Tensor, *, left: Tensor, right: dict[str, Tensor]) -> Tensor:
            return x * left - right["it"]

    model = Subtracts()
    a, b, c = torch.randn(3, 2)
    graph = mk.trace(model, a, {"right": {"it": c}, "left": b})
    assert [node.name for node in graph.inputs] == ["x", "left", "right.it"]
    x, y, z = torch.randn(3, 2)
    assert torch.equal(graph.forward(x, left=y, right={"it": z}), x * y - z)
    assert torch.equal(graph.forward(right={"it": z}, x=x, left=y), x * y - z)


def test_a_tied_weight() -> None:
    embedding, head = nn.Embedding(10, 8), nn.Linear(8, 10, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    assert_same(model, mk.trace(model, torch.tensor([1, 2])), (torch.tensor([3, 4]),))


def test_one_tensor_twice() -> None:
    model = Lambda(lambda module, x, y: x * 2 + y)
    x = torch.randn(3)
    graph = mk.trace(model, (x, x))
    assert len(graph.inputs) == 1
    other = torch.randn(3)
    assert torch.equal(graph.forward(other, other), other * 2 + other)
    with pytest.raises(mk.ModuleKGError, match="were one tensor, and now they are two"):
        graph.forward(other, torch.randn(3))


def test_the_state_of_today_is_used() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    x = torch.randn(2, 4)
    graph = mk.trace(model, x)
    state = {name: torch.rand_like(t) if t.is_floating_point() else t for name, t in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    assert torch.equal(graph.forward(x), model(x))
    model[0] = nn.Linear(4, 4)
    before = graph.forward(x)  # of the module that was traced
    assert not torch.equal(before, model(x))


def test_other_shapes_are_refused() -> None:
    graph = mk.trace(nn.Linear(4, 2), torch.randn(3, 4))
    with pytest.raises(mk.ModuleKGError, match=r"forward got input \[5, 4\], .* traced with input \[3, 4\]"):
        graph.forward(torch.randn(5, 4))
    with pytest.raises(mk.ModuleKGError, match=r"do not fit forward"):
        graph.forward()
    with pytest.raises(mk.ModuleKGError, match=r"do not fit forward"):
        graph.forward(torch.randn(3, 4), torch.randn(3, 4))
    with pytest.raises(mk.ModuleKGError, match=r"got no tensors"):
        graph.forward(3)


def test_other_dtypes_say_which_operator_stopped() -> None:
    graph = mk.trace(nn.Linear(4, 2), torch.randn(3, 4))
    with pytest.raises(mk.ModuleKGError, match=r"aten::addmm in \(root\).* stopped on these inputs: RuntimeError"):
        graph.forward(torch.randn(3, 4, dtype=torch.float64))


def test_a_model_without_data_is_refused() -> None:
    with torch.device("meta"):
        model = nn.Linear(4, 2)
    graph = mk.trace(model, torch.randn(3, 4))
    with pytest.raises(mk.ModuleKGError, match="weight is on the meta device"):
        graph.forward(torch.randn(3, 4))
    model.to_empty(device="cpu")
    nn.init.ones_(model.weight), nn.init.ones_(model.bias)
    assert torch.equal(graph.forward(torch.ones(3, 4)), torch.full((3, 2), 5.0))


def test_a_model_that_has_changed_is_refused() -> None:
    model = nn.Linear(4, 2)
    graph = mk.trace(model, torch.randn(3, 4))
    model.weight = nn.Parameter(torch.randn(2, 3))
    with pytest.raises(mk.ModuleKGError, match=r"weight has shape \[2, 3\], at the trace \[2, 4\]: trace the model ag"):
        graph.forward(torch.randn(3, 4))


def test_data_that_lead_another_way_are_refused() -> None:
    def scaled(module: nn.Module, x: Tensor) -> Tensor:
        return x / x.max().item()

    def chosen(module: nn.Module, x: Tensor) -> Tensor:
        return x[x > 0] * 2

    x = torch.tensor([1.0, -1.0, 4.0])
    for forward in (scaled, chosen):
        graph = mk.trace(Lambda(forward), x)
        assert torch.equal(graph.forward(x), forward(None, x))
        with pytest.raises(mk.ModuleKGError, match=r"at the trace .*: trace the model again"):
            graph.forward(torch.tensor([1.0, 2.0, 3.0]))


def test_a_graph_that_stopped_is_refused() -> None:
    with pytest.raises(mk.TraceError if hasattr(mk, "TraceError") else mk.ModuleKGError) as caught:
        mk.trace(nn.Sequential(nn.Linear(4, 4), nn.Linear(3, 3)), torch.randn(2, 4))
    with pytest.raises(mk.ModuleKGError, match="ends where its forward pass stopped"):
        caught.value.graph.forward(torch.randn(2, 4))


@pytest.mark.parametrize("inference", [True, False])
def test_in_inference_mode(inference: bool) -> None:
    with torch.inference_mode(inference):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.BatchNorm1d(4)).eval()
        x = torch.randn(2, 4)
        graph = mk.trace(model, x)
        assert torch.equal(graph.forward(x), model(x))
        assert graph.state["0.weight"].is_parameter
