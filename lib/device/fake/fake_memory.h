// The devices of the fake backend, their blocks, and what they have of memory.
//
// Invariant: `used` is the bytes of all blocks that exist, those whose release is queued, the
// finished and the cached ones included. Whoever reads or writes a device holds its lock.
#ifndef ND_LIB_DEVICE_FAKE_FAKE_MEMORY_H
#define ND_LIB_DEVICE_FAKE_FAKE_MEMORY_H
#include "lib/device/device.h"
#include "lib/device/fake/fake.h"
#include "lib/memory/host.h"
#include <pthread.h>

typedef enum {
    ND_FAKE_COMMAND_LAUNCH,
    ND_FAKE_COMMAND_COPY,
    ND_FAKE_COMMAND_RELEASE,
    ND_FAKE_COMMAND_CALL,
} nd_fake_command_kind;

typedef struct nd_fake_command nd_fake_command;
struct nd_fake_command {
    nd_fake_command *next;
    nd_fake_command_kind kind;
};

/// Stands in front of every block.
typedef struct nd_fake_block {
    _Alignas(ND__HOST_ALIGNMENT) nd_fake_command release;
    size_t bytes;
    size_t capacity; ///< a block from the cache may be larger than what it is used for
} nd_fake_block;
_Static_assert(sizeof(nd_fake_block) == ND__HOST_ALIGNMENT,
               "the data behind the header is aligned");

typedef enum {
    ND_FAKE_WORKER_NONE, ///< not started: nothing was ever queued
    ND_FAKE_WORKER_RUNS,
    ND_FAKE_WORKER_RESTS,   ///< ended, having had nothing to do; is to be joined
    ND_FAKE_WORKER_STOPPED, ///< at exit, or no thread to be had: commands run where they are queued
    ND_FAKE_WORKER_LOST,    ///< the parent process has it
} nd_fake_worker_state;

typedef struct nd_fake_device {
    pthread_mutex_t lock;
    pthread_cond_t work; ///< the worker waits here
    pthread_cond_t done; ///< those who wait for the worker
    pthread_t thread;
    nd_fake_worker_state state;
    bool paused, stopping;
    nd_fake_command *first, *last;
    nd_fake_command *running; ///< also keeps it reachable in a forked child
    uint64_t queued, finished_commands;
    uint64_t blocks;
    uint64_t live;   ///< bytes of the blocks that nobody has released
    uint64_t memory; ///< 0: as much as the host has
    uint64_t used;   ///< of it: all blocks, the finished and the cached ones too
    uint64_t peak;   ///< the most that it was
    uint64_t limit;  ///< of what is finished or cached; 0: none, else one more
    uint64_t bound;  ///< of `used`, beside `memory`; 0: none, else one more
    bool keeps;      ///< released blocks stay, in these two lists
    nd_fake_block *finished, *cached;
    nd_status failure; ///< of the first command that failed since the last report
} nd_fake_device;

extern nd_fake_device nd__fake_memory_devices[ND__FAKE_DEVICES];

/// A block of ND__FAKE_FRESH with a guard behind it.
nd_status nd__fake_memory_allocate(int index, size_t bytes, void **ret_pointer);
/// Somebody has released the block, which is now to be queued.
void nd__fake_memory_leave(int index, nd_fake_block *released);
/// Fills a block whose release is reached. ND_ERROR_DEVICE: somebody wrote past its end.
nd_status nd__fake_memory_poison(nd_fake_block *released);
/// Frees or keeps it. With the lock held.
void nd__fake_memory_take_back(nd_fake_device *device, nd_fake_block *released);
/// nd__fake_set_memory().
void nd__fake_memory_set(int index, uint64_t bytes, bool keeps);

// As the table of functions has them.
uint64_t nd__fake_memory_retire(int index);
uint64_t nd__fake_memory_trim(int index);
void nd__fake_memory_limit(int index, uint64_t bytes);
nd_status nd__fake_memory_bound(int index, uint64_t bytes);
void nd__fake_memory_usage(int index, nd_memory_usage *ret_usage);
#endif
