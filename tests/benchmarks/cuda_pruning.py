"""What cuts, plans, importances and files do on a device: a part of `cuda_run.py`."""

from __future__ import annotations

import copy
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import timm
import torch
import torch.nn.functional as F
import torchvision
import transformers
from torch import nn
from torchvision.models import detection, segmentation

import modulekg_widgets as mk

Tensor = torch.Tensor
Case = tuple[str, Callable[[], str]]
SHARE, NEAR = 0.6, 0.1
DEVICE = torch.device("cuda")


def use(device: torch.device) -> None:
    """All checks are of this device."""
    global DEVICE
    DEVICE = device


def is_cuda() -> bool:
    return DEVICE.type == "cuda"


class Net(NamedTuple):
    model: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def to(self, dtype: torch.dtype) -> Net:
        def moved(value: Any) -> Any:
            if isinstance(value, list):
                return [moved(each) for each in value]
            return value.to(DEVICE, dtype if value.is_floating_point() else None) if hasattr(value, "to") else value

        args, kwargs = tuple(map(moved, self.args)), {name: moved(each) for name, each in self.kwargs.items()}
        return Net(self.model.to(DEVICE, dtype).eval(), args, kwargs)

    def __call__(self, model: nn.Module | None = None) -> list[Tensor]:
        """The floating tensors of the output."""
        return list(floating((model or self.model)(*self.args, **self.kwargs)))


def floating(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield from [value] if value.is_floating_point() else []
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from floating(each)


def image(model: nn.Module, side: int = 224, batch: int = 2) -> Net:
    return Net(model, (torch.randn(batch, 3, side, side),), {})


def llama() -> Net:
    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=704, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=1000,
    )  # fmt: skip
    ids = torch.randint(1000, (2, 64))
    return Net(transformers.LlamaForCausalLM(config), (), {"input_ids": ids, "use_cache": False})


