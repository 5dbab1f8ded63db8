#!/usr/bin/env bash
# Run the tests: those of several processes under mpirun, then all others.
#
#   launch/test.sh                        what a change can break: all tests but those marked `long`
#   launch/test.sh --all                  every test, those of several processes also with other numbers of them and
#                                         other MPI libraries
#   launch/test.sh tests/unit -k philox   pytest with these arguments only, in the same environment
#
# Makes the environment first (launch/environment.sh). MovieLens data are found through DSGMCMC_DATASETS.
set -euo pipefail
# shellcheck source=launch/environment.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
make_environment openmpi,test,report
cd "$root"
unset PYTHONDONTWRITEBYTECODE # set in some images: a thousand starts would compile the package a thousand times
tell_open_mpi 4
# in the background of a script Ctrl-C is ignored, and the tests of Ctrl-C would wait for ever
pytest=(env --default-signal=INT python -m pytest)
if [ $# -gt 0 ] && [ "$*" != --all ]; then
  exec "${pytest[@]}" "$@"
fi
all='' chosen='not long'
if [ "$*" = --all ]; then
  all=yes chosen=''
fi

logs=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$logs"' EXIT
failed=0

# test_with_processes LIBRARY PROCESSES MARKS: every process writes its own log and has its own temporary files: pytest
# clears away those of earlier runs when it ends, and processes that clear the same folder at once find it gone under
# them. A test that hangs ends the job (tests/mpi/conftest.py), and a job that hangs is killed.
test_with_processes() {
  local library=$1 processes=$2 marks=$3 log=$logs/$1-$2
  mkdir "$log"
  # shellcheck disable=SC2016 # expanded by each process
  if timeout --kill-after=10 900 mpirun -n "$processes" \
    bash -c 'r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}; exec "$@" --basetemp="$0/tmp-$r" >"$0/$r" 2>&1' "$log" \
    "${pytest[@]}" tests/mpi --with-mpi -m "$marks" -p no:cacheprovider </dev/null; then
    printf '%s, %s processes: %s\n' "$library" "$processes" "$(tail -n 1 "$log/0")"
  else
    tail -n 100 "$log"/[0-9]*
    failed=1
  fi
}

# make_environment_with LIBRARY: an extra of the package, in an environment of its own beside the first one
make_environment_with() { venv=$venv-$1 make_environment "$1,test"; }

# test_with_library LIBRARY PROCESSES
test_with_library() {
  local path=$PATH
  make_environment_with "$1"
  test_with_processes "$1" "$2" "not once"
  PATH=$path
}

# Three processes: blocks that they do not divide, neighbours on either side, and a resumption on two. One process is in
# the queue below. What depends on the number of processes, or on the library, has no mark `once`.
if [ "$all" ]; then time="40 minutes"; else time="17 minutes; --all runs every test"; fi
say "Tests of several processes (of about $time, on two idle cores)"
if [ "$all" ]; then
  # meanwhile the environments of the other libraries; one that could not be made is made again below, where pip is heard
  (for library in mpich intelmpi; do make_environment_with "$library"; done) >/dev/null 2>&1 &
  environments=$!
fi
test_with_processes openmpi 3 "$chosen"
if [ "$all" ]; then
  for processes in 2 4; do
    test_with_processes openmpi "$processes" "not once"
  done
  wait "$environments" || true
  for library in mpich intelmpi; do
    test_with_library "$library" 3
  done
  export DSGMCMC_OTHER_MPIRUN=$venv-mpich/bin/mpirun
fi

# Whole files side by side, in this order: the longest first. One more than there are cores, because those on clusters wait
# for a network, a scheduler or a signal most of the time. BLAS has one thread in each, as in every command: threads that
# share a core spin while they wait for each other. A test that ends its process ends all of it, and is named.
say "Tests on clusters, of whole commands and of one process"
OPENBLAS_NUM_THREADS=1 "${pytest[@]}" \
  tests/cluster/test_docker.py tests/cluster tests/system tests/mpi tests/statistical tests/papers tests/unit \
  --with-mpi -m "not once${chosen:+ and $chosen}" \
  --numprocesses=$(($(usable_cores) + 1)) --dist=loadfile --no-loadscope-reorder --max-worker-restart=0 \
  --timeout=600 --durations=20 || failed=1
exit "$failed"
