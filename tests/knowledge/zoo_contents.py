"""What the tests of prediction, suggestion and generation share: a graph of small models, and what is known of it."""

from functools import cache

from models.zoo import zoo_model
from modulekg_widgets.engine.knowledge.facts.contents import Contents, DataSetNode, JobNode
from modulekg_widgets.engine.knowledge.facts.records import ModelRecord, model_record
from modulekg_widgets.engine.knowledge.prediction.data.features import with_flops
from modulekg_widgets.engine.knowledge.prediction.predictor import Predictor, fitted_predictor

SMALL = ("squeezenet1_1", "resnet18", "mobilenet_v3_small")
IMAGES = {"task": "classification", "image_size": 32}
DATASETS = {
    "CIFAR-10": DataSetNode("CIFAR-10", {**IMAGES, "classes": 10}),
    "CIFAR-100": DataSetNode("CIFAR-100", {**IMAGES, "classes": 100}),
    "digits": DataSetNode("digits", {**IMAGES, "classes": 10, "image_size": 28}),
    "speech": DataSetNode("speech", {"task": "recognition", "hours": 960}),
}


@cache
def zoo_record(name: str) -> ModelRecord:
    return model_record(zoo_model(name), name)


def contents_of(*records: ModelRecord, jobs: list[JobNode] | None = None) -> Contents:
    """A graph of these models, the data sets above and some Jobs."""
    modules = {key: node for record in records for key, node in record.nodes.items()}
    models = {record.model.name: record.model for record in records}
    return Contents(modules=modules, models=models, datasets=DATASETS, jobs={job.name: job for job in jobs or []})


def job(dataset: str, model: str, accuracy: float) -> JobNode:
    return JobNode(f"{model} on {dataset}: {accuracy}", None, dataset, model, accuracy, None, {}, 0.0, None, {})


JOBS = [job("CIFAR-10", "resnet18", 0.94), job("CIFAR-10", "mobilenet_v3_small", 0.91)]


@cache
def small_contents() -> Contents:
    return contents_of(*map(zoo_record, SMALL), jobs=JOBS)


@cache
def small_predictor() -> Predictor:
    """What is known of `small_contents`, fitted once."""
    return fitted_predictor(small_contents())


def traced(record: ModelRecord, flops: int) -> ModelRecord:
    return with_flops(record, flops, ((1, 3, 224, 224),))
