// The fake device: host memory behind a queue and poison, so that mistakes with lifetimes show on a
// machine without a GPU.
//
// Each of its two devices runs its commands in order on one worker thread, which starts with the
// first command. A block's header is its own release command, so releasing needs no memory and
// cannot fail. A failure of a command is kept and reported by the next synchronize or copy_to_host.
// What it has of memory is in fake_memory.c.
//
// A worker without commands for seconds ends, so that it keeps no process alive whose own threads
// have ended; the next command starts another one.
//
// After a fork the child has no worker, or, when a callback has forked, one that ends with that
// callback: its devices answer ND_ERROR_DEVICE, as a GPU would, unless they were never used. From
// exit on commands run on the thread that queues them.
#include "lib/device/fake/fake.h"
#include "kernels/cpu/cpu.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/fork.h"
#include "lib/base/spawn.h"
#include "lib/device/backends.h"
#include "lib/device/fake/fake_memory.h"
#include "lib/device/registry.h"
#include "lib/manager/request.h"
#include "lib/object/callback.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/// After so many seconds without a command a worker ends.
#define IDLE_SECONDS 2

typedef struct launch_command {
    nd_fake_command header;
    nd_kernel_call call;
} launch_command;

typedef struct copy_command {
    nd_fake_command header;
    void *destination;
    size_t bytes;
    unsigned char source[]; ///< as it was when the copy was queued
} copy_command;

typedef struct call_command {
    nd_fake_command header;
    void (*function)(void *data);
    void *data;
} call_command;

static void enqueue(nd_fake_device *device, nd_fake_command *new_command);
static nd_status wait_for_queue(nd_fake_device *device);

// ------------------------------------------------------------------------------------------------
// the backend's table

static int fake_device_count(void) {
    return ND__FAKE_DEVICES;
}

static bool is_lost(nd_fake_device *device) {
    pthread_mutex_lock(&device->lock);
    bool lost = device->state == ND_FAKE_WORKER_LOST;
    pthread_mutex_unlock(&device->lock);
    return lost;
}

static nd_status fake_allocate(int index, size_t bytes, void **ret_pointer) {
    if (is_lost(&nd__fake_memory_devices[index]))
        return ND_ERROR_DEVICE;
    return nd__fake_memory_allocate(index, bytes, ret_pointer);
}

static void fake_release(int index, void *pointer, size_t bytes) {
    (void)bytes;
    if (!pointer)
        return;
    nd_fake_device *device = &nd__fake_memory_devices[index];
    nd_fake_block *released = (nd_fake_block *)pointer - 1;
    nd__fake_memory_leave(index, released);
    enqueue(device, &released->release);
}

/// Behind the queue nobody walks the ladder for a kernel.
static nd_status run_kernel(const nd_kernel_call *call) {
    nd_status status = nd__cpu_launch(call);
    return status == ND_ERROR_OUT_OF_MEMORY ? nd__cpu_launch_sparing(call) : status;
}

/// Without room for one more command the caller waits, as with a GPU whose queue is full: a launch
/// does not fail for lack of host memory, so that what is done in several launches is done wholly.
static nd_status launch_now(nd_fake_device *device, const nd_kernel_call *call) {
    nd_status status = wait_for_queue(device);
    if (status != ND_OK)
        return status;
    status = run_kernel(call);
    pthread_mutex_lock(&device->lock);
    if (status != ND_OK && device->failure == ND_OK)
        device->failure = status;
    pthread_mutex_unlock(&device->lock);
    return ND_OK;
}

static nd_status fake_launch(int index, const nd_kernel_call *call) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    if (is_lost(device))
        return ND_ERROR_DEVICE;
    launch_command *launch = nd__alloc(sizeof *launch);
    if (!launch)
        return launch_now(device, call);
    launch->header.kind = ND_FAKE_COMMAND_LAUNCH;
    launch->call = *call;
    enqueue(device, &launch->header);
    return ND_OK;
}

static nd_status fake_copy_from_host(int index, void *destination, const void *source,
                                     size_t bytes) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    if (is_lost(device))
        return ND_ERROR_DEVICE;
    if (bytes == 0)
        return ND_OK;
    copy_command *copy = nd__alloc(sizeof *copy + bytes);
    if (!copy)
        return ND_ERROR_OUT_OF_MEMORY;
    copy->header.kind = ND_FAKE_COMMAND_COPY;
    copy->destination = destination;
    copy->bytes = bytes;
    memcpy(copy->source, source, bytes);
    enqueue(device, &copy->header);
    return ND_OK;
}

static nd_status fake_call(int index, void (*function)(void *data), void *data) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    if (is_lost(device))
        return ND_ERROR_DEVICE;
    call_command *call = nd__alloc(sizeof *call);
    if (!call)
        return ND_ERROR_OUT_OF_MEMORY;
    *call = (call_command){.header.kind = ND_FAKE_COMMAND_CALL, .function = function, .data = data};
    enqueue(device, &call->header);
    return ND_OK;
}

