"""The ipywidgets: traitlets and messages. They never compute and never import torch.

Reading order: shared/base.py (what all have in common), model_graph/ (the simplest one whole),
mask_editor/messages.py (a trait that both sides set), metric_panel/stream.py (values from a thread), then
forward_player.py and knowledge_explorer.py; shared/pair_links.py and linking.py (`mk.link`), workbench.py on top;
pages/ (`mk.save_html`), lab/ (the side panel of JupyterLab), hosts/ (other notebooks). Payloads are made in
engine/views; js/src/widgets has the other end of each.
"""

import sys

if "google.colab" in sys.modules:
    from modulekg_widgets.widgets.hosts.colab import start

    start()
