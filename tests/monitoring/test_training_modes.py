"""The monitor under torch.compile, mixed precision, checkpointing, gradient accumulation, and where it refuses."""

import warnings
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import modulekg_widgets as mk

NORMS = ["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm", "InputGradSndNorm", "WeightGradNorm"]
ACTIVATIONS = NORMS[:4]


class CheckpointedConvNet(nn.Module):
    """Two convolutions with an in-place activation between them, and a linear layer; `twice` is called two times."""

    def __init__(self, checkpointed: str = "") -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.twice = nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.norm(self.conv(x)))
        return self.twice(x + self.twice(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.checkpointed:
            x = checkpoint(self.body, x, use_reentrant=self.checkpointed == "reentrant")
        else:
            x = self.body(x)
        return self.head(x.mean((2, 3)))


def net(checkpointed: str = "") -> CheckpointedConvNet:
    torch.manual_seed(0)
    return CheckpointedConvNet(checkpointed)


def batches(count: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(6, 3, 10, 10, generator=generator), torch.randint(0, 4, (6,), generator=generator))
        for _ in range(count)
    ]


def train(model: nn.Module, monitor: mk.Monitor | None = None, learner: nn.Module | None = None) -> list[float]:
    """The losses of a few steps of SGD; `learner` is what is called, when it is not the model itself."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    if monitor is not None:
        monitor.start()
    for step, (x, labels) in enumerate(batches()):
        optimizer.zero_grad()
        x.requires_grad_()  # reentrant checkpointing makes no graph otherwise
        loss = F.cross_entropy((model if learner is None else learner)(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if monitor is not None:
            monitor.track(step)
    if monitor is not None:
        monitor.stop()
    return losses


def values(monitor: mk.Monitor) -> dict[tuple[str, str, int, int], float]:
    return {(r.module, r.metric, r.step, r.call): r.value for r in monitor.readings(None)}


def plain_values() -> dict[tuple[str, str, int, int], float]:
    model = net()
    monitor = mk.Monitor(model, {"*": NORMS})
    train(model, monitor)
    return values(monitor)


def test_losses_and_weights_are_bit_equal_with_and_without_a_monitor() -> None:
    plain, watched = net(), net()
    everything = {"*": ["InputSndNorm", "InputGradSndNorm", "OutputGradSndNorm", "RankMe", "InputCovMaxEig"]}
    assert train(plain) == train(watched, mk.Monitor(watched, everything))
    for (name, one), other in zip(plain.state_dict().items(), watched.state_dict().values(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("kind", ["reentrant", "not reentrant"])
def test_checkpointing_runs_the_forward_again_and_it_is_counted_once(kind: str) -> None:
    model = net(kind)
    monitor = mk.Monitor(model, {"*": NORMS})
    train(model, monitor)
    found, expected = values(monitor), plain_values()
    gradients_of_inputs = {key for key in expected if key[1] == "InputGradSndNorm"}
    # what reentrant checkpointing detaches has no gradient at its input but in the second run
    compared = expected.keys() - (gradients_of_inputs if kind == "reentrant" else set())
    assert {key for key in found if key in compared} == compared
    assert {key: found[key] for key in compared} == pytest.approx({key: expected[key] for key in compared}, rel=1e-6)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("in_place", [False, True], ids=["torch.compile(model)", "model.compile()"])
@pytest.mark.usefixtures("fresh_compiler")
def test_a_compiled_model_is_measured_like_any_other(in_place: bool) -> None:
    model = net()
    if in_place:
        model.compile(backend="aot_eager")
    learner = model if in_place else torch.compile(model, backend="aot_eager")
    monitor = mk.Monitor(learner, {"*": [[name, "linear(2)"] for name in NORMS]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, monitor, learner)
    expected = {key: value for key, value in plain_values().items() if key[2] % 2 == 0}
    assert values(monitor) == pytest.approx(expected, rel=1e-4)


@pytest.mark.usefixtures("fresh_compiler")
def test_steps_without_measurements_run_compiled_and_whole() -> None:
    model = net()
    calls: list[int] = []

    def counting(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        def run(*args: torch.Tensor) -> object:
            calls.append(len(graph.graph.nodes))
            return graph(*args)

        return run  # type: ignore[return-value]

    learner = torch.compile(model, backend=counting, fullgraph=True)  # a graph break would raise
    train(model, mk.Monitor(learner, {"*": [["OutputSndNorm", "linear(2)"]]}), learner)
    assert len(calls) == 2  # steps 1 and 3; 0 and 2 were measured uncompiled
    assert len(set(calls)) == 1
    train(model, None, learner)
    assert len(calls) == 6  # the compiler's stance is as it was


@pytest.mark.usefixtures("fresh_compiler")
def test_what_is_compiled_while_the_monitor_runs_is_measured_too() -> None:
    model = net()
    monitor = mk.Monitor(model, {"conv": ["OutputSndNorm"]})
    with monitor:
        x, _ = batches()[0]
        step = torch.compile(lambda x: model(x).sum(), backend="aot_eager")
        for count in range(3):
            step(x).backward()
            monitor.track(count)
    # the first step began before anything was compiled
    assert list(monitor.get_output()["conv"]["OutputSndNorm"]) == [0, 1, 2]


def test_autocast_values_are_those_of_the_half_precision_tensors_in_full_precision() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    seen: dict[str, torch.Tensor] = {}
    handle = model[0].register_forward_hook(lambda module, args, output: seen.update(x=args[0], y=output))
    x = 100 * torch.randn(32, 64, generator=torch.Generator().manual_seed(0))
    with mk.Monitor(model, {"0": ["InputSndNorm", "OutputSndNorm", "InputCovMaxEig", "OutputGradSndNorm"]}) as monitor:
        with torch.autocast("cpu", torch.bfloat16):
            y = model(x)
            loss = y.float().pow(2).mean()
        loss.backward()
        monitor.track(0)
    handle.remove()
    found = {name: steps[0] for name, steps in monitor.get_output()["0"].items()}
    assert seen["y"].dtype == torch.bfloat16
    assert found["OutputSndNorm"] == pytest.approx(seen["y"].double().norm().item(), rel=1e-5)
    # a covariance in bfloat16 would be off by a percent
    assert found["InputCovMaxEig"] == pytest.approx(
        torch.linalg.eigvalsh(torch.cov(seen["x"].double().T))[-1].item(), rel=1e-5
    )


def test_the_loss_scale_is_taken_out_of_gradients_at_modules() -> None:
    scaled, plain = net(), net()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    x, labels = batches()[0]
    found = []
    for model, own in ((scaled, scaler), (plain, None)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with mk.Monitor(model, {"*": NORMS}, scaler=own) as monitor:
            loss = F.cross_entropy(model(x), labels)
            if own is None:
                loss.backward()
            else:
                own.scale(loss).backward()
                own.unscale_(optimizer)
            monitor.track(0)
        found.append(values(monitor))
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    assert scaler.get_scale() == 2.0**12


def test_accumulated_gradients_are_read_whole_and_each_part_is_a_call() -> None:
    model, whole = net(), net()
    for module in (model.norm, whole.norm):
        module.eval()  # batch statistics would differ between a batch and its halves
    x, labels = batches()[0]
    with mk.Monitor(whole, {"conv": NORMS}) as one:
        F.cross_entropy(whole(x), labels).backward()
        one.track(0)
    with mk.Monitor(model, {"conv": NORMS}) as parts:
        for half in (slice(0, 3), slice(3, 6)):
            (F.cross_entropy(model(x[half]), labels[half]) / 2).backward()
        parts.track(0)
    expected, found = one.get_output()["conv"], parts.get_output()["conv"]
    assert found["WeightGradNorm"][0] == pytest.approx(expected["WeightGradNorm"][0], rel=1e-5)
    for name in ("InputSndNorm", "OutputSndNorm", "OutputGradSndNorm"):
        first, second = found[name][0]
        assert (first**2 + second**2) ** 0.5 == pytest.approx(expected[name][0], rel=1e-5), name


def test_data_parallel_is_refused_with_a_sentence() -> None:
    with pytest.raises(mk.ModuleKGError, match="DistributedDataParallel"):
        mk.Monitor(nn.DataParallel(net()), {"*": NORMS})


def test_a_pass_in_eval_mode_has_values_of_its_own() -> None:
    model = net()
    x, labels = batches()[0]
    with mk.Monitor(model, {"conv": NORMS}) as monitor:
        F.cross_entropy(model(x), labels).backward()
        model.eval()
        with torch.no_grad():
            model(10 * x)
        model.train()
        monitor.track(0)
    trained, evaluated = monitor.get_output()["conv"], monitor.get_output(phase="eval")["conv"]
    assert trained["InputSndNorm"][0] == pytest.approx(x.norm().item(), rel=1e-5)
    assert evaluated["InputSndNorm"][0] == pytest.approx(10 * x.norm().item(), rel=1e-5)
    assert set(evaluated) == {"InputSndNorm", "OutputSndNorm"}
    assert set(monitor.frame().phase) == {"train", "eval"}


def test_output_falls_back_to_the_phase_that_has_values() -> None:
    """A frozen model stays in eval mode while it is trained."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)).eval()
    with mk.Monitor(model, {"*": ["OutputSndNorm", "WeightNorm"]}) as monitor:
        model(torch.randn(3, 4)).sum().backward()
        monitor.track(0)
    found = monitor.get_output()
    assert found["0"].keys() == {"OutputSndNorm", "WeightNorm"}
    assert found["1"].keys() == {"OutputSndNorm"}
    assert "OutputSndNorm" not in monitor.get_output("train")["0"]
    assert monitor.get_output("eval")["0"] == {"OutputSndNorm": found["0"]["OutputSndNorm"]}


def test_output_of_both_phases_is_that_of_train() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    with mk.Monitor(model, {"0": ["OutputSndNorm"]}) as monitor:
        y = model(torch.randn(3, 4))
        model.eval()(torch.randn(30, 4))
        monitor.track(0)
        model(torch.randn(3, 4))
        monitor.track(1)
    assert monitor.get_output() == {"0": {"OutputSndNorm": {0: pytest.approx(float(y.detach().norm()))}}}
    assert set(monitor.get_output("eval")["0"]["OutputSndNorm"]) == {0, 1}
