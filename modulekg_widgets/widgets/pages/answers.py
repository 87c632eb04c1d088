"""What a saved page has in the kernel's place: the messages that a kernel would send, and its answers, by widget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from modulekg_widgets.engine.errors import ModuleKGError
from modulekg_widgets.engine.registry import Registry
from modulekg_widgets.engine.views.payload import text

if TYPE_CHECKING:
    from modulekg_widgets.widgets.forward_player.forward_player import ForwardPlayer
    from modulekg_widgets.widgets.mask_editor.mask_editor import MaskEditor
    from modulekg_widgets.widgets.metric_panel.metric_panel import MetricPanel

MOST_PIXELS = 8 << 20  # bytes of a ForwardPlayer's pictures in one page
MISSING = "This picture is not in the saved page."


class Message(NamedTuple):
    """A message of the kernel: its JSON content and its binary buffers."""

    content: dict[str, Any]
    buffers: Iterable[bytes]


class Answer(NamedTuple):
    """What comes back for a message that has all of `question`: that message with `content` over it.

    Without buffers of its own those of the message come back.
    """

    question: dict[str, Any]
    content: dict[str, Any]
    buffers: Iterable[bytes] | None = None


# by the name of the class; of the answers the first that fits counts
updates: Registry[Callable[[Any], Iterable[Message]]] = Registry("widget")
answers: Registry[Callable[[Any], Iterable[Answer]]] = Registry("widget")


@updates.register("MetricPanel")
def _values(panel: MetricPanel) -> Iterator[Message]:
    """All values, thinned as for a page that comes late."""
    from modulekg_widgets.engine.views.metric_reader import Updates

    update = Updates(panel.runs).next()
    if update is not None:
        # a reader that has just begun has seen no monitor running
        ended = [number for number, run in enumerate(panel.runs) if not getattr(run, "is_running", None)]
        yield Message({"kind": "update", "seq": 1, "reset": True, **update.content, "ended": ended}, update.buffers)


@answers.register("MaskEditor")
def _edits(editor: MaskEditor) -> Iterator[Answer]:
    """Every edit is taken; there is no dry run, as it needs the model, so the report stays that of an earlier draft."""
    yield Answer({"type": "edit"}, {"type": "applied", "revision": editor.revision + 1})
    yield Answer({"type": "check"}, {"type": "done", "action": "check", "text": ""})


@answers.register("ForwardPlayer")
def _pictures(player: ForwardPlayer) -> Iterator[Answer]:
    """Of the item that is shown: the first page of each step, then the further ones, as far as there is room."""
    room = MOST_PIXELS
    waiting = [(step, 0) for step in range(len(player))]
    for step, page in waiting:  # grows
        question = {"kind": "maps", "run": player._runs, "step": step, "sample": player.sample, "page": page}
        content, pixels, has_more = _picture(player, step, page)
        room -= sum(map(len, pixels))
        if room < 0:
            break
        if content:
            yield Answer(question, content, pixels)
        if has_more:
            waiting.append((step, page + 1))
    yield Answer({"kind": "maps"}, {"error": MISSING})


def _picture(player: ForwardPlayer, step: int, page: int) -> tuple[dict[str, Any], list[bytes], bool]:
    """The content of an answer, its pixels, and whether there is a further page."""
    from modulekg_widgets.engine.views.forward_payload import maps_message
    from modulekg_widgets.widgets.shared.main_thread import in_main_thread

    try:
        found = player._played.picture(step, player.sample, page, in_main_thread())
    except ModuleKGError as error:
        return {"error": text(str(error))}, [], False
    if found is None:
        return {}, [], False
    maps, pixels = maps_message(*found)
    drawn = found[0]
    shown = {"channels": len(drawn.ranges), "strip": drawn.width * drawn.height}.get(drawn.form, drawn.total)
    return {"maps": maps}, pixels, drawn.first + shown < drawn.total
