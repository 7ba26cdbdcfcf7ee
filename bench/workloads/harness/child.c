// The child waits for a turn, does it, says so; the parent waits for that, and looks now and then
// whether the child is still there.
#include "bench/workloads/harness/child.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct child_shared {
    sem_t go;
    sem_t done;
    int64_t steps; ///< of the next turn; 0: finish
    run_turn turn;
    run_figures figures;
    atomic_llong progress;
};

static _Noreturn void live(child_shared *shared, const workload *workload,
                           const run_settings *settings, uint64_t address_bytes);
static bool wait_for(child *child, child_watch watch, void *data);
static void note_death(child *child, int status);

bool child_start(child *child, const workload *workload, const run_settings *settings,
                 uint64_t address_bytes) {
    *child = (struct child){0};
    child_shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        fprintf(stderr, "%s: no memory to share with a process: %s\n", workload->name,
                strerror(errno));
        return false;
    }
    sem_init(&shared->go, 1, 0);
    sem_init(&shared->done, 1, 0);
    fflush(NULL);
    pid_t process = fork();
    if (process == 0)
        live(shared, workload, settings, address_bytes);
    if (process < 0) {
        fprintf(stderr, "%s: no process: %s\n", workload->name, strerror(errno));
        munmap(shared, sizeof *shared);
        return false;
    }
    child->process = process;
    child->shared = shared;
    return true;
}

bool child_turn(child *child, int64_t steps, child_watch watch, void *data, run_turn *ret_turn) {
    child->shared->steps = steps;
    sem_post(&child->shared->go);
    bool alive = wait_for(child, watch, data);
    *ret_turn = child->shared->turn;
    return alive && child->shared->figures.status == ND_OK;
}

void child_finish(child *child, child_watch watch, void *data, run_figures *ret_figures) {
    if (!child->shared)
        return;
    if (child->process) {
        child->shared->steps = 0;
        sem_post(&child->shared->go);
        if (wait_for(child, watch, data)) {
            int status = 0;
            while (waitpid(child->process, &status, 0) < 0 && errno == EINTR) {
            }
            child->process = 0;
        }
    }
    *ret_figures = child->shared->figures;
    munmap(child->shared, sizeof *child->shared);
    child->shared = NULL;
}

/// The child's whole life.
static _Noreturn void live(child_shared *shared, const workload *workload,
                           const run_settings *settings, uint64_t address_bytes) {
    static run run;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const struct rlimit limit = {.rlim_cur = address_bytes, .rlim_max = address_bytes};
    if (address_bytes && setrlimit(RLIMIT_AS, &limit) != 0)
        _exit(3);
    bool opened = false;
    for (;;) {
        while (sem_wait(&shared->go) != 0 && errno == EINTR) {
        }
        if (!opened)
            run_begin(&run, workload, settings);
        opened = true;
        if (shared->steps == 0)
            break;
        run_steps(&run, shared->steps, &shared->progress, &shared->turn);
        shared->figures = run.figures;
        sem_post(&shared->done);
    }
    run_end(&run);
    shared->figures = run.figures;
    sem_post(&shared->done);
    _exit(0);
}

/// Until the child says that it is done. False when it has died.
static bool wait_for(child *child, child_watch watch, void *data) {
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (sem_timedwait(&child->shared->done, &until) == 0)
            return true;
        int status = 0;
        if (waitpid(child->process, &status, WNOHANG) == child->process) {
            if (sem_trywait(&child->shared->done) != 0)
                note_death(child, status);
            child->process = 0;
            return child->shared->figures.status == ND_OK;
        }
        if (watch)
            watch(atomic_load(&child->shared->progress), data);
    }
}

static void note_death(child *child, int status) {
    run_figures *figures = &child->shared->figures;
    figures->status = ND_ERROR_STATE;
    figures->steps = atomic_load(&child->shared->progress);
    if (WIFSIGNALED(status))
        snprintf(figures->message, sizeof figures->message, "ended by signal %d (%s)",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(figures->message, sizeof figures->message, "ended with status %d",
                 WEXITSTATUS(status));
}
