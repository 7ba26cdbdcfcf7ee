// The adversary: what queued work is done, and when.
//
// Invariant: a stream's steps are done in order, each behind the points that it waits for, and
// otherwise as late as possible. Nothing happens before a host thread waits for it; then only what
// it waits for needs to. A seed other than 0 lets other streams, or work that nobody waits for,
// come in between. A program that stops calling while work is queued is taken to wait by other
// means: after a while that work is done.
#include "tests/cudart/control.h"
#include "tests/cudart/runtime.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Thread_local bool cudart_in_function;

/// A host thread that waits.
typedef struct demand {
    cudart_point point;
    struct demand *next;
} demand;
static demand *demands;
static cudart_point asked; ///< by a query; one step towards it is due
static bool idle;          ///< nobody has called for a while

enum { QUEUE_LENGTH = 1000, MEETING_NANOSECONDS = 100000 };

/// Seconds without a call after which what is queued is done, for whoever waits in another way than by
/// calls. Where nothing is to be early, so long that a thread which a sanitizer or a busy machine slows
/// down has not been idle.
enum { IDLE_SECONDS = 1, IDLE_SECONDS_OF_LATE = 20 };

// ------------------------------------------------------------------------------------------------
// clocks

cudart_clock *cudart_clock_share(cudart_clock *clock) {
    clock->uses++;
    return clock;
}

void cudart_clock_drop(cudart_clock *clock) {
    if (clock && --clock->uses == 0)
        free(clock);
}

/// The clock, which nobody else has.
static cudart_clock *own(cudart_clock **clock) {
    if ((*clock)->uses > 1) {
        cudart_clock *copy = cudart_allocate(sizeof *copy);
        *copy = **clock;
        copy->uses = 1;
        (*clock)->uses--;
        *clock = copy;
    }
    return *clock;
}

void cudart_clock_join(cudart_clock **clock, const cudart_clock *other) {
    for (int i = 0; i < cudart.streams; i++)
        if ((*clock)->at[i] < other->at[i])
            own(clock)->at[i] = other->at[i];
}

static void clock_reach(cudart_clock **clock, cudart_point point) {
    if ((*clock)->at[point.stream->number] < point.at)
        own(clock)->at[point.stream->number] = point.at;
}

// ------------------------------------------------------------------------------------------------
// choosing

bool cudart_passed(cudart_point point) {
    return !point.stream || point.stream->done >= point.at;
}

/// Whether all that a step waits for on other streams is done.
static bool is_next(const cudart_step *step) {
    for (unsigned i = 0; i < step->waits; i++)
        if (!cudart_passed(step->waited[i]))
            return false;
    return true;
}

static bool has_met(const cudart_step *step) {
    bool met = !step->ready || step->ready(step->data) ||
               step->point.stream->device->failed != cudaSuccess;
    cudart.met_nobody |= !met;
    return met;
}

static bool may_run(const cudart_step *step) {
    return is_next(step) && has_met(step);
}

/// The next step on the way to a point; NULL: it is passed, or others must come first.
static cudart_step *towards(cudart_point point) {
    while (!cudart_passed(point)) {
        cudart_step *step = point.stream->first;
        if (!step || is_next(step))
            return step && has_met(step) ? step : NULL;
        for (unsigned i = 0; i < step->waits; i++)
            if (!cudart_passed(step->waited[i]))
                point = step->waited[i];
    }
    return NULL;
}

/// Any step that may be done. Without `functions`, none that calls the program.
static cudart_step *any_step(bool functions) {
    cudart_step *chosen = NULL;
    uint64_t found = 0;
    for (int i = 0; i < cudart.streams; i++) {
        cudart_step *step = cudart.stream[i]->first;
        if (step && may_run(step) && (functions || step->kind != CUDART_HOST_FUNCTION) &&
            cudart_draw(++found) == 0)
            chosen = step;
    }
    return chosen;
}

static cudart_step *choose(void) {
    cudart_step *step = NULL;
    cudart.met_nobody = false;
    if (cudart.held)
        return NULL;
    if (cudart.let_go && (step = any_step(true)))
        return step;
    cudart.let_go &= cudart.met_nobody;
    unsigned waiting = 0;
    for (demand *each = demands; each; each = each->next)
        waiting++;
    if (waiting > 0) {
        if (cudart.early && cudart_draw(4) == 0 && (step = any_step(false)))
            return step;
        uint64_t preferred = cudart_draw(waiting);
        for (demand *each = demands; each; each = each->next, preferred--) {
            cudart_step *next = towards(each->point);
            if (next && preferred == 0)
                return next;
            step = next ? next : step;
        }
        if (step)
            return step;
    }
    if (asked.stream) {
        step = towards(asked);
        asked.stream = NULL;
    }
    if (!step && cudart.free_steps > 0) {
        cudart.free_steps--;
        step = any_step(false);
    }
    return step || !idle ? step : any_step(true);
}

