"""Targets in milliseconds: cut copies of the model are measured beside the uncut one."""
