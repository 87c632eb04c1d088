"""Plots: one for each question, of names that are any text, without pyplot's state."""

from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from knowledge.graphs import made_up, zoo_contents
from modulekg_widgets.engine.errors import UnknownNameError
from modulekg_widgets.engine.knowledge.analysis.centrality import importance
from modulekg_widgets.engine.knowledge.analysis.communities import communities
from modulekg_widgets.engine.knowledge.analysis.module_types import families, is_a
from modulekg_widgets.engine.knowledge.analysis.plots import MAX_BARS, MAX_LABEL_LENGTH, PLOTS
from modulekg_widgets.engine.knowledge.analysis.rank_frequency import rank_frequency
from modulekg_widgets.engine.knowledge.analysis.similarity import difference, overlap
from modulekg_widgets.engine.knowledge.facts.contents import Contents

PNG = b"\x89PNG\r\n\x1a\n"
HOSTILE = [
    r"$\frac{$", "$x$", r"\textbf{a} % & # _", "<script>alert(1)</script>", "lone \ud800 surrogate", "nul \x00 byte",
    "two\nlines", "", " ", "A" * 10_000, "\u202eright to left", "%s %d {} {0}",
]  # fmt: skip

ASK: dict[str, Callable[[Contents], Any]] = {
    "most_used": lambda contents: rank_frequency(contents).table[["name", "count"]],
    "importance": importance,
    "is_a": is_a,
    "families": families,
    "communities": communities,
    "overlap": overlap,
    "difference": lambda contents: compared(contents),
    "rank_frequency": rank_frequency,
}


def compared(contents: Contents) -> pd.DataFrame:
    """The difference of the first two models; of none, the table without rows."""
    if not contents.models:
        return pd.DataFrame([], columns=["name", "class", "where", "first", "second"])
    return difference(contents, *list(contents.models)[:2])


def hostile_contents() -> Contents:
    """Every hostile text as a class and as the name of a model, each class twice."""
    classes = {f"{text}|{n}": text for text in HOSTILE for n in range(2)}
    models = {text: {f"{text}|0": 1, f"{text}|1": 2} for text in HOSTILE}
    return made_up({name: ["$x$|0", "$x$|1"] for name in classes}, models, classes)


def texts_of(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text().strip()]


def test_every_question_has_a_plot() -> None:
    assert set(PLOTS) == set(ASK)
    with pytest.raises(UnknownNameError, match="did you mean 'importance'"):
        PLOTS["importanc"]
    for name in (["x"], 3, None, {}):
        with pytest.raises(UnknownNameError, match="there is no plot"):
            PLOTS[name]  # type: ignore[index]
        assert name not in PLOTS


@pytest.mark.parametrize("question", ASK)
@pytest.mark.slow
def test_a_figure_that_a_notebook_shows(question: str) -> None:
    figure = PLOTS[question](ASK[question](zoo_contents()))
    assert isinstance(figure, Figure)
    assert figure._repr_png_().startswith(PNG)  # type: ignore[attr-defined]
    assert plt.get_fignums() == []


@pytest.mark.parametrize("question", ASK)
def test_on_axes_of_the_user(question: str) -> None:
    figure = Figure()
    axes = figure.subplots()
    assert PLOTS[question](ASK[question](zoo_contents()), axes) is axes
    assert isinstance(axes, Axes)
    assert axes.get_title()


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("question", ASK)
def test_names_are_any_text(question: str) -> None:
    figure = PLOTS[question](ASK[question](hostile_contents()))
    assert figure._repr_png_().startswith(PNG)
    assert all(
        len(text.get_text()) <= 2 * MAX_LABEL_LENGTH + 20
        for text in texts_of(figure)
        if "exponent" not in text.get_text()
    )
    for text in texts_of(figure):
        if "$" in text.get_text() or "\\" in text.get_text():
            assert "mathdefault" in text.get_text() or not (text.get_parse_math() or text.get_usetex())


def test_names_are_no_tex_sources_either() -> None:
    with mpl.rc_context({"text.usetex": True}):
        axes = PLOTS["importance"](importance(hostile_contents()), Figure().subplots())
    assert not any(text.get_usetex() for text in axes.get_yticklabels())


@pytest.mark.parametrize("question", ASK)
def test_of_nothing(question: str) -> None:
    assert PLOTS[question](ASK[question](Contents()))._repr_png_().startswith(PNG)


def test_bars_show_the_first_rows_in_order() -> None:
    table = pd.DataFrame({"name": [f"S{n}" for n in range(100)], "count": range(100, 0, -1)})
    axes = PLOTS["most_used"](table).axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == [f"S{n}" for n in range(MAX_BARS)]
    assert [bar.get_width() for bar in axes.patches] == list(range(100, 100 - MAX_BARS, -1))
    assert axes.yaxis_inverted()


def test_the_numbers_in_the_matrix_are_the_result() -> None:
    result = overlap(zoo_contents(), shared=True)
    axes = PLOTS["overlap"](result).axes[0]
    assert [int(text.get_text()) for text in axes.texts] == result.to_numpy().ravel().tolist()
    assert [text.get_text() for text in axes.get_xticklabels()] == list(result.columns)


def test_the_plot_of_ranks_shows_every_law_and_the_verdict() -> None:
    found = rank_frequency(zoo_contents())
    figure = found.plot()
    linear, logarithmic = figure.axes
    assert (linear.get_xscale(), logarithmic.get_xscale(), logarithmic.get_yscale()) == ("linear", "log", "log")
    laws = {"structures", "power law", *found.comparisons["alternative"]}
    assert {text.get_text() for text in logarithmic.get_legend().get_texts()} == laws
    assert " ".join(figure.get_suptitle().split()) == found.verdict
    points = logarithmic.lines[0]
    assert points.get_ydata().tolist() == found.table["count"].tolist()
