// The fake device: host memory behind a queue and poison, so that mistakes with lifetimes show on a
// machine without a GPU.
//
// Each of its two devices runs its commands in order on one worker thread, which starts with the
// first command. Memory is filled with 0xCB when it is allocated and with 0xDD when its release is
// reached, and a guard behind each block is checked then. A block's header is its own release
// command, so releasing needs no memory and cannot fail. A failure of a command is kept and
// reported by the next synchronize or copy_to_host.
//
// Tests can give a device little memory, and let it keep released blocks as a GPU's pool does: a
// release that was reached leaves its block among the finished ones, which `retire` moves to a
// cache that allocations are served from and that `trim` empties.
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
#include "lib/device/registry.h"
#include "lib/manager/request.h"
#include "lib/memory/host.h"
#include "lib/object/callback.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GUARD_BYTES 64
/// After so many seconds without a command a worker ends.
#define IDLE_SECONDS 2

typedef enum { COMMAND_LAUNCH, COMMAND_COPY, COMMAND_RELEASE, COMMAND_CALL } command_kind;

typedef struct command command;
struct command {
    command *next;
    command_kind kind;
};

typedef struct launch_command {
    command header;
    nd_kernel_call call;
} launch_command;

typedef struct copy_command {
    command header;
    void *destination;
    size_t bytes;
    unsigned char source[]; ///< as it was when the copy was queued
} copy_command;

typedef struct call_command {
    command header;
    void (*function)(void *data);
    void *data;
} call_command;

/// Stands in front of every block.
typedef struct block {
    _Alignas(ND__HOST_ALIGNMENT) command release;
    size_t bytes;
    size_t capacity; ///< a block from the cache may be larger than what it is used for
} block;
_Static_assert(sizeof(block) == ND__HOST_ALIGNMENT, "the data behind the header is aligned");

typedef enum {
    WORKER_NONE, ///< not started: nothing was ever queued
    WORKER_RUNS,
    WORKER_RESTS,   ///< ended, having had nothing to do; is to be joined
    WORKER_STOPPED, ///< at exit, or no thread to be had: commands run where they are queued
    WORKER_LOST,    ///< the parent process has it
} worker_state;

typedef struct fake_device {
    pthread_mutex_t lock;
    pthread_cond_t work; ///< the worker waits here
    pthread_cond_t done; ///< those who wait for the worker
    pthread_t thread;
    worker_state state;
    bool paused, stopping;
    command *first, *last;
    command *running; ///< also keeps it reachable in a forked child
    uint64_t queued, finished_commands;
    uint64_t blocks;
    uint64_t live;   ///< bytes of the blocks that nobody has released
    uint64_t memory; ///< 0: as much as the host has
    uint64_t used;   ///< of it: all blocks, the finished and the cached ones too
    uint64_t peak;   ///< the most that it was
    uint64_t limit;  ///< of what is cached; 0: none, else one more
    uint64_t bound;  ///< of `used`, beside `memory`; 0: none, else one more
    bool keeps;      ///< released blocks stay, in these two lists
    block *finished, *cached;
    nd_status failure; ///< of the first command that failed since the last report
} fake_device;

#define FAKE_DEVICE                                                          \
    {                                                                        \
        .lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER, \
        .done = PTHREAD_COND_INITIALIZER,                                    \
    }
static fake_device devices[ND__FAKE_DEVICES] = {FAKE_DEVICE, FAKE_DEVICE};

static void enqueue(fake_device *device, command *new_command);
static nd_status wait_for_queue(fake_device *device);
static nd_status poison(block *released);

// ------------------------------------------------------------------------------------------------
// the backend's table

static int fake_device_count(void) {
    return ND__FAKE_DEVICES;
}

static bool is_lost(fake_device *device) {
    pthread_mutex_lock(&device->lock);
    bool lost = device->state == WORKER_LOST;
    pthread_mutex_unlock(&device->lock);
    return lost;
}

static block *next_block(const block *of) {
    return (block *)of->release.next;
}

static void push_block(block **list, block *pushed) {
    pushed->release.next = *list ? &(*list)->release : NULL;
    *list = pushed;
}

