"""Widgets: traitlets and messages around the views; they compute nothing and do not import torch.

Reading order: shared/base.py (what all have in common), model_graph/ (the simplest one whole),
mask_editor/messages.py (a trait that both sides set), metric_panel/stream.py (values from a thread), then
forward_player/ and knowledge_explorer/; shared/pair_links.py and linking.py (`mk.link`), workbench/ on top; pages/
(`mk.save_html`), lab/ (the side panel of JupyterLab), hosts/ (other notebooks). What they show is made in
engine/views; js/src/widgets has the other end of each.
"""

import sys

if "google.colab" in sys.modules:
    from modulekg_widgets.widgets.hosts.colab import start

    start()
