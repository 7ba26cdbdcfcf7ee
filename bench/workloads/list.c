// The list of workloads, and names.
#include "bench/workloads/workload.h"

#include <stdio.h>
#include <string.h>

const workload *const workloads[] = {
    &workload_cnn,
    &workload_wgan_gp,
    &workload_rnn_lstm,
    &workload_rnn_gru,
    &workload_rnn_attached,
    &workload_transformer,
    &workload_large_images,
    &workload_minilm,
    &workload_serve,
    &workload_pipeline,
    &workload_objects,
    &workload_long,
    NULL,
};

char workload_problem[WORKLOAD_TEXT];

static const struct {
    const char *name;
    const char *summary;
} strategies[WORKLOAD_STRATEGY_COUNT] = {
    [WORKLOAD_LET_BE] = {"let_be", "collector off: what counts do not free stays"},
    [WORKLOAD_PERIODIC] = {"periodic", "the program collects every 16 steps"},
    [WORKLOAD_SCOPE] = {"scope", "the program collects each step's manager at the step's end"},
    [WORKLOAD_DISPOSE] = {"dispose", "the program disposes of each step's manager"},
    [WORKLOAD_BYTES] = {"bytes", "collector on: every 64 MiB allocated"},
    [WORKLOAD_BOUNDARY] = {"boundary", "collector on: when each step's manager closes"},
    [WORKLOAD_ADAPTIVE] = {"adaptive", "collector on: the default triggers, no boundaries"},
    [WORKLOAD_PRESSURE] = {"pressure", "collector on: when a quota would refuse"},
};

bool workload_matches(const workload *workload, const char *name) {
    size_t length = strlen(name);
    return strncmp(workload->name, name, length) == 0 &&
           (workload->name[length] == '\0' || workload->name[length] == '_');
}

workload_strategy workload_strategy_of(const char *name) {
    workload_strategy strategy = 0;
    while (strategy < WORKLOAD_STRATEGY_COUNT && strcmp(strategies[strategy].name, name) != 0)
        strategy++;
    return strategy;
}

const char *workload_strategy_name(workload_strategy strategy) {
    return strategies[strategy].name;
}

const char *workload_strategy_summary(workload_strategy strategy) {
    return strategies[strategy].summary;
}