// ------------------------------------------------------------------------------------------------
// doing

static void copy_bytes(void *data) {
    const cudart_step *step = data;
    if (step->kind == CUDART_SET)
        memset(step->destination, step->value, step->bytes);
    else
        memmove(step->destination, step->source, step->bytes);
}

static void run_library(void *data) {
    const cudart_step *step = data;
    step->function(step->data);
}

static void run_kernel(void *data) {
    cudart_run_kernel(data);
}

/// Without the lock.
static bool run_unlocked(cudart_step *step) {
    switch (step->kind) {
    case CUDART_KERNEL:
        return cudart_guarded(run_kernel, step);
    case CUDART_LIBRARY:
        return cudart_guarded(run_library, step);
    case CUDART_COPY:
    case CUDART_SET:
        return cudart_guarded(copy_bytes, step);
    case CUDART_HOST_FUNCTION:
        cudart_in_function = true;
        step->function(step->data);
        cudart_in_function = false;
        return true;
    default:
        return true;
    }
}

static void note_time(cudart_step *step) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    step->event->time = 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}

void cudart_step_free(cudart_step *step) {
    cudart_clock_drop(step->clock);
    free(step->waited);
    if (step->graph) {
        cudart_graph_drop(step->graph);
    } else {
        free(step->arguments);
        if (step->kind == CUDART_LIBRARY)
            free(step->data);
    }
    free(step);
}

/// A device that has failed does nothing any more, and calls nobody.
static void do_step(cudart_step *step) {
    cudart_stream *stream = step->point.stream;
    cudart_device *device = stream->device;
    if (cudart_steps_to_loss > 0 && --cudart_steps_to_loss == 0)
        cudart_device_fail(device, cudaErrorLaunchFailure);
    if (device->failed == cudaSuccess) {
        cudart.running = step;
        if (step->kind == CUDART_ALLOCATE) {
            cudart_block_born(step->block);
        } else if (step->kind == CUDART_FREE) {
            cudart_block_died(step->block, step);
        } else if (step->kind == CUDART_RECORD) {
            note_time(step);
        } else {
            pthread_mutex_unlock(&cudart.lock);
            bool done = run_unlocked(step);
            pthread_mutex_lock(&cudart.lock);
            cudart_close_touched();
            if (!done)
                cudart_device_fail(device, cudaErrorIllegalAddress);
        }
        cudart.running = NULL;
    }
    stream->first = step->next;
    if (!stream->first)
        stream->last = &stream->first;
    stream->done = step->point.at;
    cudart.pending--;
    cudart.steps++;
    cudart_step_free(step);
    pthread_cond_broadcast(&cudart.changed);
}

void cudart_hold(void) {
    pthread_mutex_lock(&cudart.lock);
    cudart.held = true;
    while (cudart.running && !cudart_is_worker)
        pthread_cond_wait(&cudart.changed, &cudart.lock);
    pthread_mutex_unlock(&cudart.lock);
}

void cudart_go_on(void) {
    pthread_mutex_lock(&cudart.lock);
    cudart.held = false;
    pthread_cond_signal(&cudart.wanted);
    pthread_mutex_unlock(&cudart.lock);
}

void cudart_let_go(void) {
    pthread_mutex_lock(&cudart.lock);
    cudart.held = false;
    cudart.let_go = true;
    pthread_cond_signal(&cudart.wanted);
    pthread_mutex_unlock(&cudart.lock);
}

/// Waits until something may be wanted.
static void rest(void) {
    idle = false;
    if (cudart.pending == 0) {
        pthread_cond_wait(&cudart.wanted, &cudart.lock);
        return;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (cudart.met_nobody) { // nobody tells when they come
        until.tv_nsec += MEETING_NANOSECONDS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&cudart.wanted, &cudart.lock, &until);
        return;
    }
    until.tv_sec += cudart.early ? IDLE_SECONDS : IDLE_SECONDS_OF_LATE;
    uint64_t calls = cudart.calls;
    idle =
        pthread_cond_timedwait(&cudart.wanted, &cudart.lock, &until) != 0 && calls == cudart.calls;
}