/// How many bytes it may have; UINT64_MAX: as many as the host. With the lock held.
static uint64_t memory_of(const fake_device *device) {
    const uint64_t memory = device->memory ? device->memory : UINT64_MAX;
    const uint64_t bound = device->bound - 1;
    return memory < bound ? memory : bound;
}

/// A cached block that is large enough and not too large, or room for a new one. With the lock
/// held. False: neither.
static bool reserve(fake_device *device, size_t bytes, block **ret_cached) {
    const uint64_t memory = memory_of(device);
    *ret_cached = NULL;
    if (device->used > memory)
        return false;
    block *found = device->cached, *before = NULL;
    for (; found && (found->capacity < bytes || found->capacity / 2 > bytes);
         found = next_block(found))
        before = found;
    *ret_cached = found;
    if (found && before)
        before->release.next = found->release.next;
    else if (found)
        device->cached = next_block(found);
    if (found)
        return true;
    if (bytes > memory - device->used)
        return false;
    device->used += bytes;
    if (device->used > device->peak)
        device->peak = device->used;
    return true;
}

/// Frees a list of blocks, and returns how many bytes it held. With the lock held.
static uint64_t free_blocks(fake_device *device, block **list) {
    uint64_t bytes = 0;
    while (*list) {
        block *freed = *list;
        *list = next_block(freed);
        bytes += freed->capacity;
        nd__host_free(freed, sizeof *freed + freed->capacity + GUARD_BYTES);
    }
    device->used -= bytes;
    return bytes;
}

static nd_status fake_allocate(int index, size_t bytes, void **ret_pointer) {
    fake_device *device = &devices[index];
    if (is_lost(device))
        return ND_ERROR_DEVICE;
    if (bytes == 0)
        bytes = 1;
    if (bytes > PTRDIFF_MAX / 4)
        return ND_ERROR_OUT_OF_MEMORY;
    block *header;
    pthread_mutex_lock(&device->lock);
    bool room = reserve(device, bytes, &header);
    device->blocks += room;
    pthread_mutex_unlock(&device->lock);
    if (!room)
        return ND_ERROR_OUT_OF_MEMORY;
    size_t capacity = header ? header->capacity : bytes;
    if (!header && !(header = nd__host_alloc(sizeof *header + bytes + GUARD_BYTES))) {
        pthread_mutex_lock(&device->lock);
        device->blocks--;
        device->used -= bytes;
        pthread_mutex_unlock(&device->lock);
        return ND_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&device->lock);
    device->live += capacity;
    pthread_mutex_unlock(&device->lock);
    *header = (block){.release.kind = COMMAND_RELEASE, .bytes = bytes, .capacity = capacity};
    memset(header + 1, ND__FAKE_FRESH, bytes + GUARD_BYTES);
    *ret_pointer = header + 1;
    return ND_OK;
}

static void fake_release(int index, void *pointer, size_t bytes) {
    (void)bytes;
    if (!pointer)
        return;
    fake_device *device = &devices[index];
    block *released = (block *)pointer - 1;
    pthread_mutex_lock(&device->lock);
    device->live -= released->capacity;
    pthread_mutex_unlock(&device->lock);
    enqueue(device, &released->release);
}

/// Behind the queue nobody walks the ladder for a kernel.
static nd_status run_kernel(const nd_kernel_call *call) {
    nd_status status = nd__cpu_launch(call);
    return status == ND_ERROR_OUT_OF_MEMORY ? nd__cpu_launch_sparing(call) : status;
}

/// Without room for one more command the caller waits, as with a GPU whose queue is full: a launch
/// does not fail for lack of host memory, so that what is done in several launches is done wholly.
static nd_status launch_now(fake_device *device, const nd_kernel_call *call) {
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
    fake_device *device = &devices[index];
    if (is_lost(device))
        return ND_ERROR_DEVICE;
    launch_command *launch = nd__alloc(sizeof *launch);
    if (!launch)
        return launch_now(device, call);
    launch->header.kind = COMMAND_LAUNCH;
    launch->call = *call;
    enqueue(device, &launch->header);
    return ND_OK;
}

