"""What monitoring costs and gives on a device: a part of `cuda_run.py`."""

from __future__ import annotations

import contextlib
import copy
import math
import statistics
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from torch import nn

import modulekg_widgets as mk
from modulekg_widgets.engine.monitoring.metrics import METRICS

Tensor = torch.Tensor
EIGHT = [
    "InputSndNorm", "InputMean", "OutputSndNorm", "ActivationMax", "Sparsity", "OutputGradSndNorm", "WeightNorm",
    "WeightGradNorm",
]  # fmt: skip
LAYERS = (nn.Conv2d, nn.Linear)
SHARES = {"Sparsity", "OutlierRatio", "DeadNeuronFraction", "LinearDeadNeuronNum"}  # of elements: 0 is no small number
WAITING = "called a synchronizing"
MAY_WAIT = {  # by their definition: a decomposition, or one that looks whether values are finite first
    "InputCovCondition", "InputCovCondition20", "InputCovCondition50", "InputCovCondition80", "InputCovMaxEig",
    "InputCovStableRank", "RankMe",
}  # fmt: skip


class Training:
    """A ResNet-18 for small images; `step` gives the loss, which stays on the device."""

    def __init__(self, device: torch.device, batch: int, lr: float = 0.01) -> None:
        torch.manual_seed(0)
        self.model = torchvision.models.resnet18(num_classes=10)
        self.model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.model.maxpool = nn.Identity()  # type: ignore[assignment]
        x, y = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
        self.x, self.y = x.to(device), y.to(device)
        self.model.to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)

    def step(self) -> Tensor:
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Everything(nn.Module):
    """Layers that all metrics have something to say of."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.attention, self.head = nn.MultiheadAttention(32, 4, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu().flatten(2).transpose(1, 2)
        return self.head(self.attention(x, x, x, need_weights=False)[0].mean(1))


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def of_layers(metrics: list[Any]) -> dict[Any, Any]:
    return {key: list(metrics) for key in LAYERS}


def eight(schedule: str = "") -> dict[Any, Any]:
    return of_layers([[name, schedule] if schedule else name for name in EIGHT])


WATCHED: dict[str, Any] = {
    "default": None,
    "eight": eight(),
    "eight, every 10th": eight("linear(10)"),
    "three norms": of_layers(["InputSndNorm", "OutputSndNorm", "OutputGradSndNorm"]),
    "histograms": of_layers(["WeightHistogram", "OutputHistogram", "OutputGradHistogram"]),
}


def cost(device: torch.device) -> str:
    """Steps with and without a monitor in turn."""
    batch, steps, rounds = (256, 20, 7) if device.type == "cuda" else (4, 2, 2)
    training = Training(device, batch)

    def timed(track: Callable[[], object]) -> float:
        settle(device)
        start = time.perf_counter()
        for _ in range(steps):
            training.step()
            track()
        settle(device)
        return (time.perf_counter() - start) / steps

    timed(lambda: None)
    plain: list[float] = []
    found: dict[str, list[float]] = {name: [] for name in WATCHED}
    monitors = {name: mk.Monitor(training.model, config) for name, config in WATCHED.items()}
    for _ in range(rounds):
        for name, monitor in monitors.items():
            plain.append(timed(lambda: None))
            with monitor:
                found[name].append(timed(lambda monitor=monitor: monitor.track(monitor.step)) / plain[-1])
    assert not any(monitor.reasons for monitor in monitors.values())
    ratios = ", ".join(f"{name} ×{statistics.median(own):.3f}" for name, own in found.items())
    return f"{1 / statistics.median(plain):.1f} steps/s plain; {ratios}"


def hook_count() -> int:
    every = vars(nn.modules.module)
    return sum(len(value) for name, value in every.items() if name.startswith("_global_") and hasattr(value, "keys"))


def same_training(device: torch.device, config: Any, around: Callable[[], Any] = contextlib.nullcontext) -> str:
    """Whether losses and weights with a monitor are those without, bit by bit."""
    torch.use_deterministic_algorithms(True)
    hooks = hook_count()
    alone, watched = (Training(device, 64 if device.type == "cuda" else 4) for _ in range(2))
    steps = 12 if device.type == "cuda" else 3
    with around():
        losses = [alone.step() for _ in range(steps)]
        with mk.Monitor(watched.model, config) as monitor:
            own = []
            for step in range(steps):
                own.append(watched.step())
                monitor.track(step)
    assert hook_count() == hooks
    assert not any(own._forward_hooks or own._backward_hooks for own in watched.model.modules())
    assert not monitor.reasons, monitor.reasons
    assert torch.equal(torch.stack(losses), torch.stack(own)), "other losses"
    for name, parameter in alone.model.named_parameters():
        assert torch.equal(parameter, dict(watched.model.named_parameters())[name]), name
    return f"{steps} losses and all weights are bit-equal, no hook is left"


def run_everything(device: torch.device, names: list[str], steps: int = 3) -> mk.Monitor:
    """Train a little net and measure some metrics on each of its modules."""
    torch.manual_seed(0)
    model, batches = Everything(), [torch.randn(16, 3, 12, 12) for _ in range(steps)]
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # ours, of what has no value
        with mk.Monitor(model, {"*": names}) as monitor:
            for step, x in enumerate(batches):
                optimizer.zero_grad()
                loss = model(x.to(device)).square().mean()
                loss.backward()
                optimizer.step()
                if "LossSpike" in names:
                    monitor.log({"loss": loss})
                monitor.track(step)
    return monitor


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for each in value.values() for number in numbers(each)]
    if isinstance(value, int | float):
        return [float(value)]
    return [number for each in value for number in numbers(each)]


def differences(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """By metric the largest difference, as a share of the largest number of a value; `inf` where one has none."""
    found: dict[str, float] = {}
    for module, metrics in one.items():
        for name, steps in metrics.items():
            for step, value in steps.items():
                left, right = numbers(value), numbers(other.get(module, {}).get(name, {}).get(step, ()))
                largest = max((abs(each) for each in left if math.isfinite(each)), default=0.0) or 1.0
                largest = 1.0 if name in SHARES else largest
                off = math.inf if len(left) != len(right) else max(
                    (0.0 if a == b or (math.isnan(a) and math.isnan(b)) else abs(a - b) / largest
                     for a, b in zip(left, right, strict=True)), default=0.0)  # fmt: skip
                found[name] = max(found.get(name, 0.0), math.inf if math.isnan(off) else off)
    return found


def same_values(device: torch.device) -> str:
    """All metrics of an installation, on each module."""
    names = sorted(METRICS)
    torch.use_deterministic_algorithms(True)
    here, there = (run_everything(each, names).get_output() for each in (torch.device("cpu"), device))
    found = differences(here, there)
    worse = {name: off for name, off in found.items() if not off < 1e-3}
    text = (
        f"{len(found)} metrics, off by at most {max(off for off in found.values() if off < 1e-3):.1e}; worse: {worse}"
    )
    assert not worse, text
    return text


def same_values_of_a_training(device: torch.device) -> str:
    """Default metrics and the eight, over steps of a ResNet-18."""
    found: dict[str, float] = {}
    for config in (None, eight()):
        outputs = []
        for each in (torch.device("cpu"), device):
            training = Training(each, 16, lr=1e-3)
            with mk.Monitor(training.model, config) as monitor:
                for step in range(2):
                    training.step()
                    monitor.track(step)
            outputs.append(monitor.get_output())
        for name, off in differences(*outputs).items():
            found[name] = max(found.get(name, 0.0), off)
    text = ", ".join(f"{name} {off:.1e}" for name, off in found.items())
    assert max(found.values()) < 1e-3, text
    return text


def waits(device: torch.device) -> str:
    """How often each metric waits for the device: in three steps of the little net, counted by torch."""
    if device.type != "cuda":
        return "nothing to wait for"
    found: dict[str, int] = {}
    places: Counter[str] = Counter()
    for name in sorted(METRICS):
        run_everything(device, [name])
        with listening() as heard:
            run_everything(device, [name])
        own = [each for each in heard if "modulekg_widgets" in each]
        found |= {name: len(own)} if own else {}
        places.update(own)
    text = f"{found or 'none'}, at {dict(places.most_common(12))}"
    assert found.keys() <= MAY_WAIT | {"LossSpike"}, text
    return text


def waits_of_steps(device: torch.device) -> str:
    """The same for steps of a ResNet-18 with the default metrics and with the eight, once all is allocated."""
    if device.type != "cuda":
        return "nothing to wait for"
    found = []
    for config in (None, eight()):
        training = Training(device, 64)
        with mk.Monitor(training.model, config) as monitor, contextlib.ExitStack() as later:
            heard: list[str] = []
            for step in range(40):
                if step == 5:
                    heard = later.enter_context(listening())
                training.step()
                monitor.track(step)
        found.append(Counter(each for each in heard if "modulekg_widgets" in each))
    assert not any(found), found
    return "none in 35 steps, with the default metrics and with the eight"


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Where Python waits for the device: files and lines, one for each time."""
    heard: list[str] = []
    before, plain = warnings.showwarning, torch.cuda.Event.synchronize

    def show(message: Any, category: Any, filename: str, line: int, *_: Any) -> None:
        if WAITING in str(message):
            heard.append(f"{filename[filename.find('modulekg_widgets') :]}:{line}")

    def waited(event: Any) -> None:
        if not event.query():
            heard.append("modulekg_widgets: an event")
        plain(event)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        torch.cuda.Event.synchronize = waited  # type: ignore[method-assign]
        torch.cuda.set_sync_debug_mode("warn")
        try:
            torch.ones(1, device="cuda").item()
            assert len(heard) == 1, "waiting is not heard"
            heard.clear()
            yield heard
        finally:
            torch.cuda.set_sync_debug_mode("default")
            torch.cuda.Event.synchronize = plain  # type: ignore[method-assign]
            warnings.showwarning = before


