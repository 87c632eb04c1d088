"""ForwardPlayer in JupyterLab: it plays in the page, the kernel sends pictures, and choices reach Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from browser.fixtures import in_shared_page
from browser.graph import READY as GRAPH_READY
from browser.graph import ROOT as GRAPH
from browser.hostile import assert_harmless
from browser.metrics import KERNEL
from browser.page import NotebookPage
from cases.payloads import PAYLOADS
from sampling import sampled

if TYPE_CHECKING:
    from playwright.sync_api import Locator

ROOT = ".mkg-forward-player"
READY = f"() => document.querySelector('{ROOT}[data-mkg-ready=\"true\"]') !== null"
DISCONNECTED = f"() => document.querySelector('{ROOT}.mkg-is-disconnected') !== null"

SETUP = """
import pathlib, time
import torch
from IPython.display import display
from torch import nn
import modulekg_widgets as mk

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(
    nn.Conv2d(3, 80, 3), nn.BatchNorm2d(80), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3920, 10)
)
x = torch.randn(4, 3, 16, 16)
before = [tensor.clone() for tensor in model.state_dict().values()]
"""
SHOW = "player = mk.ForwardPlayer(model, x)\ndisplay(player)"
UNCHANGED = "all(torch.equal(a, b) for a, b in zip(before, model.state_dict().values()))"

# the number of colors of a canvas
COLORS = """canvas => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""


class PlayerPage:
    """The one ForwardPlayer of a notebook page."""

    def __init__(self, notebook: NotebookPage) -> None:
        self.notebook = notebook

    @classmethod
    def show(cls, notebook: NotebookPage, setup: str = SETUP, show: str = SHOW) -> PlayerPage:
        notebook.open([setup, show])
        notebook.run(0)
        notebook.run(1, until=READY)
        player = cls(notebook)
        player.find(".mkg-forward-controls").scroll_into_view_if_needed()
        return player

    def find(self, selector: str) -> Locator:
        return self.notebook.page.locator(f"{ROOT} {selector}")

    def wait_for_step(self, step: int) -> None:
        """Wait until the page is there, and Python has it."""
        self.notebook.wait_for(f"step => document.querySelector('{ROOT}').dataset.mkgStep === String(step)", step)
        self.notebook.wait_for_value("player.step", step)

    def wait_for_maps(self, step: int, sample: int = 0, page: int = 0, run: int = 1) -> None:
        """Wait until these pictures are drawn."""
        self.notebook.wait_for(
            f"key => document.querySelector('{ROOT} [data-mkg-maps]')?.dataset.mkgMaps === key",
            f"{run},{step},{sample},{page}",
            timeout=30_000,
        )

    def shapes(self) -> list[str]:
        return self.find(".mkg-forward-row .mkg-forward-shape").all_inner_texts()


@pytest.mark.gate
def test_stepping_playing_and_pictures(notebook: NotebookPage) -> None:
    player = PlayerPage.show(notebook)
    player.find('[data-mkg-step="1"]').click()
    player.wait_for_step(1)
    assert notebook.value("player.selected") == "0"
    player.wait_for_maps(1)
    maps = player.find(".mkg-forward-map canvas")
    assert maps.count() == 64
    assert all(maps.nth(index).evaluate(COLORS) > 20 for index in range(0, 64, 9))
    assert player.find(".mkg-forward-top li").count() == 5
    notebook.screenshot("forward-player")

    # the other channels, another sample, one of them large
    player.find(".mkg-forward-page-next").click()
    player.wait_for_maps(1, page=1)
    notebook.wait_for_value("player.page", 1)
    assert player.find(".mkg-forward-map-name").all_inner_texts() == [f"channel {n}" for n in range(64, 80)]
    player.find(".mkg-forward-sample").fill("3")
    player.wait_for_maps(1, sample=2, page=1)
    notebook.wait_for_value("player.sample", 2)
    player.find(".mkg-forward-map").nth(3).click()
    assert player.find(".mkg-forward-large canvas").evaluate(COLORS) > 20

    # the page plays, and stops at the end; the kernel hears of it
    player.find(".mkg-forward-speed").select_option("20")
    player.find(".mkg-forward-play").click()
    player.wait_for_step(6)
    notebook.wait_for_value("[player.playing, player.speed, player.selected]", [False, 20, "5"])
    player.wait_for_maps(6, sample=2)
    classes = "torch.no_grad()(lambda: model.train()(x)[2].topk(5).indices.tolist())()"
    assert player.find(".mkg-forward-which").all_inner_texts() == [f"class {n}" for n in notebook.value(classes)]

    # keys, and what Python sets
    player.find("[role=option][tabindex='0']").press("Home")
    player.wait_for_step(0)
    notebook.page.keyboard.press("ArrowDown")
    player.wait_for_step(1)
    notebook.page.keyboard.press("Space")
    player.wait_for_step(6)
    notebook.execute("player.selected = '3'")
    player.wait_for_step(4)
    player.wait_for_maps(4, sample=2)
    notebook.execute("player.sample = 0\nplayer.run(torch.randn(2, 3, 20, 20))")
    notebook.wait_for(f"() => document.querySelector('{ROOT} [data-mkg-maps]')?.dataset.mkgMaps?.startsWith('2,')")
    assert player.shapes()[1] == "2×3×20×20"
    assert player.find(".mkg-forward-status").inner_text().startswith("Forward pass failed: RuntimeError")


