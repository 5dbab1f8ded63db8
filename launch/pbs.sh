#!/bin/bash
# Samples with dsgmcmc as a job of PBS Professional or OpenPBS: qsub THIS_FILE. Copy it with job.sh, which must stand in
# the folder of the submission, or in launch/ there. -V copies the environment: delete it if modules are named below.
# Before the time limit the run writes a checkpoint and ends with status 75, and this script submits itself again:
# qrerun needs a manager's rights. All these jobs append to dsgmcmc.log. Torque: #PBS -l nodes=1:ppn=4, not select.
# Not run under PBS: tests/cluster/test_stubs.py of dsgmcmc runs it with stubs of PBS's variables and commands.
#
#PBS -N dsgmcmc
#PBS -l select=1:ncpus=4:mpiprocs=4
#PBS -l walltime=01:00:00
#PBS -j oe
#PBS -V
trap 'warned=yes' USR1            # at once: the signal would end this script
cd "${PBS_O_WORKDIR:?}" || exit 2 # PBS starts jobs in the home directory
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
warning=120        # seconds before the time limit at which the run is asked to stop; writing a checkpoint must take less

# ---- PBS. At the time limit it sends SIGTERM, which kills the processes, and no signal earlier: timeout does
launcher=("$(signalled_mpirun)" --hostfile "$PBS_NODEFILE" -n "$(wc -l <"$PBS_NODEFILE")" --bind-to core)
stop_in_time "$(qstat -f "$PBS_JOBID" | sed -n 's/^ *Resource_List.walltime = //p')" "$warning"
forward() { kill -USR1 "$job"; } # mpirun passes it on; SIGTERM would kill the processes before they can write
keep_script pbs
requeue() { qsub "$script"; }
again="cd $(printf %q "$PWD") && qsub $(printf %q "$script")"
sample_in_job "$PBS_JOBID"
