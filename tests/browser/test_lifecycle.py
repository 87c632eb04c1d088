"""Re-running, closing, and a kernel that restarts or dies: nothing piles up, nothing pretends to work."""

import time

import pytest

from browser.graph import READY, ROOT, SHOW, GraphPage
from browser.page import NotebookPage
from sampling import sampled

COMMS = "len(__import__('comm').get_comm_manager().comms)"
DISCONNECTED = f"() => document.querySelector('{ROOT}.mkg-is-disconnected') !== null"
KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"


def test_running_the_cell_again_leaves_one_widget(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    comms = notebook.value(COMMS)
    for _ in range(2):
        notebook.run(1, until=READY)
        notebook.pause(300)
        assert notebook.page.locator(ROOT).count() == 1
    assert notebook.value(COMMS) == comms
    graph.click("layer1")
    graph.wait_for_selection("layer1")


def test_closing_leaves_no_comm_and_no_model_behind(notebook: NotebookPage) -> None:
    notebook.open(["import gc, weakref, torchvision, modulekg_widgets as mk", SHOW])
    notebook.run(0)
    before = notebook.value(COMMS)
    notebook.execute(
        "from IPython.display import display\nmodel = torchvision.models.resnet18(); alive = weakref.ref(model)"
    )
    notebook.run(1, until=READY)
    assert notebook.value(COMMS) > before
    notebook.execute("graph.close()")
    assert notebook.value(COMMS) == before
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-graph-canvas') === null")
    notebook.execute("del graph, model\ngc.collect()")
    assert notebook.value("alive() is None")


@pytest.mark.nightly
def test_hooks_and_state_of_the_model_are_untouched(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    graph.click("layer1")
    graph.wait_for_selection("layer1")
    hooks = "sum(len(v) for m in model.modules() for k, v in vars(m).items() if 'hooks' in k)"
    assert notebook.value(hooks) == 0
    assert notebook.value("model.training") is True


def assert_disconnected(notebook: NotebookPage, seconds: float) -> None:
    notebook.wait_for(DISCONNECTED, timeout=seconds * 1000)
    graph = GraphPage(notebook)
    assert "disconnected" in graph.find(".mkg-status").inner_text().lower()
    controls = graph.find("[data-mkg-needs-kernel]")
    assert controls.evaluate_all(
        "all => all.every(one => one.disabled || one.getAttribute('aria-disabled') === 'true')"
    )


def assert_looking_still_works(notebook: NotebookPage) -> None:
    """Looking needs no kernel."""
    graph = GraphPage(notebook)
    graph.click("layer1")
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-side-panel').dataset.mkgPath === 'layer1'")


def test_a_restarted_kernel_is_a_disconnected_widget(notebook: NotebookPage) -> None:
    GraphPage.show(notebook, "resnet18")
    notebook.page.evaluate(f"() => {{ void {KERNEL}.restart(); }}")
    assert_disconnected(notebook, 2)
    notebook.wait_for_kernel()
    notebook.pause(500)
    assert_disconnected(notebook, 0.1)
    assert_looking_still_works(notebook)
    notebook.screenshot("disconnected")
    # a new run brings it back to life
    notebook.run(0)
    notebook.run(1, until=f"() => document.querySelector('{ROOT}[data-mkg-ready]:not(.mkg-is-disconnected)') !== null")
    graph = GraphPage(notebook)
    graph.click("fc")
    graph.wait_for_selection("fc")


@pytest.mark.nightly
@pytest.mark.parametrize("blow", sampled(["os._exit(1)", "os.kill(os.getpid(), 9)"], ["os.kill(os.getpid(), 9)"]))
def test_a_dead_kernel_is_seen(notebook: NotebookPage, blow: str) -> None:
    GraphPage.show(notebook, "resnet18")
    notebook.page.evaluate(
        f"code => {{ {KERNEL}.requestExecute({{ code }}).done.catch(() => 0); }}", f"import os; {blow}"
    )
    started = time.monotonic()
    assert_disconnected(notebook, 5)
    assert time.monotonic() - started < 6
    # JupyterLab tells the user about the death in a dialogue of its own
    notebook.page.evaluate("() => document.querySelectorAll('.jp-Dialog button').forEach(button => button.click())")
    assert_looking_still_works(notebook)


@pytest.mark.nightly
def test_a_kernel_that_is_shut_down_is_seen(notebook: NotebookPage) -> None:
    GraphPage.show(notebook, "resnet18")
    notebook.page.evaluate("() => { void window.jupyterapp.shell.currentWidget.sessionContext.shutdown(); }")
    assert_disconnected(notebook, 5)  # the server answers once the kernel has ended


@pytest.mark.nightly
def test_a_busy_kernel_does_not_stop_the_looking(notebook: NotebookPage) -> None:
    graph = GraphPage.show(notebook, "resnet18")
    notebook.page.evaluate(f"() => {{ void {KERNEL}.requestExecute({{ code: 'import time; time.sleep(6)' }}); }}")
    started = time.monotonic()
    graph.click("conv1")
    notebook.wait_for(
        f"() => document.querySelector('{ROOT} .mkg-side-panel').dataset.mkgPath === 'conv1'", timeout=2000
    )
    graph.find(".mkg-search input").fill("conv2")
    notebook.wait_for(f"() => document.querySelector('{ROOT} .mkg-search-count').textContent !== ''", timeout=2000)
    graph.double_click("layer2")
    assert time.monotonic() - started < 6
    notebook.wait_for_value("graph.selected", "layer2", timeout=10_000)
