#!/bin/bash
# Samples with dsgmcmc as a job of Flux: flux batch THIS_FILE. Copy it with job.sh, which must stand in the folder of the
# submission, or in launch/ there. The numbers after flux run must be those of the lines that begin with "flux:".
# Before the time limit Flux signals the processes; the run writes a checkpoint and ends with status 75, and this script
# submits itself again. All these jobs append to dsgmcmc.log.
# Not run under Flux: tests/cluster/test_stubs.py of dsgmcmc runs it with stubs of Flux's commands.
#
# flux: --job-name=dsgmcmc
# flux: --nodes=1
# flux: --nslots=4
# flux: --time-limit=3600s
# flux: --signal=USR1@120s
trap 'warned=yes' USR1 # at once: newer versions of Flux signal this script, too, and the signal would end it
exec >>dsgmcmc.log 2>&1
for folder in . launch; do [ ! -r "$folder/job.sh" ] || break; done
# shellcheck source=launch/job.sh
. "$folder/job.sh" || exit 2

# ---- source of dsgmcmc: modules, an environment or an image; otherwise the environment of the submission
# module load openmpi
# . "$HOME/dsgmcmc/bin/activate"
program=(dsgmcmc) # or: (apptainer exec dsgmcmc.sif dsgmcmc)
data=ratings.h5
run=run
options=(--resume) # options of dsgmcmc sample
automatic=yes      # no: after the time limit, the command that continues the run is printed

# ---- Flux. Open MPI 5 needs its PMIx plugin, and -o pmi=pmix here; MPICH needs neither. The signal would end flux run,
# but not the processes, so flux run ignores it, and does not pass it on
launcher=(env --ignore-signal=USR1 flux run --nodes=1 --ntasks=4 -o cpu-affinity=per-task)
forward() { flux job killall --signal=USR1 --force; }
keep_script flux
requeue() { flux --parent batch "$script"; }
again="cd $(printf %q "$PWD") && flux batch $(printf %q "$script")"
sample_in_job "${FLUX_JOB_ID:-}"