static void *work(void *unused) {
    (void)unused;
    cudart_is_worker = true;
    pthread_mutex_lock(&cudart.lock);
    for (;;) {
        cudart_step *step = choose();
        if (step)
            do_step(step);
        else
            rest();
    }
    return NULL;
}

static void begin_work(void) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, work, NULL) != 0)
        cudart_abort(NULL, "there is no thread for the devices");
    pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

// ------------------------------------------------------------------------------------------------
// queueing and waiting

cudart_step *cudart_step_new(cudart_stream *stream, cudart_kind kind, const char *name) {
    cudart_step *step = cudart_allocate(sizeof *step);
    step->kind = kind;
    step->name = name;
    step->point.stream = stream;
    cudart_take_stack(&step->issued_at);
    return step;
}

void cudart_step_wait(cudart_step *step, cudart_point point) {
    if (!point.stream || point.stream == step->point.stream)
        return;
    cudart_point *grown = realloc(step->waited, (step->waits + 1) * sizeof *grown);
    if (!grown)
        cudart_abort(NULL, "the host has no memory");
    step->waited = grown;
    step->waited[step->waits++] = point;
    clock_reach(&step->point.stream->clock, point);
}

/// Work on the stream NULL and on blocking streams of its device is in order.
static void wait_for_legacy(cudart_step *step) {
    cudart_stream *stream = step->point.stream;
    if (!stream->blocking)
        return;
    for (int i = 0; i < cudart.streams; i++) {
        cudart_stream *other = cudart.stream[i];
        bool ordered =
            stream == stream->device->null_stream || other == stream->device->null_stream;
        if (other->device != stream->device || !other->blocking || !ordered || other == stream)
            continue;
        cudart_clock_join(&stream->clock, other->clock);
        cudart_step_wait(step, (cudart_point){other, other->queued});
    }
}

void cudart_issue(cudart_step *step) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin_work);
    cudart_stream *stream = step->point.stream;
    if (stream->capture) {
        cudart_capture_add(step);
        return;
    }
    if (stream->queued - stream->done >= QUEUE_LENGTH)
        cudart_wait_for((cudart_point){stream, stream->queued - QUEUE_LENGTH / 2}, NULL);
    wait_for_legacy(step);
    cudart_clock_join(&stream->clock, cudart.host);
    step->clock = cudart_clock_share(stream->clock);
    step->point.at = ++stream->queued;
    *stream->last = step;
    stream->last = &step->next;
    cudart.pending++;
    cudart.kernels += step->kind == CUDART_KERNEL;
    cudart.libraries += step->kind == CUDART_LIBRARY;
    if (cudart.early && cudart_draw(4) == 0)
        cudart.free_steps = (unsigned)cudart_draw(4);
    pthread_cond_signal(&cudart.wanted);
}

static cudaError_t reached(cudart_point point, const cudart_clock *clock) {
    if (point.stream) {
        clock_reach(&cudart.host, point);
        if (clock)
            cudart_clock_join(&cudart.host, clock);
    }
    return cudaSuccess;
}

cudaError_t cudart_wait_for(cudart_point point, cudart_clock *clock) {
    if (!point.stream)
        return cudaSuccess;
    if (clock)
        cudart_clock_share(clock);
    cudart_device *device = point.stream->device;
    demand mine = {.point = point, .next = demands};
    demands = &mine;
    pthread_cond_signal(&cudart.wanted);
    while (!cudart_passed(point) && device->failed == cudaSuccess)
        pthread_cond_wait(&cudart.changed, &cudart.lock);
    demand **link = &demands;
    while (*link != &mine)
        link = &(*link)->next;
    *link = mine.next;
    if (device->failed == cudaSuccess)
        reached(point, clock);
    cudart_clock_drop(clock);
    return device->failed;
}

cudaError_t cudart_ask(cudart_point point, const cudart_clock *clock) {
    if (point.stream && point.stream->device->failed != cudaSuccess)
        return point.stream->device->failed;
    if (cudart_passed(point))
        return reached(point, clock);
    asked = point;
    pthread_cond_signal(&cudart.wanted);
    return cudaErrorNotReady;
}

void cudart_wait_for_device(cudart_device *device) {
    uint64_t from = cudart_draw(2);
    for (int i = 0; i < cudart.streams; i++) {
        cudart_stream *stream = cudart.stream[from ? i : cudart.streams - 1 - i];
        if (stream->device == device)
            cudart_wait_for((cudart_point){stream, stream->queued}, stream->clock);
    }
}
