"""What torch wraps, compiles, scripts, prunes, quantizes, and what it leaves behind in a module."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.utils.prune
from torch import nn

import modulekg_widgets as mk
from identity.samples import Holder, Outer, same

pytestmark = pytest.mark.filterwarnings("ignore")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())


INPUT = torch.ones(2, 4)


def test_a_compiled_model_has_the_fingerprint_of_the_model() -> None:
    model = network()
    compiled = torch.compile(model)
    assert same(compiled, network())
    assert same(model, network()), "compiling marks the model itself"
    assert [r.path for r in mk.hierarchy(compiled)] == ["", "0", "1", "2"]
    assert mk.hierarchy(compiled).root.module is model


def test_a_compiled_part_is_unwrapped_in_place() -> None:
    assert same(nn.Sequential(torch.compile(nn.ReLU()), nn.SiLU()), nn.Sequential(nn.ReLU(), nn.SiLU()))
    assert same(Holder(part=[torch.compile(nn.ReLU())]), Holder(part=[nn.ReLU()]))
    layer = nn.Linear(2, 2)
    assert len(mk.hierarchy(Outer(a=layer, b=torch.compile(layer)))) == 2


LEAVES: dict[str, Callable[[nn.Module], Any]] = {
    "compile in place": lambda m: (m.compile(backend="eager"), m(INPUT)),
    "compiled and run": lambda m: torch.compile(m, backend="eager")(INPUT),
    "script": torch.jit.script,
    "trace": lambda m: torch.jit.trace(m, INPUT),
    "fx": torch.fx.symbolic_trace,
    "export": lambda m: torch.export.export(copy.deepcopy(m).eval(), (INPUT,)),
    "functional_call": lambda m: torch.func.functional_call(m, dict(m.named_parameters()), (INPUT,)),
    "forward and backward": lambda m: m(INPUT).sum().backward(),
    "averaged": torch.optim.swa_utils.AveragedModel,
    "data parallel": nn.DataParallel,
    "prune and remove": lambda m: torch.nn.utils.prune.remove(
        torch.nn.utils.prune.l1_unstructured(m[0], "weight", 1), "weight"
    ),
    "parametrize and remove": lambda m: nn.utils.parametrize.remove_parametrizations(
        nn.utils.parametrizations.orthogonal(m[0]), "weight"
    ),
    "marks of parallel training": lambda m: m.__dict__.update(
        _is_fsdp_managed_module=True, _fsdp_use_orig_params=True, __composable_api_state_key_1234={}
    ),
}


@pytest.mark.parametrize("use", LEAVES.values(), ids=LEAVES)
def test_what_use_leaves_behind_does_not_count(use: Callable[[nn.Module], Any]) -> None:
    model = network()
    use(model)
    assert same(model, network())


RECURRENT = [lambda: nn.LSTM(4, 4, 2, bidirectional=True), lambda: nn.GRU(4, 4), lambda: nn.RNN(4, 4)]


@pytest.mark.parametrize("make", RECURRENT)
def test_recurrent_layers(make: Callable[[], nn.Module]) -> None:
    layer = make()
    layer(torch.ones(2, 1, 4))
    layer.half().flatten_parameters()
    layer.load_state_dict(make().half().state_dict(), assign=True)
    assert same(layer, make())
    assert same(copy.deepcopy(layer), make())
    assert mk.fingerprint(layer).opaque_paths == ()


@pytest.mark.parametrize("make", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_old_style_normalisation_is_stable_over_a_forward_pass(make: Callable[[nn.Module], nn.Module]) -> None:
    model = make(nn.Linear(4, 4))
    model(INPUT)
    assert same(model, make(nn.Linear(4, 4)))
    assert not same(model, nn.Linear(4, 4))


PARAMETRIZED = [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm]


@pytest.mark.parametrize("make", PARAMETRIZED)
def test_parametrized_modules(make: Callable[[nn.Module], nn.Module]) -> None:
    assert same(make(nn.Linear(4, 4)), make(nn.Linear(4, 4)))
    assert not same(make(nn.Linear(4, 4)), nn.Linear(4, 4))
    assert not same(make(nn.Linear(4, 4)), make(nn.Linear(4, 5)))
    assert mk.hierarchy(make(nn.Linear(4, 4))).root.class_name == "Linear"


def test_kinds_of_parametrization_differ() -> None:
    first, second = (make(nn.Linear(4, 4)) for make in PARAMETRIZED)
    assert not same(first, second)


def test_pruned_modules() -> None:
    def pruned(amount: int) -> nn.Module:
        return torch.nn.utils.prune.l1_unstructured(nn.Linear(4, 4), "weight", amount)

    assert same(pruned(1), pruned(2)), "how much is masked is a matter of weights"
    assert not same(pruned(1), nn.Linear(4, 4))


def quantized(dtype: torch.dtype = torch.qint8, width: int = 4) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, width)), {nn.Linear}, dtype=dtype)


def test_quantized_modules() -> None:
    assert same(quantized(), quantized())
    assert not same(quantized(), quantized(width=8))
    assert not same(quantized(), quantized(torch.float16))
    assert not same(quantized(), nn.Sequential(nn.Linear(4, 4)))


class Scaled(nn.Module):
    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class Shifted(Scaled):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.scale


def convolution(stride: int = 1, width: int = 3) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, width, 1, stride=stride), nn.ReLU())


SCRIPTS: dict[str, Callable[[], nn.Module]] = {
    "model": convolution,
    "constant of a part": lambda: convolution(stride=2),
    "shape of a part": lambda: convolution(width=4),
    "other part": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.SiLU()),
    "attribute": lambda: Scaled(2),
    "attribute of another value": lambda: Scaled(3),
    "program": lambda: Shifted(2),
    "program of a part": lambda: nn.Sequential(Scaled(2)),
    "another program of a part": lambda: nn.Sequential(Shifted(2)),
}
COMPILERS = {"script": torch.jit.script, "trace": lambda m: torch.jit.trace(m, torch.ones(1, 3, 4, 4))}


@pytest.mark.parametrize("compiled", COMPILERS.values(), ids=COMPILERS)
def test_scripted_modules_are_opaque_leaves_of_their_own_program(compiled: Callable[[nn.Module], nn.Module]) -> None:
    digests = [mk.fingerprint(compiled(make())).hexdigest for make in SCRIPTS.values()]
    assert len(set(digests)) == len(SCRIPTS)
    assert digests == [mk.fingerprint(compiled(make())).hexdigest for make in SCRIPTS.values()]
    model = nn.Sequential(compiled(convolution()), nn.ReLU())
    assert [r.path for r in mk.hierarchy(model)] == ["", "0", "1"]
    assert mk.fingerprint(model).opaque_paths == ("0",)
    assert mk.hierarchy(model)["0"].fingerprint.opaque_paths == ("",)


@pytest.mark.parametrize("compiled", COMPILERS.values(), ids=COMPILERS)
def test_a_scripted_module_keeps_its_identity_in_evaluation(compiled: Callable[[nn.Module], nn.Module]) -> None:
    assert same(compiled(network_of_images()).eval(), compiled(network_of_images()).train())
    assert mk.hierarchy(compiled(convolution())).root.parameters == 12


def network_of_images() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())


def test_traced_graphs_differ_by_what_they_do() -> None:
    def traced(constant: int) -> nn.Module:
        return torch.fx.symbolic_trace(Scaled(constant))

    assert same(traced(1), traced(1))
    assert not same(traced(1), traced(2))


def test_wrappers_are_modules_of_their_own() -> None:
    assert not same(nn.DataParallel(network()), network())
    assert same(nn.DataParallel(network()), nn.DataParallel(network()))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=["strided", "jagged"])
def test_nested_tensors(layout: torch.layout) -> None:
    def made(*lengths: int) -> nn.Module:
        model = nn.Module()
        model.register_buffer("b", torch.nested.nested_tensor([torch.ones(n) for n in lengths], layout=layout))
        return model

    assert same(made(2, 3), made(2, 4)), "what differs along a nested tensor is its content"
    assert not same(made(2, 3), made(2, 3, 4))


def test_subclasses_of_tensors_count_by_shape() -> None:
    class Marked(torch.Tensor):
        pass

    def made(*shape: int) -> nn.Module:
        model = nn.Module()
        model.register_buffer("b", torch.zeros(shape).as_subclass(Marked))
        return model

    assert same(made(2), made(2))
    assert not same(made(2), made(3))


def test_fake_and_sparse_tensors() -> None:
    with torch._subclasses.FakeTensorMode():
        fake = nn.Linear(2, 2)
    assert same(fake, nn.Linear(2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sparse = Outer()
        sparse.register_buffer("b", torch.eye(3).to_sparse())
    dense = Outer()
    dense.register_buffer("b", torch.eye(3))
    assert same(sparse, dense), "the layout is not a part of the structure"


def test_a_kept_hook_handle_is_no_structure() -> None:
    """Handles are numbered over the whole process: two builds must agree all the same."""

    def build() -> nn.Module:
        module = nn.Linear(2, 2)
        module.handle = module.register_forward_hook(print)
        return module

    assert mk.fingerprint(build()) == mk.fingerprint(build())
    assert mk.fingerprint(build()).opaque_paths == ()
