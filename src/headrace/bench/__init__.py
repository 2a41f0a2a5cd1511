"""Measuring: what a machine can do, what the engine makes of it, and any endpoint under load.

`record` and `workload` are what the parts of a load run agree on: `prompts` and `traces` make a
workload, `client` and `load` send it and write records, `definitions` and `summary` compute from
them, `report` shows and compares. `providers` does so over days; `mock` is an endpoint to try on.
"""
