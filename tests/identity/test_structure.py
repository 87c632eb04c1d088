"""What makes two modules the same entity, and what does not count."""

import copy
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable

import pytest
import torch
from torch import nn

import modulekg_widgets as mk
from identity.samples import Holder, Outer, same
from modulekg_widgets.engine.identity.fingerprint import display_name

DIFFERENT: dict[str, tuple[nn.Module, nn.Module]] = {
    "class": (nn.ReLU(), nn.SiLU()),
    "class name alone": (nn.BatchNorm1d(4), nn.BatchNorm2d(4)),
    "hyper-parameter": (nn.Dropout(0.1), nn.Dropout(0.2)),
    "private hyper-parameter": (Holder(_scale=1), Holder(_scale=2)),
    "attribute that is there": (Holder(), Holder(scale=None)),
    "attribute name": (Holder(a=1), Holder(b=1)),
    "bias": (nn.Linear(4, 4, bias=True), nn.Linear(4, 4, bias=False)),
    "shape": (nn.Linear(4, 8), nn.Linear(8, 4)),
    "order of children": (Outer(a=nn.ReLU(), b=nn.SiLU()), Outer(b=nn.SiLU(), a=nn.ReLU())),
    "W(V(X)) and V(W(X))": (
        nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, bias=False)),
        nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4)),
    ),
    "names of children": (Outer(a=nn.ReLU()), Outer(b=nn.ReLU())),
    "number of children": (nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU(), nn.ReLU())),
    "nesting": (nn.Sequential(nn.Sequential(nn.ReLU())), nn.Sequential(nn.ReLU())),
    "empty slot": (Outer(a=nn.ReLU(), b=None), Outer(a=nn.ReLU())),
    "place of an empty slot": (Outer(a=None, b=nn.ReLU()), Outer(b=nn.ReLU(), a=None)),
    "grandchild": (nn.Sequential(nn.Sequential(nn.Linear(1, 2))), nn.Sequential(nn.Sequential(nn.Linear(1, 3)))),
}


@pytest.mark.parametrize("pair", DIFFERENT.values(), ids=DIFFERENT)
def test_these_are_different_entities(pair: tuple[nn.Module, nn.Module]) -> None:
    assert not same(*pair)
    assert same(pair[0], copy.deepcopy(pair[0]))


def registered(kind: str, name: str, tensor: torch.Tensor | None) -> nn.Module:
    module = nn.Module()
    if kind == "buffer":
        module.register_buffer(name, tensor)
    else:
        grad = tensor is not None and (tensor.is_floating_point() or tensor.is_complex())
        module.register_parameter(name, None if tensor is None else nn.Parameter(tensor, requires_grad=grad))
    return module


@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_names_shapes_and_empty_slots_of_tensors_count(kind: str) -> None:
    def build(name: str, tensor: torch.Tensor | None) -> nn.Module:
        return registered(kind, name, tensor)

    variants = [
        build("a", torch.zeros(2, 3)), build("b", torch.zeros(2, 3)), build("a", torch.zeros(3, 2)),
        build("a", torch.zeros(6)), build("a", torch.zeros(())), build("a", torch.zeros(0)), build("a", None),
        nn.Module(),
    ]  # fmt: skip
    assert len({mk.fingerprint(module) for module in variants}) == len(variants)


def test_a_parameter_is_no_buffer() -> None:
    assert not same(registered("parameter", "a", torch.zeros(2)), registered("buffer", "a", torch.zeros(2)))


KINDS = [
    [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn],
    [torch.complex64, torch.complex128],
    [torch.int64, torch.int32, torch.int8, torch.uint8],
    [torch.bool],
]


def test_the_kind_of_dtype_counts_and_the_dtype_does_not() -> None:
    digests = [{mk.fingerprint(registered("buffer", "a", torch.zeros(2, dtype=d))) for d in kind} for kind in KINDS]
    assert [len(kind) for kind in digests] == [1] * len(KINDS)
    assert len(set.union(*digests)) == len(KINDS)


