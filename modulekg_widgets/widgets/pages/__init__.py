"""Widgets as one HTML file that opens offline.

Reading order: pages.py (`mk.save_html`), answers.py (what a page has in the kernel's place; each widget's own module
registers its part); js/src/standalone shows it.
"""
