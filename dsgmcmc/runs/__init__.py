"""Runs: jobs, the loop over iterations, records of draws, checkpoints, resuming, and comparisons of models.

`costs` estimates memory, disk space and messages. A run knows only the interfaces of a target and a sampler; update
rules and models are in other packages.
"""