static nd_status report_failure(nd_fake_device *device) {
    pthread_mutex_lock(&device->lock);
    nd_status failure = device->failure;
    device->failure = ND_OK;
    pthread_mutex_unlock(&device->lock);
    return failure;
}

static nd_status fake_synchronize(int index) {
    nd_status status = wait_for_queue(&nd__fake_memory_devices[index]);
    return status == ND_OK ? report_failure(&nd__fake_memory_devices[index]) : status;
}

static nd_status fake_copy_to_host(int index, void *destination, const void *source, size_t bytes) {
    nd_status status = fake_synchronize(index);
    if (status == ND_OK && bytes > 0)
        memcpy(destination, source, bytes);
    return status;
}

static bool fake_wait(int index, uint64_t nanoseconds) {
    ND__UNCANCELLED;
    nd_fake_device *device = &nd__fake_memory_devices[index];
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(nanoseconds % 1000000000);
    until.tv_sec += (time_t)(nanoseconds / 1000000000) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&device->lock);
    uint64_t target = device->queued;
    int timed_out = 0;
    while (device->state == ND_FAKE_WORKER_RUNS && device->finished_commands < target && !timed_out)
        timed_out = pthread_cond_clockwait(&device->done, &device->lock, CLOCK_MONOTONIC, &until);
    bool done = device->state != ND_FAKE_WORKER_LOST && device->finished_commands >= target;
    pthread_mutex_unlock(&device->lock);
    return done;
}

static bool fake_lost(int index) {
    return index < ND__FAKE_DEVICES && is_lost(&nd__fake_memory_devices[index]);
}

static const nd_memory_functions fake_rows = {
    .retire = nd__fake_memory_retire,
    .trim = nd__fake_memory_trim,
    .limit = nd__fake_memory_limit,
    .bound = nd__fake_memory_bound,
    .wait = fake_wait,
    .usage = nd__fake_memory_usage,
};

static const nd_backend fake_backend = {
    .name = "fake",
    .host_accessible = false,
    .device_count = fake_device_count,
    .allocate = fake_allocate,
    .release = fake_release,
    .copy_from_host = fake_copy_from_host,
    .copy_to_host = fake_copy_to_host,
    .synchronize = fake_synchronize,
    .launch = fake_launch,
    .call = fake_call,
    .memory = &fake_rows,
    .lost = fake_lost,
};

__attribute__((constructor)) static void add_backend(void) {
    nd__registry_add(&fake_backend);
}

// ------------------------------------------------------------------------------------------------
// for tests

static void set_paused(int index, bool paused) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    pthread_mutex_lock(&device->lock);
    device->paused = paused;
    pthread_cond_signal(&device->work);
    pthread_mutex_unlock(&device->lock);
}

void nd__fake_pause(int index) {
    set_paused(index, true);
}

void nd__fake_resume(int index) {
    set_paused(index, false);
}

void nd__fake_set_memory(int index, uint64_t bytes, bool keeps) {
    nd__fake_memory_set(index, bytes, keeps);
}

uint64_t nd__fake_pending(int index) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    pthread_mutex_lock(&device->lock);
    uint64_t pending = device->queued - device->finished_commands;
    pthread_mutex_unlock(&device->lock);
    return pending;
}

uint64_t nd__fake_live_blocks(int index) {
    nd_fake_device *device = &nd__fake_memory_devices[index];
    pthread_mutex_lock(&device->lock);
    uint64_t blocks = device->blocks;
    pthread_mutex_unlock(&device->lock);
    return blocks;
}

// ------------------------------------------------------------------------------------------------
// the worker

/// Runs one command and frees it, unless it is a block.
static nd_status execute(nd_fake_command *taken) {
    nd_status status = ND_OK;
    switch (taken->kind) {
    case ND_FAKE_COMMAND_LAUNCH:
        status = run_kernel(&((launch_command *)taken)->call);
        nd__alloc_free(taken);
        break;
    case ND_FAKE_COMMAND_COPY: {
        copy_command *copy = (copy_command *)taken;
        memcpy(copy->destination, copy->source, copy->bytes);
        nd__alloc_free(copy);
        break;
    }
    case ND_FAKE_COMMAND_RELEASE:
        status = nd__fake_memory_poison((nd_fake_block *)taken);
        break;
    case ND_FAKE_COMMAND_CALL: {
        call_command *call = (call_command *)taken;
        call->function(call->data);
        nd__alloc_free(call);
        break;
    }
    }
    return status;
}

/// Accounts for a command that has run, and for its block when it was a release. With the lock
/// held.
static void finish(nd_fake_device *device, nd_fake_command_kind kind, nd_fake_block *released,
                   nd_status status) {
    device->finished_commands++;
    if (kind == ND_FAKE_COMMAND_RELEASE)
        nd__fake_memory_take_back(device, released);
    if (status != ND_OK && device->failure == ND_OK)
        device->failure = status;
    pthread_cond_broadcast(&device->done);
}

