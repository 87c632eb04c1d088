"""From structure to accuracy, latency or whatever jobs reached: what is known, how it is learnt, how far to trust it.

Read features.py first (what of a model is looked at) and published.py (what torchvision publishes), then
observations.py (all values of a target, by where they were measured, with modality.py for what models take). design.py
says how alike samples are, process.py has the arithmetic of Gaussian processes on scales.py, judging.py their errors
for families left out, mixture.py averages them, and surface.py chooses among them at one site. choice.py sets
boosting.py (on trees.py) and the network of gnn.py against these. predictor.py answers: domain.py says where nothing is
known, datasets.py and elsewhere.py what other data sets tell. evaluation.py compares all, with regressions.py, on
families that they have not seen.
"""
