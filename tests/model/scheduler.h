// The checker's engine: runs a small program of two or three threads again and again, each time
// with another schedule, or with other values read by its loads, until every execution that can
// matter has been run.
//
//   event      one step of a process on shared memory: a load, a read-modify-write, a lock ...
//   process    a thread of the program, or the kernel that fences it for another thread
//   dependent  two events of which the order can matter: same address, one of them a store. A load and
//              a store are only when the one reads from the other
//   race       two dependent events next to each other, or a load and a store that it could have read:
//              the search runs them in the other order, too
//
// The search is source-DPOR with sleep sets (depth first, without stored states, by running anew).
#ifndef ND_TESTS_MODEL_SCHEDULER_H
#define ND_TESTS_MODEL_SCHEDULER_H
#include <stdbool.h>
#include <stdint.h>

enum { MODEL_PROGRAM_THREADS = 3 };

typedef struct model_program {
    const char *name;
    const char *what;
    void (*setup)(void);                          ///< once, by the main thread
    void (*threads[MODEL_PROGRAM_THREADS])(void); ///< NULL behind the last
    void (*finish)(void);                         ///< after every execution
    uint64_t bound;    ///< executions that are explored by default; 0: to the end
    uint64_t outcomes; ///< set of those that there must be, of model_outcome; 0: not said
} model_program;

typedef struct model_result {
    uint64_t executions; ///< complete ones
    uint64_t pruned;     ///< abandoned because they repeat another
    uint64_t events;
    uint64_t repeated; ///< complete executions that are like an earlier one: order of dependent
                       ///< events, and what is read
    uint64_t sampled;  ///< random schedules
    uint64_t missed;   ///< random schedules that do so as none did: the search is wrong
    uint32_t longest;  ///< execution, in events
    bool complete;     ///< every schedule was explored, and every value that a load may read
    bool loose;        ///< but for other orders of stores to one word that nothing orders
    bool failed;
    char message[512];
} model_result;

/// Explores a program until done, or an error, or `limit` executions, and then runs so many random
/// schedules (20 times as many when the limit came first); when it was done, each of these must be
/// equivalent to an explored one. A counterexample is printed when `verbose`.
model_result model_explore(const model_program *program, uint64_t limit, uint64_t samples,
                           bool verbose);

/// The execution has gone wrong: remembers the message, ends it. Does not return in a simulated
/// thread.
void model_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define model_assert(condition) \
    ((condition) ? (void)0 : model_fail("%s:%d: %s", __FILE__, __LINE__, #condition))
/// In finish: what has come out, below 64.
void model_outcome(unsigned outcome);
/// Called in setup: the threads are registered before they begin, and leave no earlier than the
/// program; one event less of each in every schedule.
void model_register_threads(void);
/// Called in setup, for a thread that is not registered: nor will it be.
void model_unlist_thread(int thread);
/// The kernel refuses the process-wide barrier.
extern bool nd__model_barrier_refused;
/// The kernel's futex, with its answers. Sleeps while *word == value, for ever or `bounded`. One
/// that is over because its time is has lasted so long that what others had stored before is seen,
/// as behind a process-wide barrier.
int model_futex_wait(_Atomic uint32_t *word, uint32_t value, bool bounded);
/// Wakes so many of those who sleep on the word, who slept first.
int model_futex_wake(_Atomic uint32_t *word, uint32_t most);
/// Names an object for counterexamples.
void model_name(const void *object, const char *name);
#endif
