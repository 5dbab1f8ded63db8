"""A chain from its first iteration to its last: the job, its loop, what it records, checkpoints and resuming.

`costs` says how much memory, disk and traffic it needs.

Neither the update rule nor the model lives here: a run knows a target and a sampler by what they promise.
"""
