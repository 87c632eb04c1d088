"""What goes and what it becomes: from a request through dry runs to a plan, and the plan as a file."""
