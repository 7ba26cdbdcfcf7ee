// Between scheduler.c (what an event does), explore.c (which comes next), names.c and memory.c.
#ifndef ND_TESTS_MODEL_SCHEDULER_INTERNAL_H
#define ND_TESTS_MODEL_SCHEDULER_INTERNAL_H
#include "lib/base/thread.h"
#include "tests/model/memory.h"
#include "tests/model/scheduler.h"
#include <stddef.h>

/// Threads first, then for each the kernel, which fences it when another one asks for that.
enum { PROCESSES = 2 * MODEL_PROGRAM_THREADS, EVENTS = 4096 };

typedef enum event_kind {
    EVENT_NONE,
    EVENT_LOAD,
    EVENT_STORE,
    EVENT_EXCHANGE,
    EVENT_CAS,
    EVENT_ADD,
    EVENT_OR,
    EVENT_AND,
    EVENT_FENCE,
    EVENT_BARRIER,     ///< process-wide: asks the kernel to fence every other thread
    EVENT_FENCED,      ///< the kernel does so
    EVENT_BARRIER_END, ///< when it has for all of them
    EVENT_LOCK,
    EVENT_FUTEX, ///< looks at the word, and queues
    EVENT_SLEEP, ///< ends when woken
    EVENT_WAKE,  ///< so many as its value says; 0: all
    EVENT_NAP,   ///< ends when woken, or by itself
} event_kind;

typedef enum access_type {
    ACCESS_NONE,
    ACCESS_LOAD,  ///< ordered with the store that it reads from, with no other
    ACCESS_LOOK,  ///< ordered with every write
    ACCESS_SHARE, ///< ordered with every write and look
    ACCESS_WRITE,
    ACCESS_LOCK
} access_type;

typedef struct shared_access {
    uintptr_t address;
    access_type type;
} shared_access;

/// What a process does next.
typedef struct operation {
    event_kind kind;
    shared_access accesses[3];
    volatile void *word;
    size_t size;
    uint64_t value, expected;
    int order;
    int failure_order; ///< of a compare-and-swap
    void *caller;
} operation;

/// What came of it.
typedef struct event_result {
    uint64_t before; ///< what it read
    uint64_t newest; ///< what the word held
    bool stale;      ///< they are different stores
} event_result;

/// Entries of its word's history that a load may read: lowest..count-1.
typedef struct load_choices {
    uint32_t lowest, count;
} load_choices;

// scheduler.c

/// Simulated thread that runs; MODEL_MAIN outside the program.
int model_current(void);
nd_thread *model_record(int thread);
/// Checks a plain access of the running thread (memory.h).
void model_access_here(const volatile void *place, size_t size, bool write);
/// A thread asks for an event, and goes on with what the word held when the scheduler has executed
/// it.
uint64_t model_event(operation step);
/// Whether the running thread's futex had changed already, or it is the main thread.
bool model_woken(void);
/// The next load of the word that the running thread has loaded last must read something newer.
void model_spin(void);
/// The running thread frees a block.
void model_free_here(void *place, size_t size);
/// So many bytes of it, in which others may have words.
void model_freed(const void *place, size_t size);
/// Runs a function as the main thread; false when it failed.
bool model_run_main(void (*function)(void));
/// Goes back to the snapshot and starts the program's threads; each runs up to its first event.
bool model_start(const model_program *program);
/// Next operation of a process; kind EVENT_NONE when it has none.
const operation *model_pending(int process);
/// Whether it can be executed. *ret_choices is {0, 0} for what is no load.
bool model_enabled(int process, load_choices *ret_choices);
/// Numbers of the events without which the next one of a process could not be, besides those of the
/// same thread: the store that its load would read, the barrier that asks for a fence, the fences
/// that a barrier waits for.
int model_causes(int process, uint32_t reads, uint32_t ret_events[PROCESSES]);
/// Executes the next operation of a process, and runs its thread up to the one after. A load reads
/// the entry `reads`. `number` is the event's.
bool model_step(int process, uint32_t number, uint32_t reads, event_result *ret_result);
/// Whether a thread of the program has not ended.
bool model_unfinished(void);
/// Whether the execution was left because a word turned out to be shared: everything must be
/// explored again, with its accesses as scheduling points.
bool model_discovered(void);
const char *model_message(void);
/// Set of the outcomes since it was last asked.
uint64_t model_outcomes(void);
/// Forgets errors, and which words are shared.
void model_begin(void);

// names.c

void model_place_name(const char *place, char *name, size_t size);
/// Writes one line about a step, for a counterexample.
void model_describe(int process, const operation *step, const event_result *result, char *text,
                    size_t size);
#endif
