"""This package beside other tools: `cd tests && python -m benchmarks.research.rivals --write ../docs/comparison.json`.

Reading order: models.py (what is shown), tool.py (what a tool is asked for) with a file per tool (ours.py,
torchvista_html.py and so on), kernel.py (CPU time until a page could open, a fresh process each), page.py (bytes, first
paint and gestures in Chromium), drawing.py (what is right in a picture), watching.py (what watching a training costs),
runner.py (all cells, resumed where they stopped), table.py (the tables of docs/comparison.md).
"""
