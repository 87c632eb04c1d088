"""The kernel side, which knows no widget: what a module is, and what is known of many models."""
