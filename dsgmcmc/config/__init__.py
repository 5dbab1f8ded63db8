"""Settings of runs and jobs: they are read from files and options, merged, checked and resolved.

This file imports nothing, because some commands use only `units`.
"""
