"""What the page of a mask editor asks of the kernel."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from modulekg_widgets.engine.errors import CutError, ModuleKGError
from modulekg_widgets.engine.pruning.plan.draft import Edit
from modulekg_widgets.engine.views.payload import text
from modulekg_widgets.widgets.shared.base import WidgetValueError
from modulekg_widgets.widgets.shared.main_thread import in_main_thread, when_idle

if TYPE_CHECKING:
    from modulekg_widgets.widgets.mask_editor.mask_editor import MaskEditor


class MaskMessages:
    """Answers one editor's page; an error is an answer too."""

    def __init__(self, editor: MaskEditor) -> None:
        self._editor = weakref.ref(editor)
        # the draft is changed at once, also beside a running cell
        self._of_draft = {"edit": self._edit, "sync": self._sync}
        self._of_model = {
            "check": self._check, "mask": self._mask, "cut": self._cut,
            "undo": self._undo, "save": self._save, "load": self._load,
        }  # fmt: skip

    def heard(self, _widget: Any, content: Any, buffers: Any) -> None:
        """Do what one message asks for; what runs or changes the model waits until no cell runs."""
        action = content.get("type") if isinstance(content, dict) else None
        if not isinstance(action, str):
            return
        if action in self._of_draft or (action in self._of_model and in_main_thread()):
            self._do(action, content, buffers)
        elif action in self._of_model:
            when_idle(lambda: self._do(action, content, buffers))

    def _do(self, action: str, content: Any, buffers: Any) -> None:
        editor = self._editor()
        if editor is None or editor.comm is None:
            return
        try:
            done = {**self._of_draft, **self._of_model}[action](editor, content, buffers)
        except ModuleKGError as error:
            editor.send({"type": "failed", "action": action, "text": text(str(error))})
        else:
            if done is not None:
                editor.send({"type": "done", "action": action, "text": text(done)})

    def _edit(self, editor: MaskEditor, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        """Every page hears of an edit, the one that made it too: that is its receipt."""
        name = content.get("id")
        try:
            if content.get("generation") != editor._generation:
                raise WidgetValueError("the model has been cut or restored meanwhile: its axes are others")
            editor._masks.apply(_edits(content.get("edits"), buffers))
        except ModuleKGError as error:
            editor._show_draft(refused=name, why=text(str(error)))
            return
        editor._keep_draft()
        answer = {"type": "applied", "id": name, "revision": editor.revision, "edits": content["edits"]}
        editor.send(answer, list(buffers))

    def _check(self, editor: MaskEditor, content: dict[str, Any], buffers: Any) -> str:
        with contextlib.suppress(CutError):  # the report has it
            editor._check()
        return ""  # the report says it all, and may be the same as before

    def _mask(self, editor: MaskEditor, content: dict[str, Any], buffers: Any) -> str:
        editor.mask()
        return f"Masked: {editor._applied[-1].plan.summary}"

    def _cut(self, editor: MaskEditor, content: dict[str, Any], buffers: Any) -> str:
        editor.cut()
        return f"Cut: {editor._applied[-1].plan.summary}"

    def _undo(self, editor: MaskEditor, content: dict[str, Any], buffers: Any) -> str:
        was = editor.stage
        editor.undo()
        return f"Undone: the model is as it was before it was {was}"

    def _save(self, editor: MaskEditor, content: dict[str, Any], buffers: Any) -> str:
        path = editor._plans.checked(content.get("path"))
        editor._plans.save(editor._wanted(), path)
        editor._name_by_page(path)
        editor.path = path
        return f"Saved as {path}"

    def _load(self, editor: MaskEditor, content: dict[str, Any], buffers: Any) -> str:
        path = editor._plans.checked(content.get("path"))
        editor.plan = editor._plans.load(path)
        editor._name_by_page(path)
        editor.path = path
        return f"Loaded {path}"

    def _sync(self, editor: MaskEditor, content: dict[str, Any], buffers: Any) -> None:
        editor._show_draft()


def _edits(listed: Any, buffers: Sequence[Any]) -> list[Edit]:
    """The edits of a message, whose buffer has their bytes one after the other."""
    content = b"".join(bytes(buffer) for buffer in buffers)
    found, used = [], 0
    for entry in listed if isinstance(listed, list) else ():
        if not (isinstance(entry, list) and len(entry) == 3 and all(type(n) is int and n >= 0 for n in entry)):
            break
        axis, start, length = entry
        found.append(Edit(axis, start, content[used : used + length]))
        used += length
    if not found or used != len(content):
        raise WidgetValueError("an edit has a list of [axis, first byte, count] and as many bytes: this one has not")
    return found
