// The models that ranks train, and the steps that are timed.
#ifndef ND_BENCH_DATA_PARALLEL_TRAINING_H
#define ND_BENCH_DATA_PARALLEL_TRAINING_H
#include <nd/distributed.h>
#include <nd/nd.h>

#include <stdbool.h>

/// A model and its share of a batch. bench/peers/pytorch_ddp.py has the same ones.
typedef struct training_kind {
    const char *name; ///< in keys
    const char *work; ///< for people
    nd_module *(*model)(nd_key key);
    int64_t batch; ///< of each rank
    bool images;   ///< [batch, 1, 28, 28], else [batch, 784]
} training_kind;

enum { TRAININGS = 2, TRAINING_MLP = 0, TRAINING_CNN = 1 };
extern const training_kind training_kinds[TRAININGS];

/// How a step communicates.
typedef enum training_step {
    STEP_ALONE,   ///< not at all
    STEP_AFTER,   ///< when its backward pass is over: the same buckets, nothing to hide behind
    STEP_OVERLAP, ///< meanwhile, as nd_data_parallel_backward() does
    STEP_KINDS,
} training_step;

typedef struct training {
    nd_manager *manager;
    nd_module *model;
    nd_optimizer *optimizer;
    nd_tensor *x, *labels; ///< this rank's own
    nd_tensor *nothing;    ///< a loss that no parameter of the model has part in
    nd_data_parallel *parallel;
    nd_data_parallel *apart; ///< without memory in common, as between machines
} training;

/// False, with the thread's error set, on failure; training_end() is due in any case.
bool training_begin(training *train, const training_kind *kind, const nd_communicator *world);
void training_end(training *train);
/// One step: forward, cross-entropy, backward, SGD with momentum. `apart`: as between machines.
bool training_run(training *train, training_step how, bool apart);

#endif
