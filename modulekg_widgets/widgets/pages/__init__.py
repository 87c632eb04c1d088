"""Widgets as one HTML file: `mk.save_html`, and the answers that a page has in the kernel's place."""
