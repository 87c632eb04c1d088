"""MaskEditor: what is shown of the draft, whoever draws in between; revisions only grow."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import modulekg_widgets as mk
from widgets.mask_page import Page
from widgets.test_mask_editor import HIDDEN, WIDE, X, net


@pytest.fixture
def editor() -> Iterator[mk.MaskEditor]:
    made = mk.MaskEditor(net(), X)
    yield made
    made.close()


@pytest.fixture
def page(editor: mk.MaskEditor, monkeypatch: pytest.MonkeyPatch) -> Page:
    return Page(editor, monkeypatch)


def test_what_is_drawn_while_python_shows_its_draft_is_shown_last(
    editor: mk.MaskEditor, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page draws in a thread of its own, between the moment at which the draft is read and that of its showing."""
    drawn, drawing = (
        editor._draft_traits,
        threading.Thread(target=page.draw, args=({HIDDEN: b"\x01\x00"},), kwargs={"base": 1}),
    )

    def interrupted(*of: Any) -> dict[str, Any]:
        found = drawn(*of)
        if not drawing.ident:
            drawing.start()
            drawing.join(0.5)
        return found

    revisions: list[int] = []
    editor.observe(lambda change: revisions.append(change["new"]["revision"]), "draft")
    monkeypatch.setattr(editor, "_draft_traits", interrupted)
    editor.plan = mk.plan(editor.graph, per_axis={WIDE: [4]})
    drawing.join()
    assert editor._draft.dropped == {HIDDEN: [0]}
    assert (editor.draft["revision"], editor.revision, editor.dropped) == (2, 2, editor._draft.packed())
    assert revisions == [1, 2]


def test_what_an_observer_of_the_draft_draws_is_not_taken_back(editor: mk.MaskEditor, page: Page) -> None:
    def follow(change: Any) -> None:
        editor.unobserve(follow, "draft")
        editor.plan = mk.plan(editor.graph, per_axis={WIDE: [4]})

    editor.observe(follow, "draft")
    page.draw({HIDDEN: b"\x01\x00"})
    assert editor._draft.dropped == {WIDE: [4]}
    assert (editor.draft["revision"], editor.revision, editor.dropped) == (2, 2, editor._draft.packed())
