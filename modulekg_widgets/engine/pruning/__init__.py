"""Choosing what goes, trying it, cutting it for real, and taking it back.

Reading order: importance/ (which indices matter), plan/ (from a request through dry runs to a plan), cut/ (the plan on
a model, and the way back), recover/ (how a cut model gets back what it lost), sensitivity/ (what each index costs),
then nni/ (mask files of others). pruning.py is what users reach as `mk.pruning`, by_hand.py what a model that is pruned
by hand keeps, user_data.py what batches, a loss and a function of the user say of it. A plan is data: nothing up to
cut/ writes to a model.
"""
