"""Model files for the viewer in JupyterLab, made without weights: the bytes of tensors are holes in sparse files."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from browser.page import WatchedPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

    from browser.lab import JupyterServer

ITEM = {"F32": 4, "BF16": 2, "I64": 8}
VIEW = ".mkg-saved-view:visible"
# starts a clock at the double click that the file browser gets, and stops it when the graph has been painted
CLOCK = """() => {
  const times = window.__modelFileTimes = { clicked: null, painted: null };
  const shown = () => Array.from(document.querySelectorAll('.mkg-saved-view .mkg-model-graph[data-mkg-ready=true]'))
    .find(graph => graph.offsetParent !== null && graph.querySelector('.mkg-tree-row'));
  const before = shown();
  const look = () => {
    if (shown() && shown() !== before) { times.painted = performance.now(); }
    else { requestAnimationFrame(look); }
  };
  const start = () => { times.clicked = performance.now(); look(); };
  document.addEventListener('dblclick', start, { once: true, capture: true });
}"""

Shapes = Mapping[str, tuple[int, ...]]


def write_safetensors(path: Path, shapes: Shapes, dtype: str = "F32", metadata: Mapping[str, str] | None = None) -> int:
    """Write a file of zeros that takes no room; returns the bytes of its tensors."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for name, shape in shapes.items():
        end = at + ITEM[dtype]
        for size in shape:
            end = at + (end - at) * size
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return at


def write_sharded(folder: Path, layers: int = 80, width: int = 8192, shards: int = 30) -> int:
    """A language model in shards with their index and a config; returns the bytes of its tensors."""
    inner, kv, vocabulary = width * 7 // 2, width // 8, 32_000
    parts: list[tuple[str, tuple[int, ...]]] = [("model.embed_tokens.weight", (vocabulary, width))]
    for layer in range(layers):
        sizes = {
            "input_layernorm": (width,), "mlp.down_proj": (width, inner), "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width), "post_attention_layernorm": (width,), "self_attn.k_proj": (kv, width),
            "self_attn.o_proj": (width, width), "self_attn.q_proj": (width, width), "self_attn.v_proj": (kv, width),
        }  # fmt: skip
        parts += [(f"model.layers.{layer}.{name}.weight", size) for name, size in sizes.items()]
    parts += [("model.norm.weight", (width,)), ("lm_head.weight", (vocabulary, width))]
    places, total = {}, 0
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        inside = dict(parts[shard * len(parts) // shards : (shard + 1) * len(parts) // shards])
        total += write_safetensors(folder / name, inside, "BF16", {"format": "pt"})
        places.update(dict.fromkeys(inside, name))
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": width}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return total


def write_onnx(path: Path, blocks: int) -> None:
    """Five operators a block, in modules that their names tell, and one weight of 256 bytes in each."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    numpy = __import__("numpy")
    nodes, weights, value = [], [], "input"
    for block in range(blocks):
        stage = f"/stage{block // 500}/blocks.{block % 500}"
        name = f"stage{block // 500}.blocks.{block % 500}.conv.weight"
        weights.append(numpy_helper.from_array(numpy.zeros((8, 8, 1, 1), "float32"), name))
        out = [f"{stage}/{part}_output_0" for part in ("conv/Conv", "act/Relu", "act2/Sigmoid", "Mul", "Add")]
        nodes += [
            helper.make_node("Conv", [value, name], [out[0]], name=f"{stage}/conv/Conv", kernel_shape=[1, 1]),
            helper.make_node("Relu", [out[0]], [out[1]], name=f"{stage}/act/Relu"),
            helper.make_node("Sigmoid", [out[1]], [out[2]], name=f"{stage}/act2/Sigmoid"),
            helper.make_node("Mul", [out[1], out[2]], [out[3]], name=f"{stage}/Mul"),
            helper.make_node("Add", [out[3], value], [out[4]], name=f"{stage}/Add"),
        ]
        value = out[4]
    size = ["batch", 8, 14, 14]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for node in nodes for name in node.output]
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, size)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, size)],
        weights,
        value_info=values,
    )
    onnx.save(helper.make_model(graph, producer_name="pytorch", producer_version="2.14"), path)


class RunsOnLoad:
    """What it is pickled as calls os.system when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


class FilesPage(WatchedPage):
    """JupyterLab with nothing open but its file browser."""

    def __init__(self, browser: Browser, server: JupyterServer, workspace: str) -> None:
        super().__init__(browser, server, viewport={"width": 1400, "height": 900})
        self.asked: list[str] = []
        self.page.on("request", lambda request: self.asked.append(f"{request.method} {request.url}"))
        self.address = f"{server.url}/lab/workspaces/{workspace}"
        self.page.goto(f"{self.address}?reset")
        self.wait_for_lab()

    def wait_for_lab(self) -> None:
        self.wait_for(
            "() => window.jupyterapp?.serviceManager.isReady && document.querySelector('.jp-DirListing-item')"
        )
        self.page.evaluate("() => window.jupyterapp.restored.then(() => {})")

    def reload(self) -> None:
        """Load JupyterLab anew, as it was left."""
        self.page.goto(self.address)
        self.wait_for_lab()

    def command(self, name: str, **arguments: Any) -> None:
        self.page.evaluate(
            "([name, a]) => window.jupyterapp.commands.execute(name, a).then(() => {})", [name, arguments]
        )

    def double_click(self, name: str) -> None:
        """Open a file of the folder that the file browser shows."""
        self.command("filebrowser:refresh")
        item = self.page.locator(".jp-DirListing-item").filter(has=self.page.get_by_text(name, exact=True))
        item.scroll_into_view_if_needed()
        item.dblclick()

    def open(self, name: str) -> float:
        """Double-click on a file; milliseconds until its graph is painted."""
        self.page.evaluate(CLOCK)
        self.double_click(name)
        self.wait_for("() => window.__modelFileTimes.painted !== null")
        return self.page.evaluate("() => window.__modelFileTimes.painted - window.__modelFileTimes.clicked")

    def view(self, selector: str = "") -> Locator:
        return self.page.locator(f"{VIEW} {selector}")

    def heap(self) -> float:
        """Megabytes that the page's objects take."""
        session = self.context.new_cdp_session(self.page)
        session.send("HeapProfiler.collectGarbage")
        session.send("Performance.enable")
        metrics = session.send("Performance.getMetrics")["metrics"]
        session.detach()
        return next(metric["value"] for metric in metrics if metric["name"] == "JSHeapUsedSize") / 2**20

    def kernels(self) -> list[Any]:
        return self.server.request("GET", "/api/kernels")

    def rows(self) -> list[str]:
        return self.view("[role=treeitem]").evaluate_all("rows => rows.map(row => row.getAttribute('aria-label'))")


def resnet_shapes() -> dict[str, tuple[int, ...]]:
    """Of the state dict of torchvision's ResNet-18, as safetensors sorts them."""
    from torchvision.models import resnet18

    return {name: tuple(value.shape) for name, value in sorted(resnet18().state_dict().items())}


def many_shapes(count: int) -> dict[str, tuple[int, ...]]:
    """Of experts with ten tensors each."""
    parts = ("down", "gate", "up", "router", "scale")
    return {
        f"model.layers.{i // 1000}.experts.{i // 10 % 100}.{part}.{kind}": (16, 16) if kind == "weight" else (16,)
        for i in range(0, count, 10)
        for part in parts
        for kind in ("weight", "bias")
    }


def names_of(rows: Iterable[str]) -> list[str]:
    return [row.split(", ")[0] for row in rows]
