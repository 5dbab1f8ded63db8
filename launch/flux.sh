#!/bin/bash
# Samples with dsgmcmc as a job of Flux: flux batch THIS_FILE
# Copy it, and edit the lines that begin with "flux:" (--queue and --bank may be added), the numbers after flux run, which
# must be the same, the source of dsgmcmc, and the ratings, run and options.
#
# Before the time limit Flux signals the processes. The run then writes a checkpoint and ends with status 75, and this
# script submits itself again. To prevent this: automatic=no below. All these jobs append to the log dsgmcmc.log in the
# folder of the submission.
#
# Not run under Flux: tests/cluster/test_stubs.py of dsgmcmc runs it with stubs of Flux's commands. The manuals of Flux
# say:
#   flux batch --signal: "Send signal SIG to job TIME before the job time limit"; the jobs within a batch job get the
#   signal, and with newer versions of Flux this script gets it, too
#   flux --parent: the instance to which the job was submitted; SCRIPT "is copied at the time of submission"
#
# flux: --job-name=dsgmcmc
# flux: --nodes=1
# flux: --nslots=4
# flux: --time-limit=3600s
# flux: --signal=USR1@120s

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

job_id=${FLUX_JOB_ID:-}
# Open MPI 5 needs Flux's PMIx plugin, and -o pmi=pmix here; MPICH needs neither. The signal may reach flux run, too; it
# would end flux run, but not the processes.
launcher=(env --ignore-signal=USR1 flux run --nodes=1 --ntasks=4 -o cpu-affinity=per-task)
forward() { flux job killall --signal=USR1 --force; } # flux run does not pass USR1 on
mkdir -p "$(dirname "$run")"
script=$run.flux.sh # Flux runs a copy of the submitted script, and removes the copy
[ "$0" -ef "$script" ] || cp "$0" "$script"
requeue() { flux --parent batch "$script"; }
again="cd $(printf %q "$PWD") && flux batch $(printf %q "$script")"

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
