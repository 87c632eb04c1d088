"""The graph as a whole: types, ranks, centrality, communities, overlap, and a plot of each.

Read containment.py first (which structure stands in which), then module_types.py, centrality.py, communities.py,
similarity.py (with families of models), and rank_frequency.py on power_law.py.
"""
