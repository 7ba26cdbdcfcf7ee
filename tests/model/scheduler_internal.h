// Between scheduler.c (what an event does), explore.c (which comes next) and memory.c.
#ifndef ND_TESTS_MODEL_SCHEDULER_INTERNAL_H
#define ND_TESTS_MODEL_SCHEDULER_INTERNAL_H
#include "tests/model/memory.h"
#include "tests/model/scheduler.h"
#include <stddef.h>

/// Threads first, then the store buffer of each.
enum { PROCESSES = 2 * MODEL_PROGRAM_THREADS, BUFFER = 16, EVENTS = 4096 };

typedef enum event_kind {
    EVENT_NONE,
    EVENT_LOAD,
    EVENT_STORE, ///< into the thread's own buffer
    EVENT_FLUSH, ///< the oldest store of a buffer reaches memory
    EVENT_WRITE, ///< seq_cst store: straight to memory
    EVENT_EXCHANGE,
    EVENT_CAS,
    EVENT_ADD,
    EVENT_OR,
    EVENT_AND,
    EVENT_FENCE,
    EVENT_BARRIER, ///< process-wide: every buffer is empty
    EVENT_LOCK,
    EVENT_AWAIT, ///< a spin goes on when the word it looked at has changed
    EVENT_FUTEX, ///< looks at the word, and queues
    EVENT_SLEEP, ///< ends when woken
    EVENT_WAKE,
} event_kind;

typedef enum access_type {
    ACCESS_NONE,
    ACCESS_READ,
    ACCESS_WRITE,
    ACCESS_ADD,
    ACCESS_LOCK
} access_type;

typedef struct shared_access {
    uintptr_t address;
    access_type type;
} shared_access;

/// What a process does next.
typedef struct operation {
    event_kind kind;
    shared_access accesses[2];
    volatile void *word;
    size_t size;
    uint64_t value, expected;
    int order;
    void *caller;
} operation;

// scheduler.c

/// Simulated thread that runs; MODEL_MAIN outside the program.
int model_current(void);
/// Checks a plain access of the running thread (memory.h).
void model_access_here(const volatile void *place, size_t size, bool write);
void model_place_name(const char *place, char *name, size_t size);
uint64_t model_read_word(const volatile void *word, size_t size);
void model_write_word(volatile void *word, size_t size, uint64_t value);
/// A thread asks for an event, and goes on with what the word held when the scheduler has executed
/// it.
uint64_t model_event(operation step);
/// Whether the running thread's futex had changed already, or it is the main thread.
bool model_woken(void);
/// Waiting for another value of the word that the running thread loaded last; EVENT_NONE in main.
operation model_spin(void);
/// Runs a function as the main thread; false when it failed.
bool model_run_main(void (*function)(void));
/// Goes back to the snapshot and starts the program's threads; each runs up to its first event.
bool model_start(const model_program *program);
/// Next operation of a process; kind EVENT_NONE when it has none.
const operation *model_pending(int process);
bool model_enabled(int process);
/// Executes the next operation of a process, and runs its thread up to the one after. *ret_before
/// is what the word held. `number` is for model_flush_origin.
bool model_step(int process, uint32_t number, uint64_t *ret_before);
/// Number of the event that put the store which this buffer writes next.
uint32_t model_flush_origin(int process);
/// Whether a thread of the program has not ended.
bool model_unfinished(void);
const char *model_message(void);
/// Writes one line about a step, for a counterexample.
void model_describe(int process, const operation *step, uint64_t before, char *text, size_t size);
/// Forgets names and errors.
void model_begin(void);
#endif
