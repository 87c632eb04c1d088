"""The fingerprint of weights: equal exactly when all tensors have the same values, names, shapes and dtypes."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from identity.samples import Outer
from modulekg_widgets.engine.errors import FingerprintError


def holding(tensor: torch.Tensor, name: str = "b", persistent: bool = True) -> nn.Module:
    module = nn.Module()
    module.register_buffer(name, tensor, persistent)
    return module


def digest(tensor: torch.Tensor) -> str:
    return mk.weight_fingerprint(holding(tensor)).hexdigest


BASE = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
VIEWS: dict[str, torch.Tensor] = {
    "transposed": BASE.transpose(0, 2),
    "sliced": BASE[:, 1:, ::2],
    "expanded": torch.ones(1).expand(100, 100),
    "offset": BASE.reshape(-1)[5:9],
    "conjugated": torch.complex(BASE, BASE).conj(),
    "negated": torch.complex(BASE, BASE).conj().imag,
    "channels last": BASE.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "scalar": BASE[0, 1, 2],
    "empty": BASE[:0],
    "bool": BASE > 3,
    "half": BASE.half().transpose(0, 1),
    "float8": BASE.to(torch.float8_e4m3fn).transpose(0, 1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_view_equals_its_contiguous_copy(view: torch.Tensor) -> None:
    copy = view.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    assert digest(view) == digest(copy)


def test_bytes_are_compared_so_that_nan_equals_itself_and_zeros_differ() -> None:
    assert digest(torch.tensor([math.nan])) == digest(torch.tensor([math.nan]))
    assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))


DIFFERENT = {
    "value": (torch.zeros(4), torch.tensor([0.0, 0, 0, 1e-45])),
    "dtype": (torch.zeros(4), torch.zeros(4, dtype=torch.int32)),
    "precision": (torch.zeros(4), torch.zeros(4, dtype=torch.float64)),
    "shape": (torch.zeros(4), torch.zeros(2, 2)),
    "order": (BASE, BASE.transpose(1, 2).reshape(2, 3, 4)),
    "scale": tuple(torch.quantize_per_tensor(torch.ones(2) * s, s, 0, torch.qint8) for s in (0.5, 0.25)),
    "zero point": tuple(torch.quantize_per_tensor(torch.ones(2) * -z, 1.0, z, torch.qint8) for z in (0, 1)),
    "scales": tuple(
        torch.quantize_per_channel(
            torch.ones(2, 2) * s, torch.tensor([s, s]), torch.zeros(2, dtype=torch.int), 0, torch.qint8
        )
        for s in (0.5, 0.25)
    ),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_these_differ(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert digest(pair[0]) != digest(pair[1])
    assert digest(pair[0]) == digest(pair[0].clone())


def test_names_count_and_order_does_not() -> None:
    assert mk.weight_fingerprint(holding(BASE, "a")) != mk.weight_fingerprint(holding(BASE, "b"))
    first, second = Outer(a=holding(BASE), b=nn.Linear(2, 2)), Outer()
    second.register_module("b", first.b)
    second.register_module("a", first.a)
    assert mk.weight_fingerprint(first) == mk.weight_fingerprint(second)


def test_only_the_state_counts() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    expected = mk.weight_fingerprint(model)
    model.eval().note = "x"
    model.append(nn.ReLU())
    model.register_buffer("cache", torch.ones(1), persistent=False)
    assert mk.weight_fingerprint(model) == expected
    model[0].bias.data[0] += 1
    assert mk.weight_fingerprint(model) != expected


def test_a_shared_module_equals_its_copies() -> None:
    layer, other = nn.Linear(2, 2), nn.Linear(2, 2)
    shared = nn.Sequential(layer, layer)
    assert mk.weight_fingerprint(shared) != mk.weight_fingerprint(nn.Sequential(layer))
    assert mk.weight_fingerprint(shared) != mk.weight_fingerprint(nn.Sequential(layer, other))
    other.load_state_dict(layer.state_dict())
    assert mk.weight_fingerprint(shared) == mk.weight_fingerprint(nn.Sequential(layer, other))


def test_a_cycle_ends() -> None:
    model = Outer(child=nn.Linear(2, 2))
    model.child.parent = model
    expected = mk.weight_fingerprint(model)
    model.child.weight.data += 1
    assert mk.weight_fingerprint(model) != expected


HIDDEN: dict[str, Callable[[], nn.Module]] = {
    "dynamically quantized": lambda: torch.ao.quantization.quantize_dynamic(
        nn.Sequential(nn.Linear(4, 4)), {nn.Linear}, dtype=torch.qint8
    ),
    "scripted": lambda: torch.jit.script(nn.Sequential(nn.Linear(4, 4))),
    "traced": lambda: torch.jit.trace(nn.Sequential(nn.Linear(4, 4)), torch.ones(1, 4)),
    "compiled": lambda: torch.compile(nn.Linear(4, 4)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", HIDDEN.values(), ids=HIDDEN)
def test_weights_that_are_packed_away_count(make: Callable[[], nn.Module]) -> None:
    def made(seed: int) -> object:
        torch.manual_seed(seed)
        return mk.weight_fingerprint(make())

    assert made(1) == made(1)
    assert made(1) != made(2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (torch.zeros(2, device="meta"), "'0.b' is on the meta device"),
        (torch._subclasses.FakeTensorMode().from_tensor(torch.zeros(2)), "'0.b' is on the meta device"),
        (torch.eye(2).to_mkldnn(), "'0.b' is a torch._mkldnn tensor"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "'0.b' is a nested tensor"),
        (torch.ones(1).expand(10**7, 10**7), "the values of '0.b', a Tensor, cannot be read"),
    ],
    ids=["meta", "fake", "mkldnn", "nested", "larger than memory"],
)
def test_what_has_no_values_is_refused_by_name(tensor: torch.Tensor, text: str) -> None:
    with pytest.raises(FingerprintError, match=text):
        mk.weight_fingerprint(nn.Sequential(holding(tensor)))


SPARSE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coo": lambda dense: dense.to_sparse(),
    "csr": lambda dense: dense.to_sparse_csr(),
    "csc": lambda dense: dense.to_sparse_csc(),
    "bsr": lambda dense: dense.to_sparse_bsr((2, 2)),
    "bsc": lambda dense: dense.to_sparse_bsc((2, 2)),
    "hybrid": lambda dense: dense.to_sparse(1),
    "batched": lambda dense: torch.stack([dense, dense]).to_sparse_csr(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", SPARSE.values(), ids=SPARSE)
def test_sparse_tensors_count_by_indices_and_values(make: Callable[[torch.Tensor], torch.Tensor]) -> None:
    dense = torch.zeros(4, 4)
    dense[0, 1], dense[2, 3], dense[3, 0] = 1.0, 2.0, 3.0
    others = {"other value": dense * 2, "one negative": dense * torch.tensor([1, 1, 1, -1]), "moved": dense.T}

    def digest(tensor: torch.Tensor) -> object:
        return mk.weight_fingerprint(holding(tensor))

    known = digest(make(dense))
    assert digest(make(dense.clone())) == known
    assert len({known, *(digest(make(other)) for other in others.values())}) == 1 + len(others)
    assert digest(make(dense).to(torch.float64)) != known
    assert digest(dense) != known
    assert len({digest(each(dense)) for each in SPARSE.values()}) == len(SPARSE)  # the layout counts
    quick = [mk.weight_fingerprint(holding(make(each))).quick for each in (dense, *others.values())]
    assert len(set(quick)) == len(quick)


def test_a_sparse_tensor_that_is_not_in_order_is_put_in_order() -> None:
    values, places = torch.tensor([2.0, 1.0, 3.0]), torch.tensor([[1, 0, 1], [0, 1, 0]])
    loose = torch.sparse_coo_tensor(places, values, (2, 2))
    neat = torch.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 5.0], (2, 2)).coalesce()
    assert mk.weight_fingerprint(holding(loose)) == mk.weight_fingerprint(holding(neat))
    assert not loose.is_coalesced()  # reading changes nothing
    larger = torch.sparse_coo_tensor(neat.indices(), neat.values(), (3, 3))
    assert mk.weight_fingerprint(holding(larger)) != mk.weight_fingerprint(holding(neat))


def test_the_quick_digest_follows_the_strong_one() -> None:
    first, second = (mk.weight_fingerprint(holding(torch.full((3,), v))) for v in (1.0, 2.0))
    assert first.quick != second.quick
    assert first.quick == mk.weight_fingerprint(holding(torch.full((3,), 1.0))).quick
    assert str(first) == first.hexdigest
