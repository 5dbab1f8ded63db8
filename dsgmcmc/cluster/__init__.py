"""The machines that a run is started on: what they lack, how fast they are, what sampling costs, their job scripts.

Nothing here samples; `templates` has the scripts.
"""
