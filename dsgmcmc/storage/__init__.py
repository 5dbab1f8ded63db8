"""Files on disk: snapshots and their manifests, run directories, locks, and checks of all of them.

The package does not know the meaning of the arrays or the settings of a run.
"""
