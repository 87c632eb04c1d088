"""Models that change, recurse, fail and run elsewhere: in threads, transforms, tracers and checkpoints."""

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.utils.checkpoint import checkpoint

import modulekg_widgets as mk
from models.functional import Lambda
from monitoring.surroundings import process_state

NORMS = ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm", "InputGradSndNorm"]


@pytest.fixture(autouse=True)
def _the_process_is_as_before() -> Iterator[None]:
    torch.manual_seed(0)
    before = process_state()
    yield
    assert {**process_state(), "random": 0} == {**before, "random": 0}


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


def norm(tensor: torch.Tensor | None) -> float:
    assert tensor is not None
    return float(np.linalg.norm(tensor.detach().numpy()))


def about(*tensors: torch.Tensor | None) -> Any:
    numbers = [norm(tensor) for tensor in tensors]
    return pytest.approx(numbers[0] if len(numbers) == 1 else numbers, rel=1e-4)


# ------------------------------------------------------------------ models that change


def test_a_module_that_is_replaced_while_it_is_watched() -> None:
    model = net()
    with mk.Monitor(model, {"*": ["OutputSndNorm", "WeightNorm", "OutputGradSndNorm"]}) as monitor:
        for step in range(3):
            if step == 1:
                model[2] = nn.Linear(4, 4)
                model.add_module("more", nn.Linear(4, 4))
            model(torch.randn(2, 4)).sum().backward()
            monitor.track(step)
    output = monitor.get_output()
    assert list(output["0"]["OutputSndNorm"]) == [0, 1, 2]
    assert list(output["2"]["OutputSndNorm"]) == [0, 1, 2]
    assert output["2"]["WeightNorm"][2] == about(model[2].weight)
    assert "more" not in output


def test_a_weight_that_changes_its_shape() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with mk.Monitor(model, {"0": ["WeightNorm", "UpdateRatio", "WeightParamJump", "InputMean"]}) as monitor:
        for step, width in enumerate([4, 4, 6]):
            model[0].weight = nn.Parameter(torch.ones(4, width))
            model[0].in_features = width
            model(torch.randn(2, width))
            monitor.track(step)
    values = monitor.get_output()["0"]
    assert values["WeightNorm"][2] == pytest.approx(24**0.5)
    assert [len(value) for value in values["InputMean"].values()] == [4, 4, 6]
    assert list(values["WeightParamJump"]) == [1]
    assert monitor.reasons == {}


def test_training_and_eval_of_a_part_go_by_the_model() -> None:
    model = net()
    model[0].eval()  # a frozen part, as batch norm often is
    with mk.Monitor(model, {"0": ["OutputSndNorm"]}) as monitor:
        model(torch.randn(2, 4))
        model.eval()
        model[0].train()
        model(torch.randn(2, 4))
        monitor.track(0)
    assert isinstance(monitor.get_output()["0"]["OutputSndNorm"][0], float)
    assert isinstance(monitor.get_output("eval")["0"]["OutputSndNorm"][0], float)


def test_a_module_that_calls_itself() -> None:
    def forward(module: Lambda, x: torch.Tensor, depth: int = 3) -> torch.Tensor:
        return module(x * 2, depth - 1) + x if depth else x

    x = torch.randn(2, 4, requires_grad=True)
    model = Lambda(forward)
    with mk.Monitor(model, {"": NORMS}) as monitor:
        model(x).sum().backward()
        monitor.track(0)
    values = monitor.get_output()[""]
    assert values["InputSndNorm"][0] == about(x, 2 * x, 4 * x, 8 * x)  # calls are numbered as they begin
    assert values["OutputSndNorm"][0] == about(15 * x, 14 * x, 12 * x, 8 * x)
    ones = torch.ones(2, 4)
    assert values["OutputGradSndNorm"][0] == about(ones, ones, ones, ones)
    assert values["InputGradSndNorm"][0] == about(15 * ones, 7 * ones, 3 * ones, ones)


def test_a_generator_as_forward() -> None:
    def forward(module: Lambda, x: torch.Tensor) -> Iterator[torch.Tensor]:
        for _ in range(3):
            x = module.get_submodule("inner")(x)
            yield x

    model, x = Lambda(forward, inner=nn.Linear(4, 4)), torch.randn(2, 4)
    with mk.Monitor(model, {"*": NORMS}) as monitor:
        outputs = list(model(x))
        outputs[-1].sum().backward()
        monitor.track(0)
    assert monitor.get_output()["inner"]["OutputSndNorm"][0] == about(*outputs)
    assert "OutputSndNorm" not in monitor.get_output()[""]


