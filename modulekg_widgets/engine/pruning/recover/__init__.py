"""What a cut costs, and how a cut model gets back what it lost."""
