"""The browser fixture itself, proven on plain ipywidgets."""

import pytest

from browser.page import KernelError, NotebookPage, Trouble

SLIDER = "import ipywidgets; slider = ipywidgets.IntSlider(value=3, max=10); slider"
# two splashes at a time, of which JupyterLab removes the one node twice
THEMES_IN_A_HURRY = """async () => {
  window.splashErrors = 0;
  window.addEventListener('error', event => { window.splashErrors += event.message.includes('removeChild'); });
  for (let turn = 0; turn < 60 && !window.splashErrors; turn++) {
    const theme = turn % 2 ? 'JupyterLab Light' : 'JupyterLab Dark';
    await window.jupyterapp.commands.execute('apputils:change-theme', { theme });
    await new Promise(done => setTimeout(done, 60));
  }
}"""
SLIDER_IS_THERE = "() => document.querySelector('.widget-readout')?.textContent === '3'"


def test_a_widget_works_both_ways(notebook: NotebookPage) -> None:
    notebook.open([SLIDER])
    notebook.traffic.clear()
    times = notebook.run(0, until=SLIDER_IS_THERE)
    assert times["done"] > 0
    assert notebook.traffic.kinds("received")["comm_open"] == 3  # slider, layout, style
    assert notebook.traffic.kinds("sent")["execute_request"] == 1
    assert notebook.traffic.size > 1000

    notebook.execute("slider.value = 7")
    notebook.wait_for("() => document.querySelector('.widget-readout').textContent === '7'")
    notebook.page.locator(".widget-readout").fill("5")
    notebook.page.keyboard.press("Enter")
    notebook.wait_for_value("slider.value", 5)
    assert notebook.screenshot("fixture").stat().st_size > 10_000


def test_what_goes_wrong_is_seen(notebook: NotebookPage) -> None:
    notebook.open(["1 / 0"])
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        notebook.run(0)
    with pytest.raises(KernelError, match="NameError"):
        notebook.execute("nowhere")
    notebook.page.evaluate("() => { setTimeout(() => { throw new Error('thrown in the page'); }); alert('hello'); }")
    notebook.page.evaluate("() => { console.error('logged'); void fetch('http://xss.invalid/1').catch(() => 0); }")
    notebook.pause(300)
    assert notebook.trouble.page_errors == ["thrown in the page"]
    assert notebook.trouble.dialogs == ["hello"]
    assert notebook.trouble.foreign_requests == ["http://xss.invalid/1"]
    assert any("logged" in text for text in notebook.trouble.console)

    notebook.trouble.clear()
    notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.widgets[0].model.clearExecution()")
    assert notebook.trouble == Trouble()


@pytest.mark.nightly
def test_the_splash_of_jupyterlab_is_no_trouble_and_other_nodes_are(notebook: NotebookPage) -> None:
    notebook.open(["1"])
    notebook.page.evaluate(THEMES_IN_A_HURRY)
    notebook.pause(1000)
    assert notebook.page.evaluate("() => window.splashErrors") > 0
    assert notebook.trouble == Trouble()
    notebook.page.evaluate("() => { setTimeout(() => document.body.removeChild(document.createElement('p'))); }")
    notebook.pause(300)
    assert len(notebook.trouble.page_errors) == 1
    notebook.trouble.clear()
