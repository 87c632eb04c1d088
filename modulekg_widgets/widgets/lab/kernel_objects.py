"""Comm target that sends the models, plans and runs of the kernel to the side panel of JupyterLab."""

from __future__ import annotations

import logging
import sys
from typing import Any

from modulekg_widgets.engine.views.object_list import ObjectList

# of the comm, too: a kernel has one. It is never opened, as front ends that do not know it would report an error;
# messages on a comm that is not known are ignored by all of them
TARGET = "modulekg-widgets:kernel-objects"

logger = logging.getLogger("modulekg_widgets")


def start() -> None:
    """Start to send the list after each cell; does nothing outside of a Jupyter kernel, and never raises."""
    try:
        ipython = sys.modules.get("IPython.core.getipython")
        shell = None if ipython is None else ipython.get_ipython()
        if getattr(shell, "kernel", None) is not None:
            KernelObjects(shell).announce()
    except Exception:
        logger.debug("the side panel of JupyterLab does not know what the kernel has", exc_info=True)


class KernelObjects:
    """Sends the list when it has changed; holds no reference to the objects."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.sent: dict[str, object] | None = None
        self.objects = ObjectList(shell)

    def announce(self) -> None:
        """Register with the kernel's events, once per kernel."""
        from comm import create_comm, get_comm_manager

        manager = get_comm_manager()
        if TARGET in manager.comms:
            return
        self.comm = create_comm(target_name=TARGET, comm_id=TARGET, primary=False)
        self.comm.on_msg(self.answer)
        manager.register_comm(self.comm)
        self.shell.events.register("post_run_cell", self.after_cell)

    def after_cell(self, result: object = None) -> None:
        try:
            listed = self.objects.payload()
            if listed != self.sent:
                self.comm.send(listed)
                self.sent = listed
        except Exception:
            logger.debug("the list of objects could not be sent", exc_info=True)

    def answer(self, message: dict[str, Any]) -> None:
        """Handle a request of the front end: a fresh list, or closing the widget of a tab."""
        try:
            asked = message["content"]["data"]
            if asked.get("method") == "list":
                self.objects.forget()
                self.sent = self.objects.payload()
                self.comm.send(self.sent)
            elif asked.get("method") == "close":
                from modulekg_widgets.widgets.lab.tabs import close

                close(asked.get("tab"))
        except Exception:
            logger.debug("a message of the side panel could not be answered", exc_info=True)