def test_a_forward_that_fails_in_the_middle_and_is_tried_again() -> None:
    """As one does when memory runs out: the values of the calls that returned are right, and paired."""

    def forward(module: Lambda, x: torch.Tensor) -> torch.Tensor:
        h = module.get_submodule("first")(x)
        if len(x) > 2:
            raise torch.OutOfMemoryError
        return module.get_submodule("last")(h)

    model = Lambda(forward, first=nn.Linear(4, 4), last=nn.Linear(4, 4))
    large, small = torch.randn(8, 4), torch.randn(2, 4)
    with mk.Monitor(model, {"*": NORMS}) as monitor:
        with pytest.raises(torch.OutOfMemoryError):
            model(large)
        y = model(small)
        y.sum().backward()
        monitor.track(0)
    output = monitor.get_output()
    assert output["last"]["OutputSndNorm"][0] == about(y)
    assert output["first"]["InputSndNorm"][0] == about(large, small)
    assert np.ravel(output[""]["OutputSndNorm"][0])[-1] == about(y)
    assert np.ravel(output[""]["OutputGradSndNorm"][0])[-1] == about(torch.ones(2, 4))


# ------------------------------------------------------------------ threads


def test_two_threads_in_the_same_module_keep_their_calls_apart() -> None:
    """The call that begins first ends within the other."""
    begun, go_on = threading.Event(), threading.Event()

    def forward(_: Lambda, x: torch.Tensor) -> torch.Tensor:
        if float(x[0]) == 1.0:
            begun.set()
            assert go_on.wait(30)
        else:
            go_on.set()
            thread.join(30)
        return x * 1

    model = Lambda(forward)
    with mk.Monitor(model, {"": NORMS}) as monitor:
        thread = threading.Thread(target=model, args=(torch.tensor([1.0]),))
        thread.start()
        assert begun.wait(30)
        model(torch.tensor([2.0]))
        monitor.track(0)
    assert monitor.get_output()[""] == {"InputSndNorm": {0: [1.0, 2.0]}, "OutputSndNorm": {0: [1.0, 2.0]}}


def test_many_threads_call_the_model() -> None:
    model, failed = net(), []

    def work() -> None:
        try:
            for _ in range(10):
                model(torch.randn(2, 4)).sum().backward()
        except BaseException as error:  # noqa: BLE001 - it is raised below, in the thread of the test
            failed.append(error)

    with mk.Monitor(model, {"*": NORMS}) as monitor:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        monitor.track(0)
    assert failed == []
    assert len(monitor.get_output()["0"]["OutputGradSndNorm"][0]) == 40
    assert None not in monitor.get_output()["0"]["OutputGradSndNorm"][0]


@pytest.mark.slow
def test_values_are_read_by_another_thread_while_the_training_runs() -> None:
    model, steps, failed, done = net(), 200, [], threading.Event()
    monitor = mk.Monitor(model, {"*": ["OutputSndNorm", "OutputGradSndNorm"]})

    def read(look: Callable[[], list[int]]) -> None:
        try:
            while not done.is_set():
                steps_seen = look()
                assert steps_seen == list(range(len(steps_seen)))
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    def in_output() -> list[int]:
        return list(monitor.get_output().get("0", {}).get("OutputSndNorm", {}))

    def in_frame() -> list[int]:
        found = monitor.frame()
        return found[(found.module == "0") & (found.metric == "OutputSndNorm")].step.tolist()

    # one of them alone: pandas sets filters of warnings for a moment, and two threads would mix these up
    readers = [threading.Thread(target=read, args=(look,)) for look in (in_output, in_output, in_frame)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with monitor:
            for reader in readers:
                reader.start()
            for step in range(steps):
                model(torch.randn(2, 4)).sum().backward()
                monitor.track(step)
            done.set()
            for reader in readers:
                reader.join(60)
    finally:
        done.set()
        sys.setswitchinterval(before)
    assert failed == []
    rows = [row.step for row in monitor.history.rows()]
    assert rows == list(range(steps))


# ------------------------------------------------------------------ tracers and transforms


def passes() -> dict[str, Callable[[nn.Module, torch.Tensor], Any]]:
    return {
        "mk.trace": lambda model, x: mk.trace(model, x),
        "torch.export": lambda model, x: torch.export.export(model, (x,), strict=False),
        "torch.fx": lambda model, x: torch.fx.symbolic_trace(model),
        "vmap": lambda model, x: torch.func.vmap(model)(x),
        "meta": lambda model, x: torch.func.functional_call(
            model, {name: value.to("meta") for name, value in model.named_parameters()}, (x.to("meta"),)
        ),
        "jacrev": lambda model, x: torch.func.jacrev(model)(x[0]),
    }


@pytest.mark.parametrize("name", passes())
def test_a_look_at_the_model_within_a_step_is_no_call(name: str) -> None:
    model, x = net(), torch.randn(2, 4)
    with mk.Monitor(model, {"*": NORMS}) as monitor, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        passes()[name](model, x)
        y = model(x)
        y.sum().backward()
        passes()[name](model, x)
        monitor.track(0)
    values = monitor.get_output()
    assert values[""]["OutputSndNorm"] == {0: about(y)}
    assert values[""]["OutputGradSndNorm"] == {0: about(torch.ones(2, 4))}
    assert values["0"]["InputSndNorm"] == {0: about(x)}


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_scripted_trace_has_no_part_of_the_monitor() -> None:
    model, x = net(), torch.randn(2, 4)
    plain = torch.jit.trace(model, (x,), check_trace=False)
    with mk.Monitor(model, {"*": NORMS}) as monitor:
        watched = torch.jit.trace(model, (x,), check_trace=False)
        monitor.track(0)
    kinds = [[node.kind() for node in traced.inlined_graph.nodes()] for traced in (plain, watched)]
    assert kinds[0] == kinds[1]
    assert torch.equal(watched(x), model(x))
    assert monitor.get_output() == {}


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_gradients_of_torch_func_are_the_same_under_a_monitor() -> None:
    model, x = net(), torch.randn(2, 4)
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, weights, (x,)).square().sum()

    per_example = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    expected = per_example(weights, x)
    with mk.Monitor(model, {"*": NORMS}) as monitor:
        found = per_example(weights, x)
        torch.func.hessian(loss)(weights, x)
        monitor.track(0)
    assert all(torch.equal(found[name], expected[name]) for name in weights)


