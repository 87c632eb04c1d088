"""Whole residual blocks that a plan removes.

influence.py and block_scoring.py score blocks, block_choice.py chooses among them, removal_file.py writes them into
plan files.
"""
