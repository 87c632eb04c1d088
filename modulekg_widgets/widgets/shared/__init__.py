"""What all widgets have in common.

Reading order: base.py (the base class, the kernel's main thread, cells that run again), slices.py (long work between
cells), pair_links.py (what joins two widgets), box_picture.py (pictures of boxes in saved notebooks).
"""
