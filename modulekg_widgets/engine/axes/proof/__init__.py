"""The proof of axes: permuting an axis in all of its members at once must leave the outputs unchanged.

Read verify.py first, with double_precision.py (float64 without noise) and control_flow.py (values on which forward
decides), then operator_proofs.py (operators that a test has proved, and axes that need a proof of their own).
list_proof.py finds and proves lists of modules that go with an axis, as experts with the rows of their router.
"""
