"""The nets of the bench, by name."""

from __future__ import annotations

from benchmarks.research.quality.nets.crepe import Crepe
from benchmarks.research.quality.nets.digits_resnet import DigitsResNet
from benchmarks.research.quality.nets.lstm_tagger import LSTMTagger
from benchmarks.research.quality.nets.minilm import MiniLM
from benchmarks.research.quality.nets.mnist1d_vit import Mnist1dViT
from benchmarks.research.quality.nets.source_decoder import SourceDecoder
from benchmarks.research.quality.task import Task

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (DigitsResNet, Mnist1dViT, LSTMTagger, Crepe, MiniLM, SourceDecoder)
}
