"""What a model does while it trains: metrics of its modules, read by hooks, merged over ranks, kept and sent to sinks.

To read: `metric` (what a metric is), `metrics/` (the built-in ones) and `measures/` (what they share of a tensor);
`config` and `schedule` (which metric, of which module, when); `hooks/` (how a call of a module is measured); `ring`,
`history` and `readings` (where values go); `monitor`, which joins all that, and `run`, what is left of it; then
`merge/` (several ranks), `sinks/` (files and dashboards), `alerts`, `hessian`, and `tools`, which is `mk.monitoring`.
"""