def test_a_quantized_tensor_is_a_kind_of_its_own() -> None:
    quantized = torch.quantize_per_tensor(torch.zeros(2), 0.5, 0, torch.qint8)
    assert not same(registered("buffer", "a", quantized), registered("buffer", "a", torch.zeros(2, dtype=torch.int8)))


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.LSTM(4, 4, 2), nn.Transformer(8, 2, 1, 1))


UNCHANGED: dict[str, Callable[[nn.Module], object]] = {
    "half": lambda m: m.half(),
    "double": lambda m: m.double(),
    "eval": lambda m: m.eval(),
    "another device": lambda m: m.to("meta"),
    "requires_grad": lambda m: m.requires_grad_(False),
    "weights": lambda m: [nn.init.normal_(p) for p in m.parameters()],
    "forward hook": lambda m: m[0].register_forward_hook(lambda *_: None),
    "backward hook": lambda m: m[0].register_full_backward_hook(lambda *_: None),
    "state_dict hook": lambda m: m.register_state_dict_pre_hook(lambda *_: None),
    "gradients": lambda m: m[0](torch.ones(1, 3, 4, 4)).sum().backward(),
    "zero_grad": lambda m: m.zero_grad(),
    "share_memory": lambda m: m.share_memory(),
    "running statistics": lambda m: m[1](torch.randn(8, 4, 2, 2)),
    "load_state_dict": lambda m: m.load_state_dict(network().state_dict(), assign=True),
    "non-persistent buffer": lambda m: m[1]._non_persistent_buffers_set.add("running_mean"),
    "tied weights": lambda m: setattr(m[3], "weight_hh_l1", m[3].weight_hh_l0),
}


@pytest.mark.parametrize("change", UNCHANGED.values(), ids=UNCHANGED)
def test_these_do_not_count(change: Callable[[nn.Module], object]) -> None:
    model = network()
    change(model)
    assert same(model, network())


def test_a_shared_module_counts_as_its_copies_do() -> None:
    layer = nn.Linear(2, 2)
    assert same(nn.Sequential(layer, layer), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_are_the_same_entity(copied: Callable[[nn.Module], nn.Module]) -> None:
    model = network()
    assert same(copied(model), model)
    assert same(copied(model.half().eval()), model)


def test_the_order_of_attributes_does_not_count() -> None:
    assert same(Holder(a=1, b=(2,), c=None), Holder(c=None, a=1, b=(2,)))
    first, second = nn.Module(), nn.Module()
    first.register_buffer("a", torch.zeros(1))
    first.register_buffer("b", torch.zeros(2))
    second.register_buffer("b", torch.zeros(2))
    second.register_buffer("a", torch.zeros(1))
    assert same(first, second)


def test_meta_tensors_have_a_fingerprint() -> None:
    with torch.device("meta"):
        meta = nn.Linear(10**6, 10**6)
    assert mk.fingerprint(meta).display_name.startswith("Linear")
    assert not same(meta, nn.Linear(4, 4))


def test_a_part_has_the_fingerprint_that_it_has_alone() -> None:
    model = network()
    for record in mk.hierarchy(model):
        assert record.fingerprint == mk.fingerprint(record.module)


def test_a_fingerprint_compares_and_hashes_by_its_digest() -> None:
    one, other, third = mk.fingerprint(nn.ReLU()), mk.fingerprint(nn.ReLU()), mk.fingerprint(nn.SiLU())
    assert one == other
    assert {one, other, third} == {one, third}
    assert len(one.hexdigest) == 32
    assert json.loads(json.dumps(one.hexdigest)) == one.hexdigest
    assert str(one) == one.display_name


def test_the_display_name_is_the_class_and_the_last_three_decimal_digits() -> None:
    found = mk.fingerprint(nn.ReLU())
    assert found.display_name == f"ReLU{int(found.hexdigest, 16) % 1000:03d}"
    assert display_name("X", "a") == "X010"
    assert display_name("X", "ff", digits=5) == "X00255"


def test_an_ordered_dict_of_children_is_what_names_make_of_it() -> None:
    assert same(nn.Sequential(OrderedDict([("0", nn.ReLU())])), nn.Sequential(nn.ReLU()))
