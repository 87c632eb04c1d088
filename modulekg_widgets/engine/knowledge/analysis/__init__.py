"""What the graph as a whole looks like: kinds, ranks, importance, communities, overlap, and a picture of each."""