static nd_status fake_copy_from_host(int index, void *destination, const void *source,
                                     size_t bytes) {
    fake_device *device = &devices[index];
    if (is_lost(device))
        return ND_ERROR_DEVICE;
    if (bytes == 0)
        return ND_OK;
    copy_command *copy = nd__alloc(sizeof *copy + bytes);
    if (!copy)
        return ND_ERROR_OUT_OF_MEMORY;
    copy->header.kind = COMMAND_COPY;
    copy->destination = destination;
    copy->bytes = bytes;
    memcpy(copy->source, source, bytes);
    enqueue(device, &copy->header);
    return ND_OK;
}

static nd_status fake_call(int index, void (*function)(void *data), void *data) {
    fake_device *device = &devices[index];
    if (is_lost(device))
        return ND_ERROR_DEVICE;
    call_command *call = nd__alloc(sizeof *call);
    if (!call)
        return ND_ERROR_OUT_OF_MEMORY;
    *call = (call_command){.header.kind = COMMAND_CALL, .function = function, .data = data};
    enqueue(device, &call->header);
    return ND_OK;
}

static nd_status report_failure(fake_device *device) {
    pthread_mutex_lock(&device->lock);
    nd_status failure = device->failure;
    device->failure = ND_OK;
    pthread_mutex_unlock(&device->lock);
    return failure;
}

static nd_status fake_synchronize(int index) {
    nd_status status = wait_for_queue(&devices[index]);
    return status == ND_OK ? report_failure(&devices[index]) : status;
}

static nd_status fake_copy_to_host(int index, void *destination, const void *source, size_t bytes) {
    nd_status status = fake_synchronize(index);
    if (status == ND_OK && bytes > 0)
        memcpy(destination, source, bytes);
    return status;
}

static uint64_t sum_of(const block *list) {
    uint64_t bytes = 0;
    for (; list; list = next_block(list))
        bytes += list->capacity;
    return bytes;
}

/// With the lock held.
static void keep_within_limit(fake_device *device) {
    if (device->limit && sum_of(device->cached) > device->limit - 1)
        free_blocks(device, &device->cached);
}

static void fake_limit(int index, uint64_t bytes) {
    fake_device *device = &devices[index];
    pthread_mutex_lock(&device->lock);
    device->limit = bytes + 1;
    if (device->state != WORKER_LOST)
        keep_within_limit(device);
    pthread_mutex_unlock(&device->lock);
}

static nd_status fake_bound(int index, uint64_t bytes) {
    fake_device *device = &devices[index];
    pthread_mutex_lock(&device->lock);
    const bool lost = device->state == WORKER_LOST;
    if (!lost)
        device->bound = bytes + 1;
    if (!lost && device->used > memory_of(device))
        free_blocks(device, &device->cached);
    pthread_mutex_unlock(&device->lock);
    return lost ? ND_ERROR_DEVICE : ND_OK;
}

static uint64_t fake_retire(int index) {
    fake_device *device = &devices[index];
    uint64_t bytes = 0;
    pthread_mutex_lock(&device->lock);
    while (device->finished && device->state != WORKER_LOST) {
        block *retired = device->finished;
        device->finished = next_block(retired);
        bytes += retired->capacity;
        push_block(&device->cached, retired);
    }
    keep_within_limit(device);
    pthread_mutex_unlock(&device->lock);
    return bytes;
}

static uint64_t fake_trim(int index) {
    fake_device *device = &devices[index];
    pthread_mutex_lock(&device->lock);
    uint64_t bytes = device->state == WORKER_LOST ? 0 : free_blocks(device, &device->cached);
    pthread_mutex_unlock(&device->lock);
    nd__host_trim(); // this device's memory is the host's
    return bytes;
}

static bool fake_wait(int index, uint64_t nanoseconds) {
    ND__UNCANCELLED;
    fake_device *device = &devices[index];
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(nanoseconds % 1000000000);
    until.tv_sec += (time_t)(nanoseconds / 1000000000) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&device->lock);
    uint64_t target = device->queued;
    int timed_out = 0;
    while (device->state == WORKER_RUNS && device->finished_commands < target && !timed_out)
        timed_out = pthread_cond_clockwait(&device->done, &device->lock, CLOCK_MONOTONIC, &until);
    bool done = device->state != WORKER_LOST && device->finished_commands >= target;
    pthread_mutex_unlock(&device->lock);
    return done;
}