def amp(device: torch.device) -> str:
    """Under autocast with a loss scale: gradients as they are without the scale, and the same training."""
    kind = torch.float16 if device.type == "cuda" else torch.bfloat16
    outputs, losses = [], []
    for scale in (1.0, 1024.0, 1024.0):
        training = Training(device, 32 if device.type == "cuda" else 4)
        scaler = torch.amp.GradScaler(device.type, init_scale=scale)
        is_watched = len(losses) < 2
        own = []
        monitor = mk.Monitor(training.model, of_layers(["OutputGradSndNorm", "RankMe"]), scaler=scaler)
        with monitor if is_watched else contextlib.nullcontext():
            for step in range(3):
                training.optimizer.zero_grad()
                with torch.autocast(device.type, kind):
                    loss = F.cross_entropy(training.model(training.x), training.y)
                scaler.scale(loss).backward()
                scaler.step(training.optimizer)
                scaler.update()
                own.append(loss.detach())
                if is_watched:
                    monitor.track(step)
        outputs.append(monitor.get_output())
        losses.append(torch.stack(own))
    assert torch.equal(losses[1], losses[2]), "other losses"
    one, other = ({name: {0: own["OutputGradSndNorm"][0]} for name, own in each.items()} for each in outputs[:2])
    off = max(abs(one[name][0] / other[name][0] - 1) for name in one)
    assert off < 0.05, off
    return f"losses bit-equal, gradient norms under two scales differ by {off:.1e}"


