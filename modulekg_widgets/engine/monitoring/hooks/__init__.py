"""How a module is measured: hooks on scheduled steps, and what they hand to the metrics.

To read: `module_hooks` attaches two hooks for all modules at the steps at which a metric is active (`active_metrics`);
`module_calls` decides what is read of a module's calls, `joint_metrics` for those that need more than one tensor, with
`attention` and `gradients`; an `observation` is what a call shows, of `tensors` that can be measured; `module_metric`
makes the value and `value_writer` stores it. `uncompiled` and `without_data` are for models that hooks do not see.
"""
