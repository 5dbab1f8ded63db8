#!/usr/bin/env bash
# Package: mpich 5.0.2
# Expected: mpiexec ends with the status of a process: 70 or 75
# Seen: it ends with their bitwise OR, which no process had: 79
# Hits: job scripts that go on or give up by the status
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install mpich==5.0.2 mpi4py==4.1.2
status=0
# shellcheck disable=SC2016 # expanded by each process
mpiexec -n 2 bash -c 'exit $((70 + 5 * PMI_RANK))' </dev/null >/dev/null 2>&1 || status=$?
echo "statuses 70 and 75 give $status" | expect "statuses 70 and 75 give 79"