static void fake_usage(int index, nd_memory_usage *ret_usage) {
    fake_device *device = &devices[index];
    pthread_mutex_lock(&device->lock);
    ret_usage->cached = sum_of(device->finished) + sum_of(device->cached);
    const uint64_t memory = memory_of(device);
    ret_usage->limit = memory;
    ret_usage->total = device->memory ? device->memory : ND__UNKNOWN_BYTES;
    ret_usage->live = device->live;
    ret_usage->peak = device->peak;
    const uint64_t idle = device->live + ret_usage->cached;
    ret_usage->pending = device->used > idle ? device->used - idle : 0;
    ret_usage->available = memory == UINT64_MAX    ? ND__UNKNOWN_BYTES
                           : memory > device->used ? memory - device->used + ret_usage->cached
                                                   : ret_usage->cached;
    pthread_mutex_unlock(&device->lock);
}

static bool fake_lost(int index) {
    return index < ND__FAKE_DEVICES && is_lost(&devices[index]);
}

static const nd_memory_functions fake_rows = {
    .retire = fake_retire,
    .trim = fake_trim,
    .limit = fake_limit,
    .bound = fake_bound,
    .wait = fake_wait,
    .usage = fake_usage,
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
    fake_device *device = &devices[index];
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
    fake_device *device = &devices[index];
    pthread_mutex_lock(&device->lock);
    device->memory = bytes;
    device->keeps = keeps;
    free_blocks(device, &device->finished);
    free_blocks(device, &device->cached);
    pthread_mutex_unlock(&device->lock);
}

uint64_t nd__fake_pending(int index) {
    fake_device *device = &devices[index];
    pthread_mutex_lock(&device->lock);
    uint64_t pending = device->queued - device->finished_commands;
    pthread_mutex_unlock(&device->lock);
    return pending;
}

uint64_t nd__fake_live_blocks(int index) {
    fake_device *device = &devices[index];
    pthread_mutex_lock(&device->lock);
    uint64_t blocks = device->blocks;
    pthread_mutex_unlock(&device->lock);
    return blocks;
}

// ------------------------------------------------------------------------------------------------
// the worker

/// Runs one command and frees it, unless it is a block.
static nd_status execute(command *taken) {
    nd_status status = ND_OK;
    switch (taken->kind) {
    case COMMAND_LAUNCH:
        status = run_kernel(&((launch_command *)taken)->call);
        nd__alloc_free(taken);
        break;
    case COMMAND_COPY: {
        copy_command *copy = (copy_command *)taken;
        memcpy(copy->destination, copy->source, copy->bytes);
        nd__alloc_free(copy);
        break;
    }
    case COMMAND_RELEASE:
        status = poison((block *)taken);
        break;
    case COMMAND_CALL: {
        call_command *call = (call_command *)taken;
        call->function(call->data);
        nd__alloc_free(call);
        break;
    }
    }
    return status;
}

static nd_status poison(block *released) {
    const unsigned char *guard = (const unsigned char *)(released + 1) + released->bytes;
    nd_status status = ND_OK;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (guard[i] != ND__FAKE_FRESH)
            status = ND_ERROR_DEVICE; // somebody wrote past the end
    memset(released + 1, ND__FAKE_RELEASED, released->bytes + GUARD_BYTES);
    return status;
}

/// Accounts for a command that has run, and for its block when it was a release. With the lock
/// held.
static void finish(fake_device *device, command_kind kind, block *released, nd_status status) {
    device->finished_commands++;
    if (kind == COMMAND_RELEASE) {
        device->blocks--;
        released->release.next = NULL;
        if (device->keeps)
            push_block(&device->finished, released);
        else
            free_blocks(device, &released);
    }
    if (status != ND_OK && device->failure == ND_OK)
        device->failure = status;
    pthread_cond_broadcast(&device->done);
}

