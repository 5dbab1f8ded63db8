"""The machines that a run is started on: checks, speed, costs of sampling, job scripts.

Nothing here samples; `templates` has the scripts.
"""
