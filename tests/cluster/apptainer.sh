#!/usr/bin/env bash
# Build launch/apptainer.def, and sample with the image: what docs/clusters.md says of Apptainer, checked. It is no part
# of CI: it takes five to ten minutes, and needs packages of Debian unstable.
#
#   tests/cluster/apptainer.sh
#
# As root on Debian, it makes a root file system of Debian unstable with Apptainer and Open MPI, in which it works as an
# ordinary user. It needs debootstrap and 4 GB. No registry is asked: the base image is made from Debian's packages too.
#
# DSGMCMC_APPTAINER   the folder of the root file systems, which are kept; default: ~/.cache/dsgmcmc-apptainer
set -euo pipefail
script=$(realpath "${BASH_SOURCE[0]}")
root=$(realpath "${script%/*}/../..")
folder=${DSGMCMC_APPTAINER:-${XDG_CACHE_HOME:-$HOME/.cache}/dsgmcmc-apptainer}
tree=$folder/sid
user=ann
bundle=/etc/ssl/certs/ca-certificates.crt

say() { printf '\n== %s\n' "$*"; }

# ---------------------------------------------------------------------- the root file systems

# make_tree NAME RELEASE PACKAGES: a root file system that is not complete has another name
make_tree() {
  [ ! -d "$folder/$1" ] || return 0
  say "Making a root file system of Debian $2 in $folder/$1"
  rm -rf "$folder/$1.part"
  debootstrap --variant=minbase --include="$3" "$2" "$folder/$1.part" >"$folder/$1.log" 2>&1 ||
    { tail -n 5 "$folder/$1.log" && exit 1; }
  mv "$folder/$1.part" "$folder/$1"
}

