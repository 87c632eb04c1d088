"""Sphinx's configuration: `sphinx-build -W --keep-going -n docs docs/_build` makes the whole site, with no network."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models of the gallery are made from configurations alone

import modulekg_widgets as mk  # noqa: E402

project = "modulekg-widgets"
author = "modulekg-widgets contributors"
copyright = author
release = version = mk.__version__
language = "en"

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    # of this folder
    "api",
    "flowcharts",
    "live_pages",
    "repository",
    "tables",
]
exclude_patterns = ["_build", "jupyter_execute", "**/.ipynb_checkpoints"]

# ------------------------------------------------------------- documents

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4  # as code hosts make them, so that a link works in both places
myst_fence_as_directive = ["mermaid"]

# ------------------------------------------------------------- notebooks

nb_execution_mode = "off"  # extension `repository` brings them executed or as they are
nb_ipywidgets_js = {}  # its scripts come from content delivery networks
# of a widget the picture that a saved notebook keeps; its state needs scripts of other hosts
nb_mime_priority_overrides = [
    ("html", "application/vnd.jupyter.widget-view+json", None),
    ("html", "image/svg+xml", 1),
    ("html", "text/html", 5),
    ("html", "image/png", 10),
]

# ------------------------------------------------------------- reference

autodoc_typehints = "none"  # the docstrings tell the types in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # extension `api` lists them
toc_object_entries_show_parents = "hide"
add_function_parentheses = False
python_use_unqualified_type_names = True
default_role = "named"  # of extension `api`: docstrings name what they mean in single backticks

# ------------------------------------------------------------- pages

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["frames.js"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": project},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,  # arrow keys belong to the widgets
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "back_to_top_button": False,
}
html_sidebars = {"index": []}

# a prompt is no part of what is copied, nor is what the code prints
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
