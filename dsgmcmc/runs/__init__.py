"""A chain from its first iteration to its last: the job, its loop, what it records, checkpoints and resuming.

What it will take stands in `plan` and `forecast`, what that rests on in `calibrate`, what to choose in `advice`, how
far an allocation scales in `scaling`.

Neither the update rule nor the model lives here: a run knows a target and a sampler by what they promise.
"""
