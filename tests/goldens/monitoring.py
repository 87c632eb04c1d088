"""A short training with exact numbers: what a monitor records, and what it writes to files."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch

import modulekg_widgets as mk
from goldens.digests import Case
from goldens.nets import exact_net

SINKS = ("run.jsonl", "run.csv")
METRICS = [
    "ActivationKurtosis", "ActivationMax", "AttentionEntropy", "AttentionMaxLogit", "DeadNeuronFraction",
    "GradientNoiseScale", "InputCovCondition", "InputCovCondition20", "InputCovCondition50",
    "InputCovCondition80", "InputCovMaxEig", "InputCovStableRank", "InputGradSndNorm", "InputHistogram",
    "InputMean", "InputSndNorm", "InputStd", "LinearDeadNeuronNum", "LossSpike", "MeanTID", "MeanTIDByStep",
    "NonFiniteOrigin", "OutlierRatio", "OutputGradHistogram", "OutputGradSndNorm", "OutputHistogram",
    "OutputSndNorm", "RankMe", "Sparsity", "UpdateRatio", "VarTID", "VarTIDByStep", "WeightGradHistogram",
    "WeightGradNorm", "WeightHistogram", "WeightNorm", "WeightParamJump", "WeightStatistic",
]  # fmt: skip
CONFIG = {
    "0": ["WeightNorm", "OutputSndNorm", "OutputHistogram", "WeightStatistic", "InputMean", "WeightGradNorm"],
    "2": ["OutputGradSndNorm", "WeightParamJump", "OutputHistogram", "WeightNorm"],
    "ReLU": ["ActivationMax", "DeadNeuronFraction"],
}


def trained(config: Any, steps: int = 4, folder: Path | None = None, **settings: Any) -> mk.Monitor:
    """A monitor behind a short training."""
    net = exact_net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.125)
    monitor = mk.Monitor(net, config, name="golden", **settings)
    for name in SINKS if folder else ():
        assert folder is not None
        monitor.add_sink(folder / name)
    x = (torch.arange(48.0).reshape(12, 4) * 5 % 11 - 5) / 8
    with monitor:
        for step in range(steps):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
            monitor.track(step)
        net.eval()
        with torch.no_grad():
            net(x)
    return monitor


def listed() -> Any:
    """The table of the metrics that the package brings; other tests register some in the same process."""
    table = mk.monitoring.metrics()
    return table[table["name"].isin(METRICS)].reset_index(drop=True)


def of_metric(name: str) -> Any:
    """The values of one metric of all modules, or why there are none."""
    try:
        monitor = trained({path: [name] for path in ("0", "1", "2")})
    except mk.ModuleKGError as error:
        return {"refused": str(error)}
    return {"values": monitor.get_output(), "reasons": monitor.reasons, "unmeasured": monitor.unmeasured()}


def training() -> dict[str, Any]:
    """Many metrics at once."""
    monitor = trained(CONFIG)
    return {"frame": monitor.frame(), "str": str(monitor), "reasons": monitor.reasons}


def schedules() -> dict[str, Any]:
    """Texts of schedules, and the steps that are due."""
    texts = [
        "linear(5, 2)", "linear(3)", "logarithmic(1, 100, 5)", "steps(1, 4)", "range(2, 9, 3)", "window(2, 5)",
        "on(loss, above, 2)", "linear(0)", "every 2",
    ]  # fmt: skip
    found: dict[str, Any] = {}
    for text in texts:
        try:
            schedule = mk.monitoring.schedule(text)
            found[text] = [step for step in range(25) if schedule.due(step)]
        except mk.ModuleKGError as error:
            found[text] = str(error)
    return found


def files() -> dict[str, Any]:
    """The files of sinks, and what is read back."""
    with tempfile.TemporaryDirectory() as folder:
        trained({"0": ["WeightNorm", "OutputHistogram"], "2": ["WeightStatistic"]}, folder=Path(folder))
        found: dict[str, Any] = {name: Path(folder, name).read_text("utf-8") for name in SINKS}
        return {**found, "read": {name: mk.load_recording(Path(folder, name)).frame() for name in SINKS}}


def alerts() -> dict[str, Any]:
    """Alerts of a threshold."""
    net = exact_net()
    monitor = mk.Monitor(net, {"0": ["WeightNorm"]}, name="golden")
    monitor.alert("WeightNorm", above=0.5)
    with monitor:
        net(torch.ones(2, 4)).sum().backward()
        monitor.track(0)
    return {"alerts": [str(alert) for alert in getattr(monitor, "alerts", [])]}


def hessian() -> Any:
    """The curvature of a loss."""
    net = exact_net()
    monitor = mk.Monitor(net, {"0": ["WeightNorm"]})
    return monitor.hessian(net(torch.ones(2, 4)).square().mean(), samples=4, iterations=8)


def refusals() -> dict[str, str]:
    """What is said of wrong configurations."""
    found = {}
    configs: dict[str, Any] = {
        "metric": {"0": ["WeightNrom"]}, "module": {"7": ["WeightNorm"]}, "class": {"Conv2d": ["WeightNorm"]},
        "kind": {"0": 3}, "empty": {},
    }  # fmt: skip
    for name, config in configs.items():
        try:
            mk.Monitor(exact_net(), config)
            found[name] = "not refused"
        except mk.ModuleKGError as error:
            found[name] = str(error)
    return found


def cases() -> dict[str, Case]:
    """All of this subject."""
    return {
        **{f"metric {name}": Case(partial(of_metric, name), 5) for name in METRICS},
        "table of metrics": Case(listed),
        "training": Case(training, 5),
        "schedules": Case(schedules),
        "files": Case(files, 5),
        "alerts": Case(alerts, 5),
        "hessian": Case(hessian, 4),
        "refusals": Case(refusals),
    }