def beside(device: torch.device) -> str:
    """A thread trains, with dropout; this one looks at the same model all the while."""
    torch.use_deterministic_algorithms(True)

    def train(model: nn.Module, losses: list[Tensor]) -> None:
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())

    steps = 200 if device.type == "cuda" else 10
    training = Training(device, 64 if device.type == "cuda" else 8)
    x, y = training.x, training.y
    first = nn.Sequential(training.model, nn.Dropout(0.5), nn.Linear(10, 10).to(device))
    second = copy.deepcopy(first)
    alone, looked_at = [], []
    train(first, alone)
    thread = threading.Thread(target=train, args=(second, looked_at))
    thread.start()
    looks: Counter[str] = Counter()
    while thread.is_alive():
        graph = mk.trace(second, x)
        mk.plan(graph, ratio=0.5)
        looks[graph.traced_on] += 1
    thread.join()
    assert looks
    assert torch.equal(torch.stack(alone), torch.stack(looked_at)), "other losses"
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name
    return f"{sum(looks.values())} looks ({', '.join(looks)}) in {steps} steps: losses and weights bit-equal"


def curvature(device: torch.device) -> str:
    found = []
    for each in (torch.device("cpu"), device):
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)), torch.randn(32, 8)
        model.to(each)
        monitor = mk.Monitor(model)
        values = monitor.hessian(model(x.to(each)).square().mean())
        found.append({path: {name: {0: value} for name, value in own.items()} for path, own in values.items()})
    off = max(differences(found[0], found[1]).values())
    assert off < 1e-2, off
    return f"traces and eigenvalues differ by {off:.1e} from those of the CPU"


def cases(device: torch.device) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "what it costs", lambda: cost(device)
    yield "default, bit-equal", lambda: same_training(device, None)
    yield "eight, bit-equal", lambda: same_training(device, eight())
    yield "histograms, deterministic", lambda: same_training(device, WATCHED["histograms"])
    yield "values, all metrics", lambda: same_values(device)
    yield "values, ResNet-18", lambda: same_values_of_a_training(device)
    yield "waits, by metric", lambda: waits(device)
    yield "waits, by step", lambda: waits_of_steps(device)
    yield "loss scale", lambda: amp(device)
    yield "beside a training thread", lambda: beside(device)
    yield "Hessian", lambda: curvature(device)