def test_the_quiz_reaches_python(notebook: NotebookPage) -> None:
    player = PlayerPage.show(notebook, show=SHOW.replace("x)", "x, step=1, hide_shapes=True)"))
    assert player.shapes() == ["4×3×16×16", "4×3×16×16", *5 * ["?"]]
    guess, verdict = player.find(".mkg-forward-guess"), player.find(".mkg-forward-verdict")
    guess.fill("4, 80, 14, 14")
    guess.press("Enter")
    assert verdict.inner_text() == "Correct. 4×80×14×14"
    notebook.wait_for_value("player.quiz", {"asked": 1, "right": 1})
    player.find(".mkg-forward-next").click()
    guess.fill("4, 80, 12, 12")
    player.find(".mkg-forward-check-guess").click()
    assert verdict.inner_text() == "Incorrect: 2 of 4 sizes match."
    notebook.wait_for_value("player.quiz", {"asked": 2, "right": 1})
    assert player.shapes()[2:4] == ["4×80×14×14", "?"]
    notebook.screenshot("forward-player-quiz")
    player.find(".mkg-forward-show").click()
    player.wait_for_maps(2)
    notebook.wait_for_value("player.quiz", {"asked": 2, "right": 1})
    player.find(".mkg-forward-restart").click()
    notebook.wait_for_value("player.quiz", {"asked": 0, "right": 0})
    player.find(".mkg-forward-hide").uncheck()
    notebook.wait_for_value("player.hide_shapes", False)
    assert "?" not in player.shapes()


BUSY = """
end, steps = time.time() + 120, 0
optimizer = torch.optim.SGD(model.parameters(), 0.001)
expected = model[0].weight.detach().clone()
while time.time() < end and not pathlib.Path("enough").exists():
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    expected = expected - 0.001 * model[0].weight.grad
    optimizer.step()
    steps += 1
    time.sleep(0.01)
drift = (expected - model[0].weight).abs().max().item()
"""


@in_shared_page
def test_what_is_not_finite_is_seen_at_once(notebook: NotebookPage) -> None:
    broken = """
class Scale(nn.Module):
    def forward(self, x):
        return x / x.std(1, keepdim=True)

x = torch.randn(32, 8)
x[12] = 7.0
model = nn.Sequential(nn.Identity(), Scale(), nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Linear(32, 3))
"""
    player = PlayerPage.show(notebook, SETUP + broken)
    player.wait_for_maps(0, sample=12)
    assert player.find(".mkg-forward-sample").input_value() == "13"
    assert notebook.value("player.sample") == 12
    marked = {
        row.get_attribute("data-mkg-path"): row.locator(".mkg-row-mark").all_inner_texts()
        for row in player.find("[role=option]").all()
    }
    counts = {"": 3, "0": 0, "1": 8, "2": 32, "2.0": 32, "2.1": 32, "3": 3}
    assert marked == {path: [f"{count} NaN or infinite"] if count else [] for path, count in counts.items()}
    assert player.find(".mkg-forward-status").inner_text() == ("First NaN or infinite values: 1 (8)")
    notebook.screenshot("forward-not-finite")
    notebook.execute("player.selected = '1'")
    player.wait_for_maps(2, sample=12)
    notebook.screenshot("forward-not-finite-origin")


