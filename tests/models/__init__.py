"""Small nets that several tests share, each of a structure that its name and docstring say.

A net that one test alone is about stands in that test. Parameters are made in the order of the attributes, so that a
seed gives the same numbers everywhere.
"""
