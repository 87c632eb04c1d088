"""What JupyterLab asks of a kernel: its objects, and tabs that show them."""
