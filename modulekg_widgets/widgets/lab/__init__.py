"""What JupyterLab asks of a kernel.

Reading order: kernel_objects.py (which objects it has, for the side panel), tabs.py (tabs that show one of them).
"""
