#!/bin/bash
# Samples with dsgmcmc as a job of LSF: bsub < THIS_FILE
# Copy it, and edit the #BSUB lines (-q QUEUE, -P PROJECT and -R "rusage[mem=32GB]" may be added), the source of dsgmcmc,
# and the ratings, run and options.
#
# Before the time limit LSF signals the job. The run then writes a checkpoint and ends with status 75, and LSF requeues
# the job under its number.
# To stop and requeue a job at any other time: bkill -s USR1 JOB
# To prevent requeueing: automatic=no below.
#
# Not run under LSF: tests/cluster/test_stubs.py of dsgmcmc runs it with stubs of LSF's variables and signals. The
# manuals of LSF say:
#   bsub -wa: "the job action to be taken before a job control action occurs", such as at the run limit; -wt: minutes before
#   bsub -Q: "Specify automatic job re-queue exit values"
#   bsub -o: the output is appended to the file
#   -R rusage[mem=...]: per process, host or job, depending on the configuration of the cluster
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

job_id=$LSB_JOBID
# Intel MPI's mpirun is a shell script that does not pass signals on, but its mpiexec.hydra does; MPICH has one, too
mpirun=$(command -v mpirun || echo mpirun)
[ ! -x "${mpirun%/*}/mpiexec.hydra" ] || mpirun=${mpirun%/*}/mpiexec.hydra
launcher=("$mpirun" --hostfile "$LSB_DJOB_HOSTFILE" -n "$LSB_DJOB_NUMPROC" --bind-to core)
forward() { kill -USR1 "$job"; } # mpirun passes it on; SIGTERM would kill the processes before they can write
requeue() { true; }              # -Q above requeues the job
again="brequeue -e $LSB_JOBID"

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