/// Waits until there is a command to run, which it takes. NULL: the worker is to end. With the lock
/// held.
static command *next_command(fake_device *device) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_SECONDS;
    int answer = 0;
    while (!device->stopping && (!device->first || device->paused) &&
           !(answer == ETIMEDOUT && !device->first))
        answer = pthread_cond_clockwait(&device->work, &device->lock, CLOCK_MONOTONIC, &until);
    if (!device->first)
        device->state = device->stopping ? WORKER_STOPPED : WORKER_RESTS;
    return device->first;
}

static void *worker(void *data) {
    fake_device *device = data;
    pthread_mutex_lock(&device->lock);
    command *taken;
    while (device->state == WORKER_RUNS && (taken = next_command(device)) != NULL) {
        device->first = taken->next;
        device->running = taken;
        pthread_mutex_unlock(&device->lock);
        command_kind kind = taken->kind;
        nd_status status = execute(taken);
        pthread_mutex_lock(&device->lock);
        device->running = NULL;
        finish(device, kind, (block *)taken, status);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

static void start_worker(fake_device *device);

static void enqueue(fake_device *device, command *new_command) {
    ND__UNCANCELLED;
    pthread_mutex_lock(&device->lock);
    if (device->state == WORKER_NONE || device->state == WORKER_RESTS)
        start_worker(device);
    device->queued++;
    if (device->state == WORKER_RUNS) {
        new_command->next = NULL;
        if (device->first)
            device->last->next = new_command;
        else
            device->first = new_command;
        device->last = new_command;
        pthread_cond_signal(&device->work);
    } else {
        command_kind kind = new_command->kind;
        if (kind == COMMAND_CALL) // user code
            pthread_mutex_unlock(&device->lock);
        nd_status status = execute(new_command);
        if (kind == COMMAND_CALL)
            pthread_mutex_lock(&device->lock);
        finish(device, kind, (block *)new_command, status);
    }
    pthread_mutex_unlock(&device->lock);
}

static nd_status wait_for_queue(fake_device *device) {
    ND__UNCANCELLED;
    pthread_mutex_lock(&device->lock);
    uint64_t target = device->queued;
    while (device->state == WORKER_RUNS && device->finished_commands < target)
        pthread_cond_wait(&device->done, &device->lock);
    nd_status status = device->state == WORKER_LOST ? ND_ERROR_DEVICE : ND_OK;
    pthread_mutex_unlock(&device->lock);
    return status;
}

// ------------------------------------------------------------------------------------------------
// start, exit, fork

static void before_fork(void) {
    for (int i = 0; i < ND__FAKE_DEVICES; i++)
        pthread_mutex_lock(&devices[i].lock);
}

static void after_fork(bool child) {
    for (int i = 0; i < ND__FAKE_DEVICES; i++) {
        if (!child) {
            pthread_mutex_unlock(&devices[i].lock);
            continue;
        }
        if (devices[i].state == WORKER_RUNS || devices[i].state == WORKER_RESTS)
            devices[i].state = WORKER_LOST;
        // Threads of the parent may be waiting.
        pthread_cond_init(&devices[i].work, NULL);
        pthread_cond_init(&devices[i].done, NULL);
        pthread_mutex_init(&devices[i].lock, NULL);
    }
}
ND__FORK_PART(fork_fake, ND__FORK_DEVICE, NULL, 0, 0, before_fork, after_fork, NULL);

/// Lets the workers finish what is queued, and destroys what callbacks among it have released.
static void stop_workers(void) {
    for (int i = 0; i < ND__FAKE_DEVICES; i++) {
        fake_device *device = &devices[i];
        pthread_mutex_lock(&device->lock);
        bool started = device->state == WORKER_RUNS || device->state == WORKER_RESTS;
        device->stopping = true;
        pthread_cond_signal(&device->work);
        if (device->state == WORKER_NONE || device->state == WORKER_RESTS)
            device->state = WORKER_STOPPED;
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
static void start_worker(fake_device *device) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_handlers);
    if (device->state == WORKER_RESTS) // it has given up the lock
        pthread_join(device->thread, NULL);
    bool started = nd__spawn(&device->thread, NULL, worker, device) == 0;
    device->state = started ? WORKER_RUNS : WORKER_STOPPED;
}