def test_a_training_goes_on_while_the_page_plays(notebook: NotebookPage) -> None:
    """What the page has is drawn; the model does not run beside the cell, where it would undo what was learned."""
    few = (
        "import modulekg_widgets.engine.playback.player as playback\n"
        "assert playback.CACHE_BYTES > 1000\nplayback.CACHE_BYTES = 1000\n"
    )
    enough = notebook.server.notebooks / "enough"
    enough.unlink(missing_ok=True)
    player = PlayerPage.show(notebook, SETUP + few)
    player.find('[data-mkg-step="1"]').click()
    player.wait_for_maps(1)
    player.find('[data-mkg-step="6"]').click()
    player.wait_for_maps(6)
    assert notebook.value(UNCHANGED)
    notebook.page.evaluate(f"code => {{ void {KERNEL}.requestExecute({{ code }}); }}", BUSY)
    notebook.wait_for(f"() => {KERNEL}.status === 'busy'")
    player.find('[data-mkg-step="1"]').click()
    player.wait_for_maps(1)
    player.find('[data-mkg-step="2"]').click()
    player.wait_for_maps(2)  # which came with the player; those of another item need the model
    player.find(".mkg-forward-sample").fill("2")
    notebook.wait_for(
        f"() => document.querySelector('{ROOT} .mkg-forward-message').textContent === 'Waiting for the running "
        "cell to end. The model then runs again for the pictures of sample 2.'"
    )
    player.find(".mkg-forward-first").click()
    player.find(".mkg-forward-speed").select_option("10")
    player.find(".mkg-forward-play").click()
    notebook.wait_for(f"() => document.querySelector('{ROOT}').dataset.mkgStep === '3'", timeout=5000)
    player.find('[data-mkg-step="2"]').click()
    enough.touch()
    notebook.wait_for_value("player.step", 2, timeout=15_000)
    assert notebook.value("steps > 3 and time.time() < end")
    assert notebook.value("drift") < 1e-6
    # the weights are others now, and that is said
    notebook.wait_for(
        f"() => document.querySelector('{ROOT} .mkg-forward-message').textContent.includes('outputs have changed')"
    )
    notebook.execute("player.run()")
    player.wait_for_maps(2, sample=1, run=2)


# a later cell that takes until the test has seen enough
LATER = {"sleeps": "time.sleep(0.1)", "works": "torch.randn(300, 300) @ torch.randn(300, 300)"}
UNTIL = "end = time.time() + 120\nwhile time.time() < end and not pathlib.Path('seen').exists(): "
RUN_ALL = "() => { void window.jupyterapp.commands.execute('notebook:run-all-cells'); }"
STATE = f"""() => ({{
  coarse: document.querySelector('{ROOT} [data-mkg-coarse]')?.dataset.mkgCoarse ?? null,
  maps: document.querySelector('{ROOT} [data-mkg-maps]')?.dataset.mkgMaps ?? null,
  tiles: document.querySelectorAll('{ROOT} .mkg-forward-map canvas').length,
  runs: document.querySelectorAll('.jp-Notebook .jp-InputPrompt')[2].textContent.includes('*'),
}})"""


@pytest.mark.nightly
@pytest.mark.parametrize("later", sampled(LATER, ["works"]))
def test_run_all_with_a_later_cell_that_takes_long(notebook: NotebookPage, later: str) -> None:
    """All steps have their pictures at once, fine ones where the model is small; what is asked for comes beside."""
    large = "import torchvision\nmodel = torchvision.models.resnet18().eval()\nx = torch.randn(2, 3, 224, 224)"
    show = "player = mk.ForwardPlayer(model, x, selected='layer1.0.conv1')\ndisplay(player)"
    seen_enough = notebook.server.notebooks / "seen"
    seen_enough.unlink(missing_ok=True)
    notebook.open([SETUP + large, show, UNTIL + LATER[later], "done = True"])
    player = PlayerPage(notebook)
    notebook.page.evaluate(RUN_ALL)
    notebook.wait_for(READY, timeout=60_000)
    first = notebook.page.evaluate("() => Number(document.querySelector('" + ROOT + "').dataset.mkgStep)")
    player.wait_for_maps(first)
    seen = {first}
    assert player.find(".mkg-forward-map canvas").count() == 64
    for _ in range(20):  # as fast as one clicks
        player.find(".mkg-forward-next").click()
        state = notebook.page.evaluate(STATE)
        step = int((state["maps"] or state["coarse"]).split(",")[1])
        seen.add(step)
        assert state["tiles"] > 0
        assert state["runs"]
        assert player.find(".mkg-forward-message").is_hidden()
    assert seen == set(range(first, first + 21))
    # what has to be asked for comes beside the cell, once the kernel listens there
    player.find(".mkg-forward-sample").fill("2")
    player.wait_for_maps(first + 20, sample=1)
    assert notebook.page.evaluate(STATE)["runs"]
    notebook.screenshot(f"forward-player-run-all-{later}")
    seen_enough.touch()


@pytest.mark.nightly
def test_themes_and_a_narrow_page(notebook: NotebookPage) -> None:
    vit = SETUP + "import torchvision\nmodel = torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32).eval()\n"
    player = PlayerPage.show(
        notebook,
        vit,
        "player = mk.ForwardPlayer(model, torch.randn(2, 3, 32, 32), selected='encoder.ln')\ndisplay(player)",
    )
    step = notebook.value("player.step")
    player.wait_for_maps(step)
    assert player.find(".mkg-forward-map canvas").evaluate(COLORS) > 20
    notebook.command("apputils:change-theme", theme="JupyterLab Dark")
    notebook.wait_for("() => document.body.dataset.jpThemeLight === 'false'")
    notebook.pause(300)
    notebook.screenshot("forward-player-dark")
    notebook.command("apputils:change-theme", theme="JupyterLab Light")
    notebook.wait_for("() => document.body.dataset.jpThemeLight === 'true'")
    notebook.page.set_viewport_size({"width": 640, "height": 450})
    root = notebook.page.locator(ROOT)
    notebook.pause(300)
    assert root.evaluate("root => root.scrollWidth <= root.clientWidth + 1")
    box = player.find(".mkg-forward-details").bounding_box()
    assert box is not None
    assert box["width"] > 200


