# shellcheck shell=bash disable=SC2154 # the scripts that read this file set these variables
# What the job scripts slurm.sbatch, pbs.sh, lsf.sh and flux.sh share: a run that stops before the time limit and goes on in
# the next job. They read it; it is copied with them.
#
# It needs from them: program, data, run, options and automatic, as a user sets them; launcher, the command that starts the
# processes; forward, which asks them to stop; requeue, which has the job started again; again, the command that a user
# types for it; and a trap that notes SIGUSR1 in warned.

say() { printf '== %s %s\n' "$(date '+%F %T')" "$*"; }

# signalled_mpirun: print the launcher that passes signals on: the one that MPIRUN names, or else mpirun. Intel MPI's mpirun
# is a shell script that does not, but the mpiexec.hydra beside it does. An mpiexec.hydra beside the mpirun of Open MPI is
# MPICH's, as where Debian's packages of both are installed.
signalled_mpirun() {
  local mpirun
  mpirun=$(command -v "${MPIRUN:-mpirun}" || echo "${MPIRUN:-mpirun}")
  if [[ $("$mpirun" --version 2>/dev/null) == *Intel* && -x ${mpirun%/*}/mpiexec.hydra ]]; then
    mpirun=${mpirun%/*}/mpiexec.hydra
  fi
  echo "$mpirun"
}

# keep_script SYSTEM: set script to a copy beside the run, for a batch system that runs a copy and removes it
keep_script() {
  script=$run.$1.sh
  mkdir -p "$(dirname "$run")"
  [ "$0" -ef "$script" ] || cp "$0" "$script"
}

# stop_in_time LIMIT SECONDS: make launcher ask the run to stop, these seconds before the limit of a job (HH:MM:SS)
stop_in_time() {
  local hours minutes seconds left
  if IFS=: read -r hours minutes seconds <<<"$1" && [ -n "$seconds" ]; then
    left=$((10#$hours * 3600 + 10#$minutes * 60 + 10#$seconds - $2 - SECONDS))
    launcher=(timeout --foreground --preserve-status --signal=USR1 "$((left > 0 ? left : 1))" "${launcher[@]}")
  else
    say "the time limit of this job is not known (${1:-nothing}): nothing will ask the run to stop in time"
  fi
}

# saved: print the number of iterations in the newest checkpoints of all chains; nothing if there is no checkpoint
saved() { "${program[@]}" info "$run" --json 2>/dev/null | sed -n 's/^ "checkpointed_iterations": \([0-9]*\).*/\1/p'; }

# complete: whether all iterations were made. The status does not show this: Open MPI's mpirun may end with 0 after it has
# lost a machine. Not grep -q: it closes the pipe at the first match, and a program that then still writes would fail.
complete() { "${program[@]}" info "$run" --json 2>/dev/null | grep '^ "complete": true' >/dev/null; }

# stop: ask the run to write a checkpoint and end. Until $run/listening exists, the signal may kill processes.
stop() {
  until [ -e "$run/listening" ] || ! kill -0 "$job" 2>/dev/null; do sleep 1; done
  asked=yes
  say "asking the run to write a checkpoint and end"
  forward || true # the run may have ended in the meantime
}

# sample_in_job NAME: sample, and have the job started again if it was stopped and has made progress
sample_in_job() {
  local path before after status progress asked=
  set -euo pipefail
  export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1
  path=$(command -v "${program[0]}") || {
    say "no ${program[0]} on the PATH: name its module, environment or image at the top of this script"
    exit 2
  }
  program[0]=$path # the full path, because a launcher does not pass the PATH to other machines

  job=
  trap 'warned=yes; [ -z "$job" ] || stop' USR1
  before=$(saved) || true
  # left by a job that was killed; another job may hold the run and be listening
  if [ -e "$run/listening" ] && flock -s -n "$run/lock" true; then rm -f "$run/listening"; fi
  say "job $1 on $HOSTNAME: $run, from iteration ${before:-0}"
  "${launcher[@]}" "${program[@]}" sample "$data" --out "$run" "${options[@]}" </dev/null &
  job=$!
  [ -z "${warned-}" ] || stop
  status=
  while [ -z "$status" ] || [ -n "$warned" ]; do # a trapped signal also ends wait
    warned=
    status=0
    wait "$job" || status=$?
  done
  after=$(saved) || true
  say "ended with status $status at iteration ${after:-0}"
  if [ "$status" -eq 0 ]; then
    if complete; then exit 0; fi
    say "but not all iterations were made. To go on: $again"
    exit 1
  fi

  # A run that was stopped on request ends with 75, but its launcher may end with another status: srun with 143 where
  # KillOnBadExit=1, if one process ends before the others. A newer checkpoint shows that it was stopped in time.
  progress=
  [ "${after:-0}" -le "${before:-0}" ] || progress=yes
  if [ "$status" -ne 75 ] && { [ -z "$asked" ] || [ -z "$progress" ]; }; then exit "$status"; fi

  # The job is started again only if the run makes progress.
  if [ -z "$progress" ]; then
    say "no newer checkpoint than at the start: the job is not requeued, because it would never end. Give it more time"
  elif [ "$automatic" = yes ]; then
    say "requeueing the job, which goes on from this checkpoint"
    if requeue; then exit 75; fi
  fi
  say "to go on: $again"
  exit 1
}
