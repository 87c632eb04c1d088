"""The cost of operators, modules and models: torch's count where torch counts, and nothing silently zero."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from torchvision import models

import modulekg_widgets as mk
from models import transformers_models
from models.functional import Lambda
from modulekg_widgets.engine.operators import formulas
from modulekg_widgets.engine.operators.user_operators import UserOperator, user_operators
from modulekg_widgets.engine.tracing.flops import Flops

Tensor = torch.Tensor
MODELS = ["resnet18", "vit_b_32", "swin_t", "swin_v2_t", "convnext_tiny", "densenet121", "googlenet", "mnasnet0_5",
          "shufflenet_v2_x0_5", "efficientnet_b0", "maxvit_t", "mobilenet_v3_small"]  # fmt: skip
SIZES = {"vit_b_32": 224, "maxvit_t": 224, "googlenet": 96}
LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "lstm": (nn.LSTM(4, 6, 2, bidirectional=True), (3, 5, 4)),
    "gru": (nn.GRU(4, 6), (3, 5, 4)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (2, 5, 8)),
    "transposed": (nn.ConvTranspose2d(6, 9, 3, 2, groups=3), (2, 6, 5, 5)),
    "grouped": (nn.Conv1d(8, 16, 3, groups=4, dilation=2), (2, 8, 20)),
    "conv3d": (nn.Conv3d(2, 4, 3, padding=1), (1, 2, 6, 6, 6)),
}


def counted_by_torch(model: nn.Module, *args: Tensor) -> int:
    torch.backends.mha.set_fastpath_enabled(False)  # which is one opaque operator
    mkldnn = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # as is a recurrent layer of its
    try:
        # not every release of torch counts its fused attention on a CPU
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
            model(*args)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
        torch._C._set_mkldnn_enabled(mkldnn)
    return counter.get_total_flops()


def assert_as_torch(model: nn.Module, x: Tensor) -> Flops:
    flops = mk.trace(model, x).flops()
    assert 2 * flops.macs == flops.matmul == counted_by_torch(model, x)
    assert flops.unknown == []
    assert flops.total > 2 * flops.macs
    return flops


@pytest.mark.parametrize("name", MODELS)
def test_multiply_adds_of_vision_models_are_those_that_torch_counts(name: str) -> None:
    with torch.device("meta"):
        model = models.get_model(name, weights=None).eval()
        size = SIZES.get(name, 64)
        flops = assert_as_torch(model, torch.empty(1, 3, size, size))
    graph = mk.trace(model, torch.empty(1, 3, size, size, device="meta"))
    for path, node in graph.modules.items():
        if node.calls:
            assert node.flops().total == flops.by_module.get(path, 0), path


@pytest.mark.parametrize("name", LAYERS)
def test_multiply_adds_of_layers_are_those_that_torch_counts(name: str) -> None:
    layer, shape = LAYERS[name]
    flops = mk.trace(layer, torch.randn(shape)).flops()
    assert 2 * flops.macs == flops.matmul == counted_by_torch(layer, torch.randn(shape)) > 0
    assert flops.unknown == []


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["llama", "vit", "bert"])
def test_products_of_transformers_are_those_that_torch_counts(name: str, attention: str) -> None:
    model, kwargs = transformers_models.build(name)
    model.eval().set_attn_implementation(attention)
    (x,) = kwargs.values()
    graph = mk.trace(model, (), kwargs)
    flops = graph.matmul_flops()
    assert flops == graph.flops().matmul == flops.total == 2 * flops.macs == counted_by_torch(model, x)
    assert flops < graph.flops()
    assert flops.by_operator.keys() <= {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution"}
    assert flops.by_module[""] == flops


PRODUCTS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "matrix and vector": (lambda x, y, z: (x @ y) @ z, [(3, 4), (4, 8), (8,)]),
    "dot": (lambda x, y: x @ y, [(8,), (8,)]),
    "trilinear": (lambda x, y, w: F.bilinear(x, y, w), [(3, 4), (3, 5), (6, 4, 5)]),
    "deformed": (lambda x, o, w: torchvision.ops.deform_conv2d(x, o, w), [(1, 2, 5, 5), (1, 18, 3, 3), (4, 2, 3, 3)]),
    "einsum": (lambda x, y: torch.einsum("bij,kj->bik", x, y), [(2, 4, 8), (5, 8)]),
    "distances": (lambda x, y: torch.cdist(x, y), [(30, 8), (40, 8)]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_torch_does_not_count_is_no_product(name: str) -> None:
    forward, shapes = PRODUCTS[name]
    args = tuple(torch.rand(shape) for shape in shapes)
    model = Lambda(lambda _, *given: forward(*given))
    assert mk.trace(model, args).flops().matmul == counted_by_torch(model, *args)


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "swin_t", "convnext_tiny"])
def test_train_mode_knows_every_operator(name: str) -> None:
    with torch.device("meta"):
        model = models.get_model(name, weights=None)
    graph = mk.trace(model, torch.empty(2, 3, 64, 64), training=True)
    assert graph.flops().unknown == []
    assert graph.flops().total > mk.trace(model, torch.empty(2, 3, 64, 64), training=False).flops().total


def test_the_sums() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 2)), nn.Flatten(0))
    flops = mk.trace(model, torch.randn(3, 4)).flops()
    first, relu, second = 2 * 3 * 4 * 8, 3 * 8, 2 * 3 * 8 * 2
    assert flops.by_module == {"": first + relu + second, "0": first, "1": relu + second, "1.0": relu, "1.1": second,
                               "2": 0}  # fmt: skip
    assert flops.by_operator == {"aten::addmm": first + second, "aten::relu": relu, "aten::t": 0, "aten::view": 0}
    assert (flops.total, int(flops), flops.macs, flops.matmul) == (312, 312, 144, 288)
    assert flops.unknown == []
    assert str(flops).startswith("312 FLOPs, 144 MACs\n  288 FLOPs in matrix products and convolutions, as torch's")
    assert "288 in matrix products and convolutions" in repr(flops)


def test_a_large_number_reads_well() -> None:
    with torch.device("meta"):
        model = models.resnet50()
    text = str(mk.trace(model, torch.empty(1, 3, 224, 224), training=False).flops())
    assert text.startswith("8.2")
    assert "GFLOPs, 4.09 GMACs" in text
    assert "aten::convolution" in text


def cost(forward: Callable[..., Any], *shapes: tuple[int, ...]) -> int:
    """The cost of a function of tensors, all of whose operators are known."""
    graph = mk.trace(Lambda(lambda _, *args: forward(*args)), tuple(torch.rand(shape) + 0.5 for shape in shapes))
    flops = graph.flops()
    assert flops.unknown == []
    return flops.total


n = 2 * 3 * 8 * 8
IMAGE = (2, 3, 8, 8)
COSTS: list[tuple[str, Callable[..., Any], list[tuple[int, ...]], int]] = [
    ("pointwise", lambda x: x.relu(), [IMAGE], n),
    ("in place", lambda x: F.hardswish(x.clone(), inplace=True), [IMAGE], n),
    ("broadcast", lambda x, y: x + y, [(5, 1), (1, 7)], 35),
    ("sum", lambda x: x.sum(), [IMAGE], n),
    ("mean of a dimension", lambda x: x.mean(1), [IMAGE], n),
    ("argmax", lambda x: x.argmax(1), [IMAGE], n),
    ("norm", lambda x: x.norm(dim=1), [IMAGE], 2 * n),
    ("variance", lambda x: x.var(1), [IMAGE], 4 * n),
    ("softmax", lambda x: x.softmax(1), [IMAGE], 5 * n),
    ("log softmax", lambda x: x.log_softmax(1), [IMAGE], 5 * n),
    ("cumsum", lambda x: x.cumsum(1), [IMAGE], n),
    ("views and copies", lambda x: x.permute(0, 2, 3, 1).contiguous().view(2, -1)[:, ::2].chunk(2, 1)[0], [IMAGE], 0),
    ("concatenation", lambda x: torch.cat([x, x.flip(1).roll(1, 0)]), [IMAGE], 0),
    ("indexing", lambda x: x[:, torch.tensor([2, 0])].index_select(1, torch.tensor([1])), [IMAGE], 0),
    ("factories", lambda x: torch.zeros(3) if x is not None else x, [IMAGE], 0),
    ("padding", lambda x: F.pad(F.pad(x, (1, 1)), (1, 1, 1, 1), mode="reflect"), [IMAGE], 0),
    ("max pool", lambda x: F.max_pool2d(x, 2), [IMAGE], n),
    ("average pool", lambda x: F.avg_pool2d(x, 3, 1, 1), [IMAGE], 9 * n),
    ("average pool of a line", lambda x: F.avg_pool1d(x, 4), [(2, 3, 8)], 48),
    ("adaptive pool", lambda x: F.adaptive_avg_pool2d(x, 4), [IMAGE], n),
    ("adaptive max pool", lambda x: F.adaptive_max_pool2d(x, (2, 8)), [IMAGE], n),
    ("nearest", lambda x: F.interpolate(x, scale_factor=2), [IMAGE], 0),
    ("bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [IMAGE], 7 * 4 * n),
    ("bicubic", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), [IMAGE], 31 * 4 * n),
    ("smooth", lambda x: F.interpolate(x, 4, mode="bilinear", antialias=True), [IMAGE], 6 * 4 * (8 * 7 + 4 * 7)),
    ("grid sample", lambda x, y: F.grid_sample(x, y, align_corners=False), [IMAGE, (2, 4, 4, 2)], 7 * 96),
    ("grid sample nearest", lambda x, y: F.grid_sample(x, y, "nearest", align_corners=False), [IMAGE, (2, 4, 4, 2)], 0),
    ("batch norm", lambda x, m, v: F.batch_norm(x, m, v), [IMAGE, (3,), (3,)], 2 * n),
    ("batch norm in training", lambda x, w: F.batch_norm(x, None, None, w, w, True), [IMAGE, (3,)], 7 * n),
    ("instance norm", lambda x: F.instance_norm(x), [IMAGE], 5 * n),
    ("layer norm", lambda x, w: F.layer_norm(x, (8,), w), [IMAGE, (8,)], 6 * n),
    ("group norm", lambda x: F.group_norm(x, 3), [IMAGE], 5 * n),
    ("dropout at rest", lambda x: F.dropout(x, 0.5, False), [IMAGE], 0),
    ("sort", lambda x: x.sort(-1)[0], [(4, 8)], 32 * 3),
    ("unique", lambda x: x.unique(), [(16,)], 16 * 4),
    ("topk", lambda x: x.topk(2)[0], [(4, 8)], 32),
    ("searching", lambda x, y: torch.searchsorted(x, y), [(15,), (10,)], 40),
    ("index add", lambda x, y: x.index_add(0, torch.tensor([0, 0]), y), [(4, 8), (2, 8)], 16),
    ("fft", lambda x: torch.view_as_real(torch.fft.fft2(torch.complex(x, x))), [(2, 8, 8)], 5 * 128 * 6),
    ("real fft", lambda x: torch.view_as_real(torch.fft.rfft(x)), [(2, 8)], round(2.5 * 16 * 3)),
    ("and back", lambda x: torch.fft.irfft(torch.view_as_complex(x)), [(2, 5, 2)], round(2.5 * 16 * 3)),
    ("matrix and vector", lambda x, y: x @ y, [(4, 8), (8,)], 64),
    ("dot", lambda x, y: x @ y, [(8,), (8,)], 16),
    ("outer", lambda x, y, z: torch.addr(x, y, z), [(4, 8), (4,), (8,)], 64),
    ("distances", lambda x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"), [(4, 8), (5, 8)], 480),
    ("inverse", lambda x: torch.linalg.inv(x + torch.eye(3)), [(2, 3, 3)], 2 * 2 * 27 + 18),
    ("cholesky", lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3)), [(3, 3)], 2 * 27 + 9 + 9),
    ("embedding bag", lambda w: F.embedding_bag(torch.tensor([[0, 1, 1]]), w), [(4, 8)], 24),
    ("box regions", lambda x, b: torchvision.ops.roi_align(x, b, 2, sampling_ratio=2), [IMAGE, (5, 5)], 60 * 4 * 8),
    ("deformed", lambda x, o, w: torchvision.ops.deform_conv2d(x, o, w), [IMAGE, (2, 18, 6, 6), (4, 3, 3, 3)],
     2 * 2 * 4 * 36 * 27 + 8 * 2 * 36 * 27),
]  # fmt: skip


@pytest.mark.parametrize(("forward", "shapes", "expected"), [row[1:] for row in COSTS], ids=[row[0] for row in COSTS])
def test_the_formula_of(forward: Callable[..., Any], shapes: list[tuple[int, ...]], expected: int) -> None:
    assert cost(forward, *shapes) == expected


def test_bilinear_counts_its_products() -> None:
    batch, left, right, out = 3, 4, 5, 6
    flops = mk.trace(nn.Bilinear(left, right, out), (torch.randn(batch, left), torch.randn(batch, right))).flops()
    assert flops.macs == batch * out * right * (left + 1)


def test_fused_layers_cost_what_their_parts_cost() -> None:
    """A softmax, written out, is the five operations per element that the formula says."""
    x = (4, 16)

    def by_hand(x: Tensor) -> Tensor:
        exponents = (x - x.amax(-1, keepdim=True)).exp()
        return exponents / exponents.sum(-1, keepdim=True)

    def norm_by_hand(x: Tensor) -> Tensor:
        centred = x - x.sum(-1, keepdim=True)
        return centred * centred.square().sum(-1, keepdim=True)

    assert cost(by_hand, x) == cost(lambda x: x.softmax(-1), x)
    assert cost(norm_by_hand, x) == cost(lambda x: F.layer_norm(x, (16,)), x)


def test_every_table_names_operators_that_exist_and_each_stands_in_one() -> None:
    tables = [formulas.FREE, formulas.PER_OUTPUT, formulas.PER_INPUT, formulas.formulas]
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names)) > 200
    for name in names:
        namespace, _, operator = name.partition("::")
        assert hasattr(getattr(torch.ops, namespace), operator), name


# ------------------------------------------------------------- unknown operators


@torch.library.custom_op("mkgflops::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), Lambda(lambda module, x: twice(x)))


def test_an_operator_without_a_formula_is_listed(model: nn.Module) -> None:
    graph = mk.trace(model, torch.randn(2, 4))
    flops = graph.flops()
    (entry,) = flops.unknown
    assert (entry.operator, entry.module) == ("mkgflops::twice", "1")
    assert entry.source.startswith("tracing/test_flops.py:")
    assert "mk.axis_rule('mkgflops::twice', flops=" in entry.remedy
    assert "mkgflops::twice in 1 is unknown" in str(flops)
    assert flops.total == 2 * 2 * 4 * 4
    assert graph.operators[-1].flops() is None
    assert "mkgflops::twice" not in flops.by_operator


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(user_operators, "entries", user_operators.entries)
    return lambda **facts: user_operators.replace(UserOperator(**facts), ["mkgflops::twice"])


def test_the_cost_that_a_user_tells(model: nn.Module, tell: Callable[..., None]) -> None:
    tell(flops=lambda x: 3 * math.prod(x.shape))
    flops = mk.trace(model, torch.randn(2, 4)).flops()
    assert flops.unknown == []
    assert flops.by_operator["mkgflops::twice"] == 24
    assert flops.by_module["1"] == 24


@pytest.mark.parametrize(("like", "expected"), [("aten::relu", 8), ("aten::softmax", 40), ("aten::clone", 0)])
def test_the_cost_of_the_operator_that_it_is_like(
    like: str, expected: int, model: nn.Module, tell: Callable[..., None]
) -> None:
    tell(like=like)
    assert mk.trace(model, torch.randn(2, 4)).flops().by_operator["mkgflops::twice"] == expected


def test_a_cost_function_that_raises_says_so(model: nn.Module, tell: Callable[..., None]) -> None:
    tell(flops=lambda x: x.shape[7])
    with pytest.raises(mk.ModuleKGError, match=r"flops function of mkgflops::twice in 1, .* raised IndexError"):
        mk.trace(model, torch.randn(2, 4)).flops()


def test_nothing_is_computed(model: nn.Module) -> None:
    with torch.device("meta"):
        large = nn.Linear(1 << 20, 1 << 20)
    flops = mk.trace(large, torch.empty(1 << 20, 1 << 20, device="meta")).flops()
    assert flops.total == 2 * (1 << 60)
