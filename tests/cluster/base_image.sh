#!/usr/bin/env bash
# Have the base image debian:bookworm-slim, or that of another release of Debian (base_image.sh sid): as it is here,
# pulled, or, where no registry can be reached, made from Debian's packages, with the certificates that this machine
# trusts.
set -euo pipefail
release=${1:-bookworm}
image=debian:$release-slim
if docker image inspect "$image" >/dev/null 2>&1 || timeout 60 docker pull --quiet "$image" >/dev/null 2>&1; then
  exit
fi
if ! command -v debootstrap >/dev/null || [ "$(id -u)" -ne 0 ]; then
  echo "$image cannot be pulled here, and making it needs root and the package debootstrap" >&2
  exit 1
fi
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
debootstrap --variant=minbase "$release" "$tree" >"$tree.log" 2>&1 || {
  tail -n 20 "$tree.log" >&2
  exit 1
}
rm "$tree.log"
rm -f "$tree"/var/cache/apt/archives/*.deb
# as in Debian's own image: packages that are installed start no services
printf '#!/bin/sh\nexit 101\n' >"$tree/usr/sbin/policy-rc.d"
chmod +x "$tree/usr/sbin/policy-rc.d"
# the bundle for now; the single certificates for when the package ca-certificates makes the bundle again
bundle=/etc/ssl/certs/ca-certificates.crt
if [ -e "$bundle" ]; then
  mkdir -p "$tree/etc/ssl/certs" "$tree/usr/local/share/ca-certificates"
  cp "$bundle" "$tree$bundle"
  find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$tree/usr/local/share/ca-certificates" \;
fi
tar -C "$tree" -c . | docker import --change "ENV PIP_CERT=$bundle" --change "ENV SSL_CERT_FILE=$bundle" - "$image" >/dev/null
