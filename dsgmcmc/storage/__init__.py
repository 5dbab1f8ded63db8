"""Files on disk: snapshots and their manifests, run directories, locks, and checks of all of them.

Nothing here knows what the arrays mean, nor which settings a run has.
"""