HOSTILE = """
payloads = {payloads!r}

class Stops(nn.Module):
    def forward(self, x):
        raise ValueError("".join(payloads))

model = nn.Sequential()
for text in payloads:
    model._modules[text] = type(text, (nn.Linear,), {{}})(2, 2)
model._modules["stops"] = Stops()
x = torch.ones(1, 2)
"""


@pytest.mark.nightly
@in_shared_page
def test_hostile_names_are_shown_as_they_are(notebook: NotebookPage) -> None:
    player = PlayerPage.show(notebook, SETUP + HOSTILE.format(payloads=PAYLOADS))
    address = notebook.page.url
    paths = []
    for step, text in enumerate(PAYLOADS, 1):
        notebook.execute(f"player.step = {step}")
        player.wait_for_step(step)
        paths.append(player.find(".mkg-forward-path").text_content())
        assert notebook.value("player.selected") == text
    assert paths == PAYLOADS
    player.find(".mkg-forward-last").click()
    player.wait_for_step(len(PAYLOADS) + 1)
    assert "failed here" in player.find(".mkg-forward-error").inner_text()
    assert_harmless(notebook.page, ROOT, address)
    assert_harmless(notebook.page, ".jp-OutputArea-output", address)


@pytest.mark.nightly
def test_a_lost_kernel_is_seen_and_a_closed_player_is_gone(notebook: NotebookPage) -> None:
    player = PlayerPage.show(notebook)
    comms = "len(__import__('comm').get_comm_manager().comms)"
    count = notebook.value(comms)
    notebook.run(1, until=READY)
    assert notebook.value(comms) == count  # the cell's second run replaces the player
    player.find('[data-mkg-step="1"]').click()
    player.wait_for_maps(1)
    player.find(".mkg-forward-sample").fill("2")
    player.wait_for_maps(1, sample=1)
    notebook.page.evaluate(f"() => {{ void {KERNEL}.restart(); }}")
    notebook.wait_for(DISCONNECTED, timeout=2000)
    assert "disconnected" in player.find(".mkg-forward-status").inner_text()
    assert player.find("[data-mkg-needs-kernel]").evaluate_all("all => all.every(one => one.disabled)")
    player.find('[data-mkg-step="3"]').click()
    notebook.wait_for(f"() => document.querySelector('{ROOT}').dataset.mkgStep === '3'")
    said = player.find(".mkg-forward-message").inner_text()
    assert said == "Kernel disconnected: no pictures of sample 2."
    player.find('[data-mkg-step="1"]').click()
    player.wait_for_maps(1, sample=1)  # which the page has
    notebook.wait_for_kernel()
    notebook.run(0)
    notebook.run(1, until=f"() => document.querySelector('{ROOT}[data-mkg-ready]:not(.mkg-is-disconnected)') !== null")
    notebook.execute("player.close()")
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-forward-list') === null")


@pytest.mark.nightly
def test_a_linked_graph_and_the_player_go_together(notebook: NotebookPage) -> None:
    graph = "graph = mk.ModelGraph(model)\n"
    player = PlayerPage.show(notebook, show=f"{graph}{SHOW}\nmk.link(graph, player)\ndisplay(graph)")
    notebook.wait_for(GRAPH_READY)
    notebook.page.locator(f'{GRAPH} [role=treeitem][data-mkg-path="3"]').click()
    player.wait_for_step(4)
    notebook.wait_for_value("[graph.selected, player.selected]", ["3", "3"])
    player.find(".mkg-forward-next").click()
    player.wait_for_step(5)
    notebook.wait_for(f"() => document.querySelector('{GRAPH} .mkg-side-panel').dataset.mkgPath === '4'")
    notebook.wait_for_value("[graph.selected, player.selected]", ["4", "4"])
    notebook.execute("graph.selected = '0'")
    player.wait_for_step(1)
    notebook.execute("player.step = 3")
    player.wait_for_step(3)
    notebook.wait_for_value("[graph.selected, player.step, player.selected]", ["2", 3, "2"])
    notebook.wait_for(f"() => document.querySelector('{GRAPH} .mkg-side-panel').dataset.mkgPath === '2'")
