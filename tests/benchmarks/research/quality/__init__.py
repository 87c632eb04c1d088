"""What cutting costs trained nets, ours against Torch-Pruning: `cd tests && python -m benchmarks.research.quality`.

Reading order: task.py (what is known of a net), nets/ (a file each), training.py and trained.py (seeded, kept between
runs), ours.py and peer.py (a copy of the net, cut to a share of its FLOPs), measure.py (one cell of the table),
runner.py (all cells, resumed where they stopped), table.py (means, ranges, verdicts).
"""
