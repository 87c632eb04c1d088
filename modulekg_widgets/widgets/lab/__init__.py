"""Kernel side of the JupyterLab extension; importing it starts the object list, and shows the progress of long work.

Reading order: kernel_objects.py (which objects it has, for the side panel), tabs.py (tabs that show one of them).
"""

from contextlib import AbstractContextManager

from modulekg_widgets.engine.torch_runtime.isolation.progress import display_with
from modulekg_widgets.widgets.lab.kernel_objects import start


def _display_progress(title: str) -> AbstractContextManager[None]:
    from modulekg_widgets.widgets.shared.progress import display_progress  # which takes a while to import

    return display_progress(title)


start()
display_with(_display_progress)
