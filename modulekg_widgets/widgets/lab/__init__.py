"""What JupyterLab asks of a kernel: its objects, and tabs that show them. Importing it begins to tell."""

from modulekg_widgets.widgets.lab.kernel_objects import start

start()
