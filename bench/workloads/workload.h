// A workload: a program such as users write, cut into what the harness times.
//
// A *workload* opens (model, data, optimizer), does *steps* of about equal work, finishes (what it
// has learnt, what it made) and closes. A step gives back a value, such as its loss, so that runs
// can be compared: with the collector off and on the values are the same to the bit, and PyTorch's
// agree with them.
//
// Invariant: a workload does nothing about memory that its program would not do. It makes objects in
// the current manager; the harness calls `open`, `finish` and `close` in that of the run, and each
// step in one of its own below it, or not, as the strategy says. What open made, close releases,
// also of a workload that is half open: then every object of the run is gone, or is garbage.
#ifndef ND_BENCH_WORKLOAD_H
#define ND_BENCH_WORKLOAD_H
#include <nd/nd.h>

/// By what part batches, pictures and texts are smaller than those that are timed: of a build for
/// tests, where a device is emulated.
#ifndef WORKLOAD_SHRINK
#define WORKLOAD_SHRINK 1
#endif

/// When what counts do not free is freed. The last three have the collector on.
typedef enum workload_strategy {
    WORKLOAD_LET_BE,   ///< collector off: never
    WORKLOAD_PERIODIC, ///< the program calls nd_gc_collect() every few steps
    WORKLOAD_SCOPE,    ///< the program calls it for each step's manager, when the step is done
    WORKLOAD_DISPOSE,  ///< the program disposes of each step's manager: what it made dies by force
    WORKLOAD_BYTES,    ///< a trigger: so many bytes allocated since the last collection
    WORKLOAD_BOUNDARY, ///< each step has a manager, at whose close the collector runs
    WORKLOAD_ADAPTIVE, ///< the default triggers, and no boundaries
    WORKLOAD_PRESSURE, ///< only when a quota would refuse
    WORKLOAD_STRATEGY_COUNT,
} workload_strategy;

/// What a workload is told.
typedef struct workload_options {
    nd_device device;
    workload_strategy strategy; ///< for the few that manage memory themselves
    uint64_t seed;
    int64_t steps;      ///< how many are planned, for schedules; a run may end earlier
    const char *data;   ///< folder with all 70,000 digits; NULL: the 10,000 of the repository
    const char *output; ///< folder for what a workload writes, such as pictures; NULL: nothing
} workload_options;

/// Room for text; and of so many first steps values are compared with PyTorch's one by one.
enum { WORKLOAD_TEXT = 1024, WORKLOAD_FIRST_STEPS = 10 };

enum { WORKLOAD_FIGURES = 4 };

/// A number of its own that a workload measures.
typedef struct workload_figure {
    char name[16]; ///< such as "p50_us"; "": there is none
    double value;
} workload_figure;

/// What came out.
typedef struct workload_outcome {
    double score;             ///< such as the share of right answers; NaN: there is none
    char text[WORKLOAD_TEXT]; ///< what it made, for people; may have several lines
    workload_figure figures[WORKLOAD_FIGURES];
} workload_outcome;

typedef struct workload {
    const char *name; ///< as --only takes it; "rnn" there stands for "rnn_lstm" and "rnn_gru" too
    const char *summary; ///< one line
    int64_t steps;       ///< by default
    int64_t data_steps;  ///< by default with all 70,000 digits; 0: the same
    int64_t lasts; ///< from so many steps on resident bytes are promised to be flat; 0: nothing is
    const char *value;  ///< what a step's value is, such as "loss"
    const char *score;  ///< what the outcome's score is, such as "accuracy"; NULL: there is none
    double least_score; ///< after all steps on the repository's digits; 0: nothing is promised
    double data_score;  ///< after all steps on 70,000 digits; 0: nothing is promised
    double
        most_value; ///< of the mean value of the last turn's steps, after all; 0: nothing is promised
    double tolerance;       ///< by what part PyTorch's score may differ, or where there is none its
                            ///< value; 0: not compared
    double first_tolerance; ///< the same of each of the first steps' values, by the largest of
                            ///< them, where hand_over says what PyTorch's side begins with
    int64_t first_steps;    ///< of how many of them, where rounding grows fast; 0: of all
    uint64_t step_bytes;    ///< that a step needs, where that is more than 64 MiB; else 0
    bool refuses;           ///< some of what it asks for overruns quotas of its own, as it must
    bool makes_cycles;      ///< with the collector off, every step leaves some behind
    bool keeps_history;     ///< every step leaves something that is held: no collector may free it
    bool has_peer;          ///< bench/peers/pytorch_workloads.py does the same work
    /// Makes what the steps need and writes it to `ret_state`, also on failure: close is called.
    nd_status (*open)(const workload_options *options, void **ret_state);
    /// Step number `step`, from 0; writes its value.
    nd_status (*step)(void *state, int64_t step, double *ret_value);
    /// Writes what PyTorch's side begins with to a folder (hand_over.h): first parameters, and what
    /// the first WORKLOAD_FIRST_STEPS steps draw. Called in a process of its own, before any step,
    /// none of which follows. NULL: PyTorch draws its own.
    nd_status (*hand_over)(void *state, const char *folder);
    /// Looks at what was learnt. `ret_outcome` begins with no score, text or figures. NULL: nothing to do.
    nd_status (*finish)(void *state, workload_outcome *ret_outcome);
    /// Releases everything. `state` may be NULL or half open.
    void (*close)(void *state);
} workload;

extern const workload workload_cnn;
extern const workload workload_wgan_gp;
extern const workload workload_rnn_lstm;
extern const workload workload_rnn_gru;
extern const workload workload_rnn_attached;
extern const workload workload_transformer;
extern const workload workload_large_images;
extern const workload workload_minilm;
extern const workload workload_serve;
extern const workload workload_pipeline;
extern const workload workload_objects;
extern const workload workload_long;

/// Why a step failed, where no error of its thread says so, as when another one met it; "": an error does.
extern char workload_problem[WORKLOAD_TEXT];

/// All of them, NULL at the end.
extern const workload *const workloads[];

/// Whether --only NAME means this one.
bool workload_matches(const workload *workload, const char *name);
/// The strategy of a name; WORKLOAD_STRATEGY_COUNT when there is none.
workload_strategy workload_strategy_of(const char *name);
/// Its name, as --strategy takes it.
const char *workload_strategy_name(workload_strategy strategy);
/// One line on what it does.
const char *workload_strategy_summary(workload_strategy strategy);

#endif
