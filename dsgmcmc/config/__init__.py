"""Settings of a run and its job, which this package reads from files and options, merges, checks and resolves.

This file imports nothing, because some commands use only `units`.
"""
