"""Workbench: the widgets of one model, linked."""
