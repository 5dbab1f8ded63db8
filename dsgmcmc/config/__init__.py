"""Settings of a run and its job: read from files and options, merged, checked and resolved.

Importing this package loads nothing else, because some commands use only `units`.
"""
