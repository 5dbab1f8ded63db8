#!/bin/bash
# Samples with dsgmcmc as a job of LSF: bsub < THIS_FILE
# Copy it and edit the #BSUB lines (-q QUEUE, -P PROJECT and -R "rusage[mem=32GB]" may be added), where dsgmcmc comes
# from, and what is sampled.
#
# Before the time limit LSF signals the job; the run writes a checkpoint and ends with status 75, and LSF requeues the job
# under its number. Also at any other time: bkill -s USR1 JOB
# Not to requeue: automatic=no below.
#
# Not run under LSF: tests/cluster/test_stubs.py of dsgmcmc runs it under a stub of LSF's variables and signals. Its
# manuals say:
#   bsub -wa: "the job action to be taken before a job control action occurs", such as at the run limit; -wt: minutes before
#   bsub -Q: "Specify automatic job re-queue exit values"
#   bsub -o: the output is appended to the file
#   -R rusage[mem=...]: for each process, host or job, as the cluster has configured it
#
#BSUB -J dsgmcmc
#BSUB -n 4
#BSUB -R "span[ptile=4]"
#BSUB -W 1:00
#BSUB -wa USR1
#BSUB -wt 2
#BSUB -Q "75"
#BSUB -o dsgmcmc-%J.log

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

job_id=$LSB_JOBID
# Intel MPI's mpirun is a shell script that passes no signal on, but its mpiexec.hydra does; MPICH has it, too
mpirun=$(command -v mpirun || echo mpirun)
[ ! -x "${mpirun%/*}/mpiexec.hydra" ] || mpirun=${mpirun%/*}/mpiexec.hydra
launcher=("$mpirun" --hostfile "$LSB_DJOB_HOSTFILE" -n "$LSB_DJOB_NUMPROC" --bind-to core)
forward() { kill -USR1 "$job"; } # passed on to the processes; SIGTERM would kill them before they can write
requeue() { true; }              # -Q above does it
again="brequeue -e $LSB_JOBID"

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
