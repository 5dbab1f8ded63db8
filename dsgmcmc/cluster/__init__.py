"""The machines that a run is started on: what they lack, how fast they are, and the scripts of their batch systems.

Nothing here samples; `templates` has the scripts.
"""
