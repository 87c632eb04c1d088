"""The nets of the bench, by name."""

from __future__ import annotations

from benchmarks.quality.nets.crepe import Crepe
from benchmarks.quality.nets.digits_resnet import DigitsResNet
from benchmarks.quality.nets.mnist1d_vit import Mnist1dViT
from benchmarks.quality.task import Task

TASKS: dict[str, type[Task]] = {task.name: task for task in (DigitsResNet, Mnist1dViT, Crepe)}