def bert() -> Net:
    config = transformers.BertConfig(
        hidden_size=128, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, vocab_size=1000
    )
    ids = torch.randint(1000, (2, 32))
    model = transformers.BertForSequenceClassification(config)
    return Net(model, (), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


class Recurrent(nn.Module):
    """cuDNN wants the weights of its LSTM in one piece of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(16, 48), nn.Linear(64, 5)
        self.lstm = nn.LSTM(48, 64, num_layers=2, batch_first=True, bidirectional=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(x).relu())[0][:, -1])


M = torchvision.models
NETS: dict[str, Callable[[], Net]] = {
    "resnet50": lambda: image(M.resnet50(weights=None)),
    "vit_b_16": lambda: image(M.vit_b_16(weights=None)),
    "swin_t": lambda: image(M.swin_t(weights=None)),
    "lraspp": lambda: image(segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)),
    "llama": llama,
    "bert": bert,
    "convnext_atto": lambda: image(timm.create_model("convnext_atto", pretrained=False)),
    "lstm": lambda: Net(Recurrent(), (torch.randn(4, 12, 16),), {}),
}


def detector() -> Net:
    model = detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None)
    return Net(model, ([torch.rand(3, 320, 320)],), {})


def settle() -> None:
    if is_cuda():
        torch.cuda.synchronize()


def allocated() -> float:
    """Megabytes of tensors on the GPU."""
    gc.collect()
    return torch.cuda.memory_allocated() / 1e6 if is_cuda() else 0.0


# ---------------------------------------------------------------------------------------------------- cut and undo


def step_of(net: Net, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    for module in net.model.modules():
        module.training = isinstance(module, nn.RNNBase)  # cuDNN has gradients of these in train mode alone
    sum(out.float().square().mean() for out in net()).backward()  # type: ignore[union-attr]
    net.model.eval()
    optimizer.step()


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Tensor]:
    """Every tensor of a training, by name."""
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    found |= {f"{name}.grad": each.grad for name, each in model.named_parameters() if each.grad is not None}
    for number, own in enumerate(optimizer.state.values() if optimizer else ()):
        found |= {f"{number}.{key}": value for key, value in own.items() if isinstance(value, Tensor)}
    return {name: tensor.detach() for name, tensor in found.items()}


def copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in state.items()}


def check_same(now: dict[str, Tensor], before: dict[str, Tensor]) -> None:
    assert now.keys() == before.keys(), now.keys() ^ before.keys()
    for name, tensor in before.items():
        own = now[name]
        assert (own.device, own.dtype, own.shape) == (tensor.device, tensor.dtype, tensor.shape), name
        assert torch.equal(*(each.reshape(-1).view(torch.uint8) for each in (own, tensor))), name


def cut_and_undo(net: Net, ratio: float | None = 0.5, **asked: Any) -> str:
    model = net.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    step_of(net, optimizer)
    before, objects = copied(state_of(model, optimizer)), list(model.parameters())
    places = {name: tensor.device for name, tensor in before.items()}
    start = time.perf_counter()
    graph = mk.trace(model, net.args, net.kwargs)
    plan = mk.plan(graph, ratio=ratio, **asked)
    planning = time.perf_counter() - start
    receipt = plan.cut(model, optimizer)
    after = state_of(model, optimizer)
    assert all(after[name].device == places[name] for name in after), "a tensor has left its device"
    assert all(each.device.type == DEVICE.type for each in (*model.parameters(), *model.buffers()))
    with torch.no_grad():
        assert all(bool(out.isfinite().all()) for out in net())
    step_of(net, optimizer)
    settle()
    receipt.undo()
    check_same(state_of(model, optimizer), before)
    assert all(one is other for one, other in zip(objects, model.parameters(), strict=True))
    del before, receipt, after
    step_of(net, optimizer)
    held = allocated()
    blocks = f", without {', '.join(plan.blocks)}" if plan.blocks else ""
    text = f"{plan.params[1] / plan.params[0]:.3f} of the parameters{blocks}, traced on {graph.traced_on}"
    plan.cut(model, optimizer, undo=False)
    del plan, graph
    left = allocated()
    step_of(net, optimizer)
    assert left < held or not is_cuda(), (held, left)
    return f"{text}, {held:.1f} → {left:.1f} MB, {planning:.1f} s"


def cuts(device: torch.device) -> Iterator[Case]:
    use(device)
    for name, make in NETS.items():
        for dtype in (torch.float32, torch.bfloat16):
            yield f"{name} {str(dtype)[6:]}", lambda make=make, dtype=dtype: cut_and_undo(make().to(dtype))
    yield "fasterrcnn float32", lambda: cut_and_undo(detector().to(torch.float32))
    yield (
        "resnet18 channels_last",
        lambda: cut_and_undo(image(M.resnet18().to(memory_format=torch.channels_last), 64).to(torch.float32)),
    )
    for name in ("resnet50", "llama"):
        yield f"{name}, two blocks", lambda name=name: cut_and_undo(NETS[name]().to(torch.float32), 0.2, blocks=2)


# ------------------------------------------------------------------------------------------------------------ times


def event_times(runs: list[Callable[[], object]], rounds: int) -> list[float]:
    """The median milliseconds of some runs that take turns, by events of the GPU."""
    found: list[list[float]] = [[] for _ in runs]
    for at in range(rounds + 3):
        for own, run in zip(found, runs, strict=True):
            if is_cuda():
                events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                settle()
                events[0].record()
                run()
                events[1].record()
                settle()
                own.extend([events[0].elapsed_time(events[1])] if at >= 3 else [])
            else:
                start = time.process_time()
                run()
                own.extend([1e3 * (time.process_time() - start)] if at >= 3 else [])
    return [statistics.median(own) for own in found]


def latency(net: Net) -> str:
    graph = mk.trace(net.model, net.args, net.kwargs)
    start = time.perf_counter()
    plan = mk.plan(graph, target={"latency": SHARE})
    seconds = time.perf_counter() - start
    cut = copy.deepcopy(net.model)
    plan.cut(cut, undo=False)
    with torch.inference_mode():
        before, after = event_times([net, lambda: net(cut)], 40)
    assert plan.latency is not None
    said, found = plan.latency[1] / plan.latency[0], after / before
    text = f"asked {SHARE}, said {said:.3f} of {plan.latency[0]:.2f} ms, measured {found:.3f} of {before:.2f} ms"
    assert abs(found / SHARE - 1) <= NEAR or not is_cuda(), text
    return f"{text}, {seconds:.1f} s"


def profile(net: Net) -> str:
    graph = mk.trace(net.model, net.args, net.kwargs)
    table = graph.profile().set_index("module")
    own = {name for name, module in net.model.named_modules() if not list(module.children())}
    whole, parts = table.loc["", "time_ms"], table.loc[[name for name in table.index if name in own], "time_ms"].sum()
    with torch.inference_mode():
        measured = event_times([net], 20)[0]
    text = f"{measured:.2f} ms by events, {whole:.2f} ms in the table, its leaves {parts:.2f} ms"
    assert 0.5 <= whole / measured <= 2, text
    assert 0.5 <= parts / measured <= 2, text
    return text


def times(device: torch.device) -> Iterator[Case]:
    use(device)
    batch, side = (32, 224) if is_cuda() else (1, 64)
    models = {"resnet50": M.resnet50, "vit_b_16": M.vit_b_16} if is_cuda() else {"resnet18": M.resnet18}
    for name, make in models.items():
        net = image(make(weights=None), side, batch).to(torch.float32)
        yield f"profile of {name}", lambda net=net: profile(net)
        yield f"latency of {name}", lambda net=net: latency(net)


# ---------------------------------------------------------------------------------------------------- what data tell


def small() -> tuple[nn.Module, nn.Module, list[tuple[Tensor, Tensor]]]:
    """A ResNet-18 on the CPU, the same on the device, and batches with targets on the CPU."""
    torch.manual_seed(0)
    model = M.resnet18(num_classes=10).eval()
    batches = [(torch.randn(16, 3, 64, 64), torch.randint(10, (16,))) for _ in range(3)]
    return model, copy.deepcopy(model).to(DEVICE), batches


def moved(batches: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    return [(x.to(DEVICE), y.to(DEVICE)) for x, y in batches]


def same_choice(make: Callable[[list[tuple[Tensor, Tensor]]], Any], least: float = 0.99) -> str:
    """Whether plans by an importance on the CPU and on the device keep the same indices."""
    here, there, batches = small()
    kept = []
    for model, own in ((here, batches), (there, moved(batches))):
        graph = mk.trace(model, own[0][0])
        plan = mk.plan(graph, ratio=0.5, importance=make(own))
        kept.append({(cut.name, index) for cut in plan.axes for index in cut.dropped})
    share = len(kept[0] & kept[1]) / len(kept[0])
    assert share >= least, share
    return f"{share:.4f} of the indices are those that the CPU takes"


def recalibrated() -> str:
    here, there, batches = small()
    plan = mk.plan(mk.trace(here, batches[0][0]), ratio=0.5)
    plan.cut(here, recalibrate=batches, compensate=True)
    kept = copy.deepcopy(there)
    receipt = plan.cut(there, recalibrate=moved(batches), compensate=True)
    assert receipt.renewed
    assert all(each.device.type == DEVICE.type for each in (*there.parameters(), *there.buffers()))
    x = batches[0][0]
    with torch.no_grad():
        wanted, found = here(x), there(x.to(DEVICE)).cpu()
    off = float((wanted - found).abs().max() / wanted.abs().max())
    receipt.undo()
    check_same(state_of(there), state_of(kept))
    plan.cut(there, recalibrate=batches)  # of a loader that leaves its batches on the CPU
    assert off < 2e-2, off
    return f"{len(receipt.renewed)} statistics, outputs {off:.1e} from those of the CPU"


def identities() -> str:
    here, there, _ = small()
    assert mk.fingerprint(here) == mk.fingerprint(there)
    assert mk.weight_fingerprint(here) == mk.weight_fingerprint(there)
    assert mk.diff(here, there).identical
    return f"the weights are {mk.weight_fingerprint(there)} on both"


def verified() -> str:
    _, there, batches = small()
    report = mk.trace(there, batches[0][0].to(DEVICE)).axes.verify()
    assert report.ok
    return str(report).splitlines()[0]


def distilled() -> str:
    _, there, batches = small()
    own, teacher = moved(batches), copy.deepcopy(there)
    graph = mk.trace(there, own[0][0])
    table = mk.pruning.sensitivity(graph, own[:1], F.cross_entropy, ["layer1.0.conv1.out"])
    receipt = mk.plan(graph, ratio=0.3).cut(there)
    loss = mk.pruning.Distillation(teacher, receipt)(there, own[0])
    loss.backward()
    penalty = mk.pruning.group_lasso(mk.trace(there, own[0][0]))
    assert penalty.device.type == DEVICE.type
    return f"{len(table)} indices weighed, loss {loss.item():.3f} on {loss.device.type}"


def data(device: torch.device) -> Iterator[Case]:
    use(device)
    own = mk.pruning
    yield "Taylor", lambda: same_choice(lambda pairs: own.Taylor(pairs, F.cross_entropy))
    yield "Hessian", lambda: same_choice(lambda pairs: own.Hessian(pairs[:1], F.cross_entropy))
    yield "Activation", lambda: same_choice(lambda pairs: own.Activation([x for x, _ in pairs]))
    for name in ("l1", "l2", "fpgm", "bn_scale", "random"):
        yield name, lambda name=name: same_choice(lambda _: name)
    yield "recalibrate and compensate", recalibrated
    yield "fingerprints and diff", identities
    yield "proof of the axes", verified
    yield "sensitivity, distillation, group lasso", distilled
    yield (
        "blocks by influence",
        lambda: cut_and_undo(
            (net := NETS["resnet50"]().to(torch.float32)), None, blocks=2, importance=own.BlockInfluence([net.args[0]])
        ),
    )


# ------------------------------------------------------------------------------------------------------------ files


def saved(net: Net, builder: Any = None) -> str:
    plan = mk.plan(mk.trace(net.model, net.args, net.kwargs), ratio=0.5)
    receipt = plan.cut(net.model)
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        wanted = net()[0]
        mk.save_model(net.model, folder, receipt, builder=builder)
        loaded = mk.load_pretrained(folder, classes=[builder] if builder else ())
        check_same(state_of(loaded.to(DEVICE)), state_of(net.model))
        again = net(loaded)[0]
        here = Net(loaded.cpu(), *with_device(net, "cpu"))()[0]
        own = Net(copy.deepcopy(net.model).cpu(), *with_device(net, "cpu"))()[0]
    assert torch.equal(wanted, again), "not bit-equal on the device"
    assert torch.equal(here, own), "not bit-equal on the CPU"
    off = float((wanted.cpu() - here).abs().max() / here.abs().max())
    assert off < 1e-4, off
    return f"bit-equal on both devices, which differ by {off:.1e} of the largest logit"


def with_device(net: Net, device: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(each.to(device) for each in net.args), {
        name: each.to(device) if isinstance(each, Tensor) else each for name, each in net.kwargs.items()
    }


def files(device: torch.device) -> Iterator[Case]:
    use(device)
    yield "saved resnet50", lambda: saved(NETS["resnet50"]().to(torch.float32), M.resnet50)
    for name in ("llama", "bert", "convnext_atto"):
        yield f"saved {name}", lambda name=name: saved(NETS[name]().to(torch.float32))
