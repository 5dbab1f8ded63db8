#!/bin/bash
# Samples with dsgmcmc as a job of PBS Professional or OpenPBS: qsub THIS_FILE
# Copy it, and edit the #PBS lines (-q QUEUE, -A ACCOUNT and, after mpiprocs=4, :mem=32gb may be added), the source of
# dsgmcmc, and the ratings, run and options. -V copies the environment of the submission: delete it if modules or an
# environment are named below.
#
# Before the time limit the run writes a checkpoint and ends with status 75, and this script submits itself again.
# To prevent this: automatic=no below. All these jobs append to the log dsgmcmc.log in the folder of the submission.
#
# Not run under PBS: tests/cluster/test_stubs.py of dsgmcmc runs it with stubs of PBS's variables and commands. The
# manuals of PBS say:
#   qrerun: "PBS Manager or Operator privilege is required to use this command", so the job is submitted, not requeued
#   kill_delay of a queue: "The time delay between sending SIGTERM and SIGKILL"; no option asks for an earlier signal
# For Torque, write #PBS -l nodes=1:ppn=4 instead of select; the rest is the same.
#
#PBS -N dsgmcmc
#PBS -l select=1:ncpus=4:mpiprocs=4
#PBS -l walltime=01:00:00
#PBS -j oe
#PBS -V

cd "${PBS_O_WORKDIR:?}" || exit 2 # PBS starts jobs in the home directory
exec >>dsgmcmc.log 2>&1

warned=
trap 'warned=yes' USR1 # at once, because the signal would otherwise end this script

# ---- source of dsgmcmc: modules, an environment or an image; otherwise the environment of the submission
# module load openmpi
# . "$HOME/dsgmcmc/bin/activate"
program=(dsgmcmc)
# program=(apptainer exec dsgmcmc.sif dsgmcmc)

# ---- ratings, run and options
data=ratings.h5
run=run
options=(--resume) # options of dsgmcmc sample
automatic=yes # yes: after its time limit the job is started again; no: the command that continues the run is printed
warning=120 # seconds before the time limit at which the run is asked to stop; writing a checkpoint must take less

job_id=$PBS_JOBID
# Intel MPI's mpirun is a shell script that does not pass signals on, but its mpiexec.hydra does; MPICH has one, too
mpirun=$(command -v mpirun || echo mpirun)
[ ! -x "${mpirun%/*}/mpiexec.hydra" ] || mpirun=${mpirun%/*}/mpiexec.hydra
launcher=("$mpirun" --hostfile "$PBS_NODEFILE" -n "$(wc -l <"$PBS_NODEFILE")" --bind-to core)
# PBS sends no signal before the time limit, so timeout does
limit=$(qstat -f "$PBS_JOBID" | sed -n 's/^ *Resource_List.walltime = //p')
if IFS=: read -r hours minutes seconds <<<"$limit" && [ -n "$seconds" ]; then
  left=$((10#$hours * 3600 + 10#$minutes * 60 + 10#$seconds - warning - SECONDS))
  launcher=(timeout --foreground --preserve-status --signal=USR1 "$((left > 0 ? left : 1))" "${launcher[@]}")
else
  echo "== qstat -f $PBS_JOBID shows no walltime: nothing will ask the run to stop in time"
fi
forward() { kill -USR1 "$job"; } # mpirun passes it on; SIGTERM would kill the processes before they can write
mkdir -p "$(dirname "$run")"
script=$run.pbs.sh # PBS runs a copy of the submitted script, and removes the copy
[ "$0" -ef "$script" ] || cp "$0" "$script"
requeue() { qsub "$script"; }
again="cd $(printf %q "$PWD") && qsub $(printf %q "$script")"

# ---- nothing below depends on the cluster
set -euo pipefail
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1

say() { printf '== %s %s\n' "$(date '+%F %T')" "$*"; }

path=$(command -v "${program[0]}") || {
  say "no ${program[0]} on the PATH: name its module, environment or image at the top of this script"
  exit 2
}
program[0]=$path # the full path, because a launcher does not pass the PATH to other machines

# Print the number of iterations in the newest checkpoints of all chains; nothing if there is no checkpoint.
saved() { "${program[@]}" info "$run" --json 2>/dev/null | sed -n 's/^ "checkpointed_iterations": \([0-9]*\).*/\1/p'; }

# Whether all iterations were made. The status does not show this: Open MPI's mpirun may end with 0 after it has lost a
# machine. Not grep -q: it closes the pipe at the first match, and a program that then still writes would fail.
complete() { "${program[@]}" info "$run" --json 2>/dev/null | grep '^ "complete": true' >/dev/null; }

# Ask the run to write a checkpoint and end. Until $run/listening exists, the signal may kill processes.
stop() {
  until [ -e "$run/listening" ] || ! kill -0 "$job" 2>/dev/null; do sleep 1; done
  say "asking the run to write a checkpoint and end"
  forward || true # the run may have ended in the meantime
}

job=
trap 'warned=yes; [ -z "$job" ] || stop' USR1
before=$(saved) || true
rm -f "$run/listening" # left by a job that was killed
say "job $job_id on $HOSTNAME: $run, from iteration ${before:-0}"
"${launcher[@]}" "${program[@]}" sample "$data" --out "$run" "${options[@]}" </dev/null &
job=$!
[ -z "$warned" ] || stop
status=
while [ -z "$status" ] || [ -n "$warned" ]; do # a trapped signal also ends wait
  warned=
  status=0
  wait "$job" || status=$?
done
after=$(saved) || true
say "ended with status $status at iteration ${after:-0}"
if [ "$status" -eq 0 ] && ! complete; then
  say "but not all iterations were made. To go on: $again"
  exit 1
fi
[ "$status" -eq 75 ] || exit "$status"

# 75: stopped on request, after a checkpoint. The job is started again only if the run makes progress.
if [ "${after:-0}" -le "${before:-0}" ]; then
  say "no newer checkpoint than at the start: the job is not requeued, because it would never end. Give it more time"
elif [ "$automatic" = yes ]; then
  say "requeueing the job, which goes on from this checkpoint"
  if requeue; then exit 75; fi
fi
say "to go on: $again"
exit 1
