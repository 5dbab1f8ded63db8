#!/bin/bash
# Samples with dsgmcmc as a job of Flux: flux batch THIS_FILE
# Copy it and edit the lines that begin with flux: (--queue and --bank may be added), the same numbers after flux run,
# where dsgmcmc comes from, and what is sampled.
#
# Before the time limit Flux signals the processes; the run writes a checkpoint and ends with status 75, and this script
# submits itself again. Not to: automatic=no below. The log of all these jobs is dsgmcmc.log in the folder of the
# submission.
#
# Not run under Flux: tests/cluster/test_stubs.py of dsgmcmc runs it under a stub of Flux's commands. Its manuals say:
#   flux batch --signal: "Send signal SIG to job TIME before the job time limit"; of a batch job the jobs in
#   it get the signal, from newer versions this script, too
#   flux --parent: the instance that the job was submitted to; SCRIPT "is copied at the time of submission"
#
# flux: --job-name=dsgmcmc
# flux: --nodes=1
# flux: --nslots=4
# flux: --time-limit=3600s
# flux: --signal=USR1@120s

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

job_id=${FLUX_JOB_ID:-}
# Open MPI 5 needs Flux's PMIx plugin and -o pmi=pmix here; MPICH neither. The signal may come to flux run, too, which it
# would end without its processes.
launcher=(env --ignore-signal=USR1 flux run --nodes=1 --ntasks=4 -o cpu-affinity=per-task)
forward() { flux job killall --signal=USR1 --force; } # flux run passes no USR1 on
mkdir -p "$(dirname "$run")"
script=$run.flux.sh # Flux runs a copy of what was submitted, and removes it
[ "$0" -ef "$script" ] || cp "$0" "$script"
requeue() { flux --parent batch "$script"; }
again="cd $(printf %q "$PWD") && flux batch $(printf %q "$script")"

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
