// The main job's vocabulary: a *scenario* is a way to train, a *run* is a scenario trained once
// with the collector off or on, a *step* is one batch.
//
// Invariant: everything a run makes is below the run's manager, and every step has a manager of its
// own below that one, closed when the step is done: that close is the boundary at which the
// collector runs. What a run leaves behind is therefore exactly what escapes from its manager.
#ifndef ND_BENCH_TRAINING_H
#define ND_BENCH_TRAINING_H
#include "bench/support/digits.h"

#include <nd/nd.h>

/// What the user asked for.
typedef struct settings {
    const char *scenario; ///< name, "all", or that of a workload
    bool off;
    bool on;
    int epochs;
    double seconds;  ///< about how long the job may take; what does not fit is measured less
    int64_t batch;   ///< 0: the scenario's own
    int64_t samples; ///< at most so many digits to train on; 0: all
    nd_device device;
    const char *data; ///< folder with all 70,000 digits, or NULL: the 10,000 of the repository
    const char *json;
    const char *chart;
} settings;

typedef struct training training;

typedef struct scenario {
    const char *name;
    const char *summary;
    int64_t batch;
    double rate; ///< learning rate of the first epoch; it falls linearly to zero
    bool makes_cycles;
    bool keeps_history;
    /// What the scenario needs beside the model; NULL: nothing.
    nd_status (*begin)(training *run);
    nd_status (*step)(training *run, const nd_tensor *images, const nd_tensor *labels);
} scenario;

enum { SCENARIO_COUNT = 4, PLAIN = 0, SECOND_ORDER = 1 };
extern const scenario scenarios[SCENARIO_COUNT];

typedef struct epoch_result {
    double seconds; ///< training alone, without the test
    double test_accuracy;
    uint64_t live_objects;
    uint64_t live_bytes;
    uint64_t cycles;
    uint64_t collected_objects;
    uint64_t collected_bytes;
    uint64_t escaped_objects; ///< from the steps' managers
    uint64_t escaped_bytes;
    uint64_t resident_bytes; ///< of the process
    double gate_closed_us_max;
} epoch_result;

typedef struct run_result {
    const scenario *scenario;
    bool collector_on;
    int64_t batch;
    int64_t steps; ///< in an epoch
    int epoch_count;
    epoch_result *epochs;  ///< owned
    uint64_t left_objects; ///< alive after everything was released
    uint64_t left_bytes;
    uint64_t freed_objects; ///< of these, what one explicit collection freed afterwards
    uint64_t freed_bytes;
    nd_close_report last_escape; ///< of the last step that something escaped from
} run_result;

/// A run in progress.
struct training {
    const scenario *scenario;
    const settings *settings;
    run_result *result;
    nd_manager *manager;
    nd_module *model;
    nd_optimizer *optimizer;
    nd_dataset *train;
    nd_dataset *test;
    nd_list *history;         ///< `escape`: every loss so far
    double saliency;          ///< `callbacks`: what the hooks add up
    double rate;              ///< of this epoch
    int64_t steps_run;        ///< of this epoch
    uint64_t escaped_objects; ///< of this epoch
    uint64_t escaped_bytes;
};

/// Makes manager, model and data sets of a run. `result` is filled as the run goes on. Also after a
/// failure training_end must be called.
nd_status training_begin(training *run, const scenario *scenario, bool collector_on,
                         const settings *settings, const digits *digits, run_result *result);
/// A few steps of a run of its own, so that the first epoch that counts does not pay for code made
/// at run time, threads started and memory first touched.
nd_status training_warm_up(const scenario *scenario, const settings *settings,
                           const digits *digits);
/// Starts an epoch of the training data with that epoch's learning rate.
nd_status training_start_epoch(training *run, int epoch);
/// At most `steps` steps of the epoch that was started; the last ones may be fewer.
nd_status training_steps(training *run, int64_t steps);
/// Trains one epoch and fills its result.
nd_status training_epoch(training *run, int epoch);
/// Releases everything, counts what is left of it and frees that with one explicit collection.
nd_status training_end(training *run);

/// What the collector costs where it finds nothing to do: the same run of `plain`, collector
/// toggled every few steps; on over off.
typedef struct price_result {
    double ratio;  ///< median of the pairs; NaN: not measured
    size_t pairs;  ///< fewer than PRICE_PAIRS when the time was up
    int64_t steps; ///< in one half of a pair
} price_result;
/// Until bench_seconds() says `deadline`, but some pairs in any case.
nd_status price_measure(price_result *result, const settings *settings, const digits *digits,
                        double deadline);
/// Pairs when there is time, and how many are enough to judge by.
enum { PRICE_PAIRS = 4000, PRICE_PAIRS_ENOUGH = 1000 };

#endif