def test_forward_mode_gradients() -> None:
    model, x = net(), torch.randn(2, 4)
    with mk.Monitor(model, {"*": NORMS}) as monitor:
        with forward_ad.dual_level():
            y = model(forward_ad.make_dual(x, torch.ones_like(x)))
            tangent = forward_ad.unpack_dual(y).tangent
            assert tangent is not None
            monitor.track(0)
        model(x)
        monitor.track(1)
    assert list(monitor.get_output()[""]["OutputSndNorm"].values()) == [about(model(x))] * 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_there_are_values_of_the_forward(mode: Any) -> None:
    model, x = net().eval(), torch.randn(2, 4)
    with mk.Monitor(model, {"*": [*NORMS, "RankMe"]}) as monitor, warnings.catch_warnings():
        warnings.simplefilter("error")
        with mode():
            y = model(x)
        monitor.track(0)
    values = monitor.get_output("eval")[""]
    assert sorted(values) == ["InputSndNorm", "OutputSndNorm", "RankMe"]
    assert values["OutputSndNorm"][0] == about(y.clone())


def test_no_call_of_a_hook_is_logged_as_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    model, x = net(), torch.randn(2, 4)
    with mk.Monitor(model, {"*": NORMS}) as monitor, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for look in passes().values():
            look(model, x)
        with torch.inference_mode():
            model(x)
        monitor.track(0)
    assert [record for record in caplog.records if record.name == "modulekg_widgets"] == []


# ------------------------------------------------------------------ checkpointing


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.tanh(self.layer(x)))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("segments", [[[0, 1, 0]], [[0, 1], [0]], [[0], [1, 0]], [[0], [1], [0]]], ids=str)
def test_calls_under_checkpointing_have_their_own_gradients(reentrant: bool, segments: list[list[int]]) -> None:
    model, x = nn.Sequential(Twice(), Twice()), torch.randn(3, 4, requires_grad=True)
    found = []

    def through(h: torch.Tensor, checkpointed: bool) -> torch.Tensor:
        for places in segments:
            part = nn.Sequential(*[model[at] for at in places])
            h = checkpoint(part, h, use_reentrant=reentrant) if checkpointed else part(h)
        return h

    for checkpointed in (False, True):
        model.zero_grad()
        with mk.Monitor(model, {"Linear": ["InputSndNorm", "OutputGradSndNorm"]}) as monitor:
            through(x, checkpointed).square().sum().backward()
            monitor.track(0)
        found.append({path: {name: by[0] for name, by in of.items()} for path, of in monitor.get_output().items()})
    assert found[0].keys() == found[1].keys() == {"0.layer", "1.layer"}
    for path, expected in found[0].items():
        for name, values in expected.items():
            assert found[1][path][name] == pytest.approx(values, rel=1e-5)


def test_checkpoints_within_checkpoints() -> None:
    model, x = Twice(), torch.randn(3, 4, requires_grad=True)
    with mk.Monitor(model, {"layer": NORMS}) as monitor:
        outer = Lambda(lambda _, h: checkpoint(model, h, use_reentrant=False))
        checkpoint(outer, x, use_reentrant=False).sum().backward()
        monitor.track(0)
    assert len(monitor.get_output()["layer"]["OutputGradSndNorm"][0]) == 2