prepare() {
  mkdir -p "$folder"
  make_tree bookworm bookworm ca-certificates
  make_tree sid sid apptainer,ca-certificates,fuse3,openmpi-bin,python3-minimal,squashfs-tools,uidmap
  chroot "$tree" id "$user" >/dev/null 2>&1 || chroot "$tree" useradd --create-home "$user"
  [ -e "$tree/fuse" ] || mknod --mode=666 "$tree/fuse" c 10 229
  local file
  for file in /etc/hosts /etc/resolv.conf "$bundle"; do # where PyPI is, and whom to trust
    cp --dereference "$file" "$tree$file"
  done
  cp "$bundle" "$folder/bookworm$bundle"
  rm -rf "$folder"/bookworm/dev/* # an ordinary user can copy neither devices nor files of root
  chown --recursive --no-dereference "$(chroot "$tree" id --user "$user")" "$folder/bookworm"
}

# enter: go on within the tree, as its user; Apptainer refuses a plain chroot
enter() {
  mount --bind "$tree" "$tree"
  local place
  for place in /dev /proc /sys; do
    mount --rbind "$place" "$tree$place"
  done
  mount --bind "$tree/fuse" "$tree/dev/fuse" # which only root may open on some machines
  mkdir -p "$tree/source" "$tree/base" "$tree/outside"
  mount --bind "$root" "$tree/source"
  mount --bind "$folder/bookworm" "$tree/base"
  cd "$tree"
  pivot_root . outside
  umount --lazy /outside
  exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb PIP_CERT="$bundle" inside=yes \
    chroot . su "$user" --command 'exec /source/tests/cluster/apptainer.sh'
}

case ${inside-} in
'')
  if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
    echo "root and debootstrap are needed" >&2
    exit 77
  fi
  prepare
  inside=soon exec unshare --mount --propagation private "$script"
  ;;
soon) enter ;;
esac

# ---------------------------------------------------------------------- the image

image=$HOME/dsgmcmc.sif
work=$HOME/work
export OMPI_MCA_mpi_yield_when_idle=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
rm -rf "$work"
mkdir -p "$work"

say "Building the image, from Debian's packages in place of debian:bookworm-slim"
sed -e 's/^Bootstrap: .*/Bootstrap: localimage/' -e 's/^From: .*/From: \/base/' /source/launch/apptainer.def >"$HOME/image.def"
cd /source
apptainer build --fakeroot --force "$image" "$HOME/image.def" >"$HOME/build.log" 2>&1 || {
  tail -n 20 "$HOME/build.log"
  exit 1
}
cd "$work"

# ---------------------------------------------------------------------- checks

failures=0

# check WHAT EXPECTED FOUND
check() {
  if [ "$2" = "$3" ]; then
    printf 'ok      %s\n' "$1"
  else
    printf 'FAILED  %s: expected %s, found %s\n' "$1" "$2" "$3"
    failures=$((failures + 1))
  fi
}

# status COMMAND...: print the exit status; what was printed is in log
status() {
  local code=0
  timeout 300 "$@" >log 2>&1 </dev/null || code=$?
  echo "$code"
}

# draws RUN: print a checksum of the posterior
draws() {
  find "$1/posterior" -name 'shard-*.h5' | sort | xargs cat | sha256sum | cut -c-16
}

outside=(mpirun -n 3)
within=(apptainer exec "$image")
sample=(dsgmcmc sample ratings.h5 --grid 3 --seed 1)
short=(--burn-in 20 --iterations 50)

python3 - >ratings.csv <<'END'
import random

random.seed(1)
print("user,item,rating")
for user in range(300):
    for item in random.sample(range(200), 30):
        print(f"u{user},i{item},{random.randint(1, 5)}")
END
say "Sampling"
check "prepare" 0 "$(status "${within[@]}" dsgmcmc prepare ratings.csv ratings.h5)"
check "mpirun of the machine" 0 "$(status "${outside[@]}" "${within[@]}" "${sample[@]}" "${short[@]}" --out outside)"
check "mpirun of the image" 0 "$(status "${within[@]}" mpirun -n 3 "${sample[@]}" "${short[@]}" --out within)"
check "equal draws" "$(draws outside)" "$(draws within)"

say "Stop and resume"
"${outside[@]}" "${within[@]}" "${sample[@]}" --burn-in 20 --iterations 100000 --out stopped >log 2>&1 &
until [ -e stopped/listening ] || ! kill -0 $! 2>/dev/null; do sleep 0.2; done
sleep 2
kill -USR1 $!
code=0
wait $! || code=$?
check "SIGUSR1 to mpirun: status 75" 75 "$code"
first=$(find stopped/checkpoints/chain-0 -name 'step-*' | sort | tail -n 1)
check "a time limit: status 75" 75 \
  "$(status "${outside[@]}" "${within[@]}" dsgmcmc sample ratings.h5 --resume --max-walltime 10s --out stopped)"
last=$(find stopped/checkpoints/chain-0 -name 'step-*' | sort | tail -n 1)
check "the run went on after its checkpoint" yes "$([[ $last > $first ]] && echo yes || echo no)"

say "Without the machine's folders"
check "no home folder: kernels are compiled elsewhere" 0 \
  "$(status "${outside[@]}" apptainer exec --no-home --bind "$work" --pwd "$work" "$image" "${sample[@]}" "${short[@]}" --out homeless)"
check "the same draws" "$(draws outside)" "$(draws homeless)"
check "--contain with the mending line" 0 \
  "$(OMPI_MCA_btl_sm_backing_directory=/tmp status "${outside[@]}" apptainer exec --contain --bind "/tmp,$work" --pwd "$work" "$image" \
    "${sample[@]}" "${short[@]}" --out contained)"
check "the same draws" "$(draws outside)" "$(draws contained)"
check "-C and a run in the container's memory: refused" 2 \
  "$(status "${outside[@]}" apptainer exec -C --bind "$work/ratings.h5:/data.h5" "$image" dsgmcmc sample /data.h5 --out lost)"
check "the refusal names the memory" yes "$(grep -q 'in the memory of this container' log && echo yes || echo no)"
check "-C, mpirun of the image" 0 \
  "$(status apptainer exec -C --bind "$work" --pwd "$work" "$image" mpirun -n 3 --oversubscribe "${sample[@]}" "${short[@]}" --out alone)"
check "the same draws" "$(draws outside)" "$(draws alone)"
printf '\n%s failure(s)\n' "$failures"
exit $((failures > 0))
