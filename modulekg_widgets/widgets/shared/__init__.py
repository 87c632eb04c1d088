"""The parts that all widgets share.

Reading order: base.py (the front-end module, strict keywords), model_widget.py (widgets of one model), sliced_work.py
(long work between cells), pair_links.py (what joins two widgets), output_pictures.py (pictures in saved notebooks).
"""
