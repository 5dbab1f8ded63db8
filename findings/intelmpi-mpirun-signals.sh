#!/usr/bin/env bash
# Package: impi-rt 2021.18.1
# Expected: SIGTERM or SIGUSR1 to mpirun reaches the processes, or ends them
# Seen: mpirun is a shell script without traps: it ends with 143, and the processes go on without it
# Hits: batch systems that signal mpirun and free its node; two runs may then write to one folder
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install impi-rt==2021.18.1
# shellcheck disable=SC2016 # expanded by each process
mpirun -n 2 bash -c 'for i in {1..30}; do echo "$i" >"$0/$PMI_RANK"; sleep 0.2; done' "$folder" </dev/null >/dev/null 2>&1 &
until [ -s "$folder/0" ] && [ -s "$folder/1" ]; do sleep 0.1; done
status=0
kill -TERM $!
wait $! || status=$?
before=$(<"$folder/0")
sleep 1
[ "$(<"$folder/0")" -gt "$before" ] && going_on=yes || going_on=no
sleep 6
echo "status $status, processes go on: $going_on" | expect "status 143, processes go on: yes"
