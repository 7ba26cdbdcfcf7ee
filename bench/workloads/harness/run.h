// One run of a workload in this process: its managers, its strategy, and what it costs.
//
// Invariant: everything a run makes is below the run's manager, but for what several runs could
// share, such as the digits. What is left when the workload is closed has therefore escaped from
// that manager.
#ifndef ND_BENCH_WORKLOADS_RUN_H
#define ND_BENCH_WORKLOADS_RUN_H
#include "bench/workloads/workload.h"

#include <stdatomic.h>

enum { RUN_MESSAGE = 2048, RUN_SITES = 4, RUN_SITE = 96 };

/// In the message of a failure that no call of the library's was.
#define RUN_NO_MEMORY "no memory of its own"

/// How a run is limited and what it is told.
typedef struct run_settings {
    workload_options options;
    int threads;         ///< 0: the library's default
    uint64_t most_bytes; ///< a run that has so many live bytes ends early; 0: no bound
    uint64_t room_bytes; ///< quota of WORKLOAD_PRESSURE above what the open workload has; 0: none,
                         ///< then only memory that ends makes pressure
    const char *hand_over; ///< folder for what PyTorch's side begins with; NULL: nothing is written
    uint64_t quota_bytes;  ///< quota of the run, whatever its strategy; 0: none
    uint64_t device_bytes; ///< limit of the device's memory; 0: all that there is
} run_settings;

/// Some steps, and what was alive after them.
typedef struct run_turn {
    int64_t steps; ///< of the whole run, so far
    double seconds;
    double value; ///< mean over these steps
    uint64_t live_objects;
    uint64_t live_bytes;
    uint64_t resident_bytes;
    uint64_t digest; ///< of all values so far
} run_turn;

/// What is known when a run is over.
typedef struct run_figures {
    nd_status status; ///< the first failure
    bool no_device;   ///< which is that there is no such device
    char message[RUN_MESSAGE];
    int64_t steps;
    double first_values[WORKLOAD_FIRST_STEPS]; ///< of as many of them as were done
    bool bounded;                              ///< it ended early, at most_bytes
    bool finished;
    workload_outcome outcome;
    uint64_t peak_bytes;
    uint64_t peak_device_bytes; ///< of a CUDA device's memory; 0 on the CPU
    uint64_t device_bytes;      ///< of the device that data took in the end
    uint64_t peak_resident_bytes;
    uint64_t peak_address_bytes;
    uint64_t collections;
    uint64_t cycles;
    uint64_t collected_objects;
    uint64_t collected_bytes;
    uint64_t postponed_objects;  ///< that a collection could not decide on, beside other threads
    double pause_seconds;        ///< the longest time the collector's gate was closed
    double longest_step_seconds; ///< after the first turn; a collection on the way is part of it
    uint64_t escaped_objects;    ///< from the last step's manager that anything escaped from
    char escaped_sites[RUN_SITES][RUN_SITE];
    uint64_t left_objects; ///< alive after everything was released
    uint64_t left_bytes;
    uint64_t freed_objects; ///< of these, what one explicit collection freed
    uint64_t freed_bytes;
    uint64_t remaining_objects; ///< alive in the process at the end
    uint64_t remaining_bytes;
    nd_memory_stats memory; ///< the ladder
} run_figures;

typedef struct run {
    const workload *workload;
    run_settings settings;
    run_figures figures;
    nd_manager *manager;
    void *state;
    uint64_t digest;
    bool warm; ///< the first turn is over
} run;

/// Whether a strategy gives each step a manager of its own.
bool run_has_boundaries(workload_strategy strategy);
/// Opens the workload. Also after a failure run_end() must be called.
nd_status run_begin(run *run, const workload *workload, const run_settings *settings);
/// At most `steps` steps; fewer when one fails or the bound is reached. `progress` is counted up by
/// one for each; NULL: nobody wants to know.
nd_status run_steps(run *run, int64_t steps, atomic_llong *progress, run_turn *ret_turn);
/// Finishes (after a run without failure), closes, counts what is left and frees that with one
/// explicit collection. The figures are complete then.
nd_status run_end(run *run);
/// The most address space that this process has had; 0 where the system does not tell.
uint64_t run_address_bytes(void);

#endif
