"""What lies on the disk: snapshots and their manifests, run directories, locks, and the check of all of it.

Nothing here knows what the arrays mean, nor which settings a run has.
"""
