"""Contents with everything that a file may change or lose, and a comparison that sees it."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from cases.nasty_modules import NASTY
from knowledge.graphs import contents_of, zoo_contents
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode, UserNode

CASES = Path(__file__).resolve().parents[1] / "cases"
PAYLOADS = [
    line
    for line in (CASES / "xss_payloads.txt").read_text("utf-8").split("\n")
    if line.strip() and not line.startswith("#")
]
HOSTILE = [
    *PAYLOADS, "=1+1", '=HYPERLINK("http://xss.invalid")', "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "＝1",
    "a;=1;b", "", " ", "'", '"', '""', "a,b", 'a"b', "a\nb", "a\r\nb", "\0", "a\0b", "\ud800", "\ud83d\ude00", "😀",
    "\udc00\ud800", "\u202etxt", "\ufeff", "\ufffe", "\uffff", "\x85", "\u2028", "\x0b", "\x1b[2J", "\\", "\\u0041",
    "\\\\u0041", "\\N", "]]>", "<!--", "&amp;", "&#0;", "<!DOCTYPE x>", "constructor", "__proto__", "null", "nan", "1",
    "Module", "Job:x", "a:b", "%41", "@id", "@type", "$tuple", "id", "L" * 10_000, "é", "e\u0301", " lead", "trail ",
    "a  b", "\x7f",
]  # fmt: skip
READABLE = ("graphml", "cyjs", "jsonld")
WRITTEN = (*READABLE, "gexf", "csv", "dot", "edges")


def exactly(value: Any) -> Any:
    """Something that is equal for two values of the same types, content and order, NaN and -0.0 included."""
    kind = type(value)
    if kind is float:
        return kind, value.hex()
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if isinstance(value, dict):
        return kind, [(exactly(key), exactly(item)) for key, item in value.items()]
    if kind in (list, tuple):
        return kind, [exactly(item) for item in value]
    if is_dataclass(value):
        return kind, [(field.name, exactly(getattr(value, field.name))) for field in fields(value)]
    return kind, value


def hostile_model() -> nn.Module:
    """Children and classes that are called by hostile texts."""
    model = nn.Sequential()
    for name in HOSTILE:
        model._modules[name] = type(class_name(name), (nn.Identity,), {})()
    return model


def class_name(name: str) -> str:
    """`name` without what Python lets no class be called by."""
    return name.replace("\0", "0").encode("utf-8", "backslashreplace").decode("utf-8")


class Ring(nn.Module):
    """A module that contains itself."""

    def __init__(self) -> None:
        super().__init__()
        self.empty = None
        self.register_module("none", None)
        self.inner = nn.Sequential(nn.Linear(2, 2))
        self.inner._modules["back"] = self


@cache
def everything() -> Contents:
    """All types of nodes, with figures of a trace, histories, values of every type and hostile names."""
    made = contents_of(
        hostile=hostile_model(), **{"<script>": NASTY["hostile_names"]["make"](), "zz": nn.ReLU(), "ring": Ring()}
    )
    zoo = zoo_contents(("resnet18", "squeezenet1_1"))
    models = {**made.models, **zoo.models}
    models["resnet18"] = traced(zoo)
    names = list(HOSTILE)
    values = {
        "nan": float("nan"), "inf": float("-inf"), "zero": -0.0, "int": 2**70, "tuple": (1, (2.0, "x")), "none": None,
        "bytes": b"\0\xff", "complex": 1j, "when": datetime(2024, 1, 1, tzinfo=timezone.utc), 3: {True: [()]},
    }  # fmt: skip
    datasets = {name: DataSetNode(name, {name: name, "values": values}) for name in names}
    users = {name: UserNode(name, {"text": name}) for name in reversed(names)}
    jobs = {name: job(name, number, values) for number, name in enumerate(names)}
    return Contents("structure", {**made.modules, **zoo.modules}, models, datasets, users, jobs)


def job(name: str, number: int, values: dict[Any, Any]) -> JobNode:
    history = {name: [(0.0, float("nan")), (1.5, -0.0)], "accuracy": [(1, 0.25), (2, 0.5)], "none": []}
    if number % 3 == 0:
        return JobNode(name, None, None, None, None, None, {}, 0.0, None, {})
    ends = (name, name, "ring") if number % 3 == 1 else (None, name, "hostile")
    return JobNode(name, *ends, 1 / 3, 2.0, history, 1.7e9 + number, 1.8e9 + 1 / 3, {name: name, "values": values})


def traced(zoo: Contents) -> Any:
    model = zoo.models["resnet18"]
    keys = list(zoo.modules)
    return replace(
        model, flops=2**62, inputs=((1, 3, 224, 224), ()), module_flops={key: i for i, key in enumerate(keys[:9])},
        feeds=Counter({(keys[0], keys[1]): 3, (keys[2], keys[1]): 1, (keys[3], keys[3]): 2}),
        calls=Counter({(keys[1], "aten.conv2d"): 5, (keys[2], "=evil(\"<b>\0"): 1}),
    )  # fmt: skip
