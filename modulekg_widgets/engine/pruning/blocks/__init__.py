"""Whole residual blocks that a plan removes.

influence.py and scoring.py score blocks, choice.py chooses among them, removal_file.py writes them into plan files.
"""
