"""A training watched: metrics of its modules, read by hooks, merged over ranks, kept and sent to sinks.

Read metric.py first, then metrics/ (the built-in ones) on measures/ (what they share of a tensor); config.py and
schedule.py (which metric, of which module, when); hooks/ (how a call is measured); transfer_ring.py, history.py and
readings.py (where values go); monitor.py, which joins all that, and run.py, what it gives. merge/ is for several
ranks, sinks/ for files and dashboards; monitoring.py is `mk.monitoring`.
"""
