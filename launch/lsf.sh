#!/bin/bash
# Samples with dsgmcmc as a job of LSF: bsub < THIS_FILE. Copy it with job.sh, which must stand in the folder of the
# submission, or in launch/ there. Memory, -R "rusage[mem=32GB]", is per process, host or job, as the cluster has it.
# Before the time limit (-wt minutes) LSF signals the job (-wa); the run writes a checkpoint and ends with status 75, and
# LSF requeues the job under its number (-Q). At any other time: bkill -s USR1 JOB
# Not run under LSF: tests/cluster/test_stubs.py of dsgmcmc runs it with stubs of LSF's variables and signals.
#
#BSUB -J dsgmcmc
#BSUB -n 4
#BSUB -R "span[ptile=4]"
#BSUB -W 1:00
#BSUB -wa USR1
#BSUB -wt 2
#BSUB -Q "75"
#BSUB -o dsgmcmc-%J.log
trap 'warned=yes' USR1 # at once: the signal would end this script
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

# ---- LSF
launcher=("$(signalled_mpirun)" --hostfile "$LSB_DJOB_HOSTFILE" -n "$LSB_DJOB_NUMPROC" --bind-to core)
forward() { kill -USR1 "$job"; } # mpirun passes it on; SIGTERM would kill the processes before they can write
requeue() { true; }              # -Q above requeues the job
again="brequeue -e $LSB_JOBID"
sample_in_job "$LSB_JOBID"
