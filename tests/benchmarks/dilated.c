/* Time that passes D times more slowly for an MPI program: preloaded, it lets every process sleep D - 1 seconds for
 * every second that it has computed, and sleep while it waits for others.
 *
 * What a process computes between two MPI calls is seen by nobody: so it is computed at once, and slept for at the next
 * call that others can notice. A processor that computes for several processes in turn delays none of them, as long as
 * each has computed before its sleep would be over. Within waiting, too, copying what arrives takes D times as long.
 *
 * `dilate(D)` begins a dilation by D, once all that was computed before is paid for. Until then D is 1: only waiting is
 * asleep. `waited` are seconds for which calls have waited, `worked` seconds of the processor that were paid for.
 *
 * mpicc -shared -fPIC -O2 -o dilated.so dilated.c
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <time.h>

static const double POLL = 5e-6;   /* seconds between two looks of a process that waits, times D */
static const double SHORT = 50e-6; /* seconds that are not worth a sleep: the next one has them as well */

double waited = 0, worked = 0;
static double dilation = 1;
static double at, used; /* the time, and seconds of the processor until then: all of them are paid for */

static double now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

static double time_now(void) { return now(CLOCK_MONOTONIC); }

static double computed(void) { return now(CLOCK_PROCESS_CPUTIME_ID); }

static void sleep_until(double when) {
    struct timespec time = {.tv_sec = (time_t)when, .tv_nsec = (long)(1e9 * (when - (time_t)when))};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
        ;
}

static void paid(double when, double busy) {
    worked += busy - used;
    at = when;
    used = computed(); /* falling asleep is no work of the program's */
}

/* Sleep until what was computed would have been done by a processor that is D times slower. */
static void catch_up(void) {
    double busy = computed(), when = at + dilation * (busy - used);
    if (when - time_now() < SHORT)
        return;
    sleep_until(when);
    paid(when, busy);
}

static int wait_for(int count, MPI_Request *requests, MPI_Status *statuses) {
    double since = 0;
    catch_up();
    for (;;) {
        double begin = time_now(), before = computed(), next;
        int done, failed = PMPI_Testall(count, requests, &done, statuses);
        if (failed || done) {
            if (since) {
                waited += begin - since;
                at = begin;
                used = before;
            }
            return failed;
        }
        since = since ? since : begin;
        next = dilation * (computed() - before);
        sleep_until(begin + (next > dilation * POLL ? next : dilation * POLL));
    }
}

void dilate(double by) {
    catch_up();
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}); /* before all other work */
    dilation = by;
    at = time_now();
    used = computed();
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[]) {
    return wait_for(count, requests, statuses);
}

int MPI_Wait(MPI_Request *request, MPI_Status *status) {
    return wait_for(1, request, status == MPI_STATUS_IGNORE ? MPI_STATUSES_IGNORE : status);
}

/* Calls that others notice come when they are due. */
#define DUE(name, parameters, arguments)                                                                               \
    int MPI_##name parameters {                                                                                        \
        catch_up();                                                                                                    \
        return PMPI_##name arguments;                                                                                  \
    }

/* Calls that wait are begun, and waited for asleep. */
#define ASLEEP(name, begin, parameters, ...)                                                                           \
    int MPI_##name parameters {                                                                                        \
        MPI_Request request;                                                                                           \
        int failed;                                                                                                    \
        catch_up();                                                                                                    \
        failed = PMPI_##begin(__VA_ARGS__, &request);                                                                  \
        return failed ? failed : wait_for(1, &request, MPI_STATUSES_IGNORE);                                           \
    }

DUE(Isend, (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request),
    (data, count, type, to, tag, comm, request))
DUE(Testall, (int count, MPI_Request requests[], int *done, MPI_Status statuses[]), (count, requests, done, statuses))
DUE(Igatherv,
    (const void *data, int count, MPI_Datatype type, void *all, const int counts[], const int places[],
     MPI_Datatype taken, int root, MPI_Comm comm, MPI_Request *request),
    (data, count, type, all, counts, places, taken, root, comm, request))
ASLEEP(Barrier, Ibarrier, (MPI_Comm comm), comm)
ASLEEP(Bcast, Ibcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm), data, count, type, root,
       comm)
ASLEEP(Gatherv, Igatherv,
       (const void *data, int count, MPI_Datatype type, void *all, const int counts[], const int places[],
        MPI_Datatype taken, int root, MPI_Comm comm),
       data, count, type, all, counts, places, taken, root, comm)
ASLEEP(Allgather, Iallgather,
       (const void *data, int count, MPI_Datatype type, void *all, int each, MPI_Datatype taken, MPI_Comm comm), data,
       count, type, all, each, taken, comm)
ASLEEP(Allgatherv, Iallgatherv,
       (const void *data, int count, MPI_Datatype type, void *all, const int counts[], const int places[],
        MPI_Datatype taken, MPI_Comm comm),
       data, count, type, all, counts, places, taken, comm)
