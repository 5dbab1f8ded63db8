#!/bin/bash
# Samples with dsgmcmc as a job of PBS Professional or OpenPBS: qsub THIS_FILE
# Copy it and edit the #PBS lines (-q QUEUE, -A ACCOUNT and, after mpiprocs=4, :mem=32gb may be added), where dsgmcmc
# comes from, and what is sampled. -V copies the environment of the submission: delete it if modules or an environment
# are named below.
#
# Before the time limit the run writes a checkpoint and ends with status 75, and this script submits itself again.
# Not to: automatic=no below. The log of all these jobs is dsgmcmc.log in the folder of the submission.
#
# Not run under PBS: tests/cluster/test_stubs.py of dsgmcmc runs it under a stub of PBS's variables and commands. Its
# manuals say:
#   qrerun: "PBS Manager or Operator privilege is required to use this command", so the job is submitted, not requeued
#   kill_delay of a queue: "The time delay between sending SIGTERM and SIGKILL"; no option asks for a signal before that
# Torque: #PBS -l nodes=1:ppn=4 instead of select; the rest is alike.
#
#PBS -N dsgmcmc
#PBS -l select=1:ncpus=4:mpiprocs=4
#PBS -l walltime=01:00:00
#PBS -j oe
#PBS -V

cd "${PBS_O_WORKDIR:?}" || exit 2 # PBS starts jobs in the home directory
exec >>dsgmcmc.log 2>&1

warned=
trap 'warned=yes' USR1 # from the first moment on: it would end this script

# ---- where dsgmcmc comes from: modules, an environment, an image; without them, what the job was submitted from
# module load openmpi
# . "$HOME/dsgmcmc/bin/activate"
program=(dsgmcmc)
# program=(apptainer exec dsgmcmc.sif dsgmcmc)

# ---- what is sampled
data=ratings.h5
run=run
options=(--resume) # of dsgmcmc sample
automatic=yes # yes: the job goes on by itself after its time limit; no: the command that does is printed
warning=120 # seconds before the time limit at which the run is stopped: more than writing a checkpoint takes

job_id=$PBS_JOBID
# Intel MPI's mpirun is a shell script that passes no signal on, but its mpiexec.hydra does; MPICH has it, too
mpirun=$(command -v mpirun || echo mpirun)
[ ! -x "${mpirun%/*}/mpiexec.hydra" ] || mpirun=${mpirun%/*}/mpiexec.hydra
launcher=("$mpirun" --hostfile "$PBS_NODEFILE" -n "$(wc -l <"$PBS_NODEFILE")" --bind-to core)
# the signal that PBS does not send
limit=$(qstat -f "$PBS_JOBID" | sed -n 's/^ *Resource_List.walltime = //p')
if IFS=: read -r hours minutes seconds <<<"$limit" && [ -n "$seconds" ]; then
  left=$((10#$hours * 3600 + 10#$minutes * 60 + 10#$seconds - warning - SECONDS))
  launcher=(timeout --foreground --preserve-status --signal=USR1 "$((left > 0 ? left : 1))" "${launcher[@]}")
else
  echo "== qstat -f $PBS_JOBID tells no walltime: nothing asks the run to stop in time"
fi
forward() { kill -USR1 "$job"; } # passed on to the processes; SIGTERM would kill them before they can write
mkdir -p "$(dirname "$run")"
script=$run.pbs.sh # PBS runs a copy of what was submitted, and removes it
[ "$0" -ef "$script" ] || cp "$0" "$script"
requeue() { qsub "$script"; }
again="cd $(printf %q "$PWD") && qsub $(printf %q "$script")"

# ---- nothing below depends on the cluster
set -euo pipefail
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1

say() { printf '== %s %s\n' "$(date '+%F %T')" "$*"; }

found=$(command -v "${program[0]}") || {
  say "no ${program[0]} on the PATH: name its module, environment or image at the top of this script"
  exit 2
}
program[0]=$found # by its path: a launcher does not carry the PATH to other machines

# Iterations in the newest checkpoints of all chains; nothing before the first.
saved() { "${program[@]}" info "$run" --json 2>/dev/null | sed -n 's/^ "checkpointed_iterations": \([0-9]*\).*/\1/p'; }

# Whether all iterations were made: Open MPI's mpirun was seen to end with status 0 after it had lost a machine.
# No grep -q, which closes the pipe at the first match: what still writes would fail, and with it the pipeline.
complete() { "${program[@]}" info "$run" --json 2>/dev/null | grep '^ "complete": true' >/dev/null; }

# Ask for a checkpoint and the end. Before there is $run/listening, its processes may not listen, and would be killed.
stop() {
  until [ -e "$run/listening" ] || ! kill -0 "$job" 2>/dev/null; do sleep 1; done
  say "asking the run for a checkpoint and its end"
  forward || true # it may have ended meanwhile
}

job=
trap 'warned=yes; [ -z "$job" ] || stop' USR1
before=$(saved) || true
rm -f "$run/listening" # of a job that was killed
say "job $job_id on $HOSTNAME: $run, from iteration ${before:-0}"
"${launcher[@]}" "${program[@]}" sample "$data" --out "$run" "${options[@]}" </dev/null &
job=$!
[ -z "$warned" ] || stop
status=
while [ -z "$status" ] || [ -n "$warned" ]; do # a trapped signal ends wait, too
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

# 75: stopped on request, with a checkpoint. Only a run that gets on may start itself again.
if [ "${after:-0}" -le "${before:-0}" ]; then
  say "no newer checkpoint than at the start: the job is not requeued, for it would never end. More time for it?"
elif [ "$automatic" = yes ]; then
  say "requeueing the job, which goes on from there"
  if requeue; then exit 75; fi
fi
say "to go on: $again"
exit 1
