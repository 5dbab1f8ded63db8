"""Runs: jobs, chains and their checkpoints, resuming, and comparisons of models.

`warm_start` starts a run from an earlier run. `costs` estimates memory, disk space and messages.
The update rules of samplers and the parts of models are in other packages.
"""
