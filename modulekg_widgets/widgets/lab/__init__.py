"""Kernel side of the JupyterLab extension; importing it starts the object list.

Reading order: kernel_objects.py (which objects it has, for the side panel), tabs.py (tabs that show one of them).
"""

from modulekg_widgets.widgets.lab.kernel_objects import start

start()