/// Waits until there is a command to run, which it takes. NULL: the worker is to end. With the lock
/// held.
static nd_fake_command *next_command(nd_fake_device *device) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_SECONDS;
    int answer = 0;
    while (!device->stopping && (!device->first || device->paused) &&
           !(answer == ETIMEDOUT && !device->first))
        answer = pthread_cond_clockwait(&device->work, &device->lock, CLOCK_MONOTONIC, &until);
    if (!device->first)
        device->state = device->stopping ? ND_FAKE_WORKER_STOPPED : ND_FAKE_WORKER_RESTS;
    return device->first;
}

static void *worker(void *data) {
    nd_fake_device *device = data;
    pthread_mutex_lock(&device->lock);
    nd_fake_command *taken;
    while (device->state == ND_FAKE_WORKER_RUNS && (taken = next_command(device)) != NULL) {
        device->first = taken->next;
        device->running = taken;
        pthread_mutex_unlock(&device->lock);
        nd_fake_command_kind kind = taken->kind;
        nd_status status = execute(taken);
        pthread_mutex_lock(&device->lock);
        device->running = NULL;
        finish(device, kind, (nd_fake_block *)taken, status);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

static void start_worker(nd_fake_device *device);

static void enqueue(nd_fake_device *device, nd_fake_command *new_command) {
    ND__UNCANCELLED;
    pthread_mutex_lock(&device->lock);
    if (device->state == ND_FAKE_WORKER_NONE || device->state == ND_FAKE_WORKER_RESTS)
        start_worker(device);
    device->queued++;
    if (device->state == ND_FAKE_WORKER_RUNS) {
        new_command->next = NULL;
        if (device->first)
            device->last->next = new_command;
        else
            device->first = new_command;
        device->last = new_command;
        pthread_cond_signal(&device->work);
    } else {
        nd_fake_command_kind kind = new_command->kind;
        if (kind == ND_FAKE_COMMAND_CALL) // user code
            pthread_mutex_unlock(&device->lock);
        nd_status status = execute(new_command);
        if (kind == ND_FAKE_COMMAND_CALL)
            pthread_mutex_lock(&device->lock);
        finish(device, kind, (nd_fake_block *)new_command, status);
    }
    pthread_mutex_unlock(&device->lock);
}

static nd_status wait_for_queue(nd_fake_device *device) {
    ND__UNCANCELLED;
    pthread_mutex_lock(&device->lock);
    uint64_t target = device->queued;
    while (device->state == ND_FAKE_WORKER_RUNS && device->finished_commands < target)
        pthread_cond_wait(&device->done, &device->lock);
    nd_status status = device->state == ND_FAKE_WORKER_LOST ? ND_ERROR_DEVICE : ND_OK;
    pthread_mutex_unlock(&device->lock);
    return status;
}

// ------------------------------------------------------------------------------------------------
// start, exit, fork

static void before_fork(void) {
    for (int i = 0; i < ND__FAKE_DEVICES; i++)
        pthread_mutex_lock(&nd__fake_memory_devices[i].lock);
}

static void after_fork(bool child) {
    for (int i = 0; i < ND__FAKE_DEVICES; i++) {
        if (!child) {
            pthread_mutex_unlock(&nd__fake_memory_devices[i].lock);
            continue;
        }
        if (nd__fake_memory_devices[i].state == ND_FAKE_WORKER_RUNS ||
            nd__fake_memory_devices[i].state == ND_FAKE_WORKER_RESTS)
            nd__fake_memory_devices[i].state = ND_FAKE_WORKER_LOST;
        // Threads of the parent may be waiting.
        pthread_cond_init(&nd__fake_memory_devices[i].work, NULL);
        pthread_cond_init(&nd__fake_memory_devices[i].done, NULL);
        pthread_mutex_init(&nd__fake_memory_devices[i].lock, NULL);
    }
}
ND__FORK_PART(fork_fake, ND__FORK_DEVICE, NULL, 0, 0, before_fork, after_fork, NULL);

/// Lets the workers finish what is queued, and destroys what callbacks among it have released.
static void stop_workers(void) {
    for (int i = 0; i < ND__FAKE_DEVICES; i++) {
        nd_fake_device *device = &nd__fake_memory_devices[i];
        pthread_mutex_lock(&device->lock);
        bool started =
            device->state == ND_FAKE_WORKER_RUNS || device->state == ND_FAKE_WORKER_RESTS;
        device->stopping = true;
        pthread_cond_signal(&device->work);
        if (device->state == ND_FAKE_WORKER_NONE || device->state == ND_FAKE_WORKER_RESTS)
            device->state = ND_FAKE_WORKER_STOPPED;
        pthread_mutex_unlock(&device->lock);
        if (started) // itself, if it is the last thread of the process: then this does not wait
            pthread_join(device->thread, NULL);
    }
    nd__callback_destroy_deferred();
}

static void register_handlers(void) {
    atexit(stop_workers);
}

/// With the lock held.
static void start_worker(nd_fake_device *device) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_handlers);
    if (device->state == ND_FAKE_WORKER_RESTS) // it has given up the lock
        pthread_join(device->thread, NULL);
    bool started = nd__spawn(&device->thread, NULL, 0, worker, device) == 0;
    device->state = started ? ND_FAKE_WORKER_RUNS : ND_FAKE_WORKER_STOPPED;
}
