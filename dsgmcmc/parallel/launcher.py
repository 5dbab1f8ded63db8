"""What launchers tell a process in its environment; needs no MPI.

Other rooms than `dsgmcmc.parallel` read it, too: people are told once what all processes do.
"""

from __future__ import annotations

import os

#: Variable for the number of tasks of a Slurm step. A batch script is in no step, whatever the
#: number of its tasks.
SLURM_STEP = "SLURM_STEP_NUM_TASKS"
#: Environment variables in which launchers pass the number of processes, each with the variable for
#: the rank of this process.
LAUNCHERS = {
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE": "PMI_RANK",
    SLURM_STEP: "SLURM_PROCID",
}
#: Variable for the rank alone, which all launchers with PMIx set.
PMIX_RANK = "PMIX_RANK"


def is_first() -> bool:
    """Whether this process is the first one of its innermost launcher."""
    ranks = (os.environ.get(name) for name in (*LAUNCHERS.values(), PMIX_RANK))
    return next(filter(None, ranks), "0") == "0"
