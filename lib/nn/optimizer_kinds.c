// The kinds of optimizers: what options each has, and its constructor.
//
// Invariant: every option of a kind is checked by the same table, whether it comes with a
// constructor or with nd_optimizer_set_option().
#include "lib/nn/optimizer_kinds.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"

#include <math.h>

#define HAS(option) (1u << ND_OPTIMIZER_##option)
#define ADAM_OPTIONS (HAS(RATE) | HAS(WEIGHT_DECAY) | HAS(BETA1) | HAS(BETA2) | HAS(EPS))

const nd_optimizer_info nd__optimizer_infos[ND__OPTIMIZER_KINDS] = {
    [ND__SGD] = {"sgd",
                 HAS(RATE) | HAS(WEIGHT_DECAY) | HAS(MOMENTUM) | HAS(NESTEROV),
                 {"master", "momentum", NULL, NULL}},
    [ND__ADAM] = {"adam", ADAM_OPTIONS, {"master", "first_moment", "second_moment", NULL}},
    [ND__ADAMW] = {"adamw", ADAM_OPTIONS, {"master", "first_moment", "second_moment", NULL}},
    [ND__RMSPROP] = {"rmsprop",
                     HAS(RATE) | HAS(WEIGHT_DECAY) | HAS(MOMENTUM) | HAS(ALPHA) | HAS(EPS) |
                         HAS(CENTERED),
                     {"master", "momentum", "mean_square", "mean_gradient"}},
    [ND__ADAGRAD] = {"adagrad",
                     HAS(RATE) | HAS(WEIGHT_DECAY) | HAS(EPS) | HAS(RATE_DECAY) | HAS(INITIAL),
                     {"master", NULL, "sum_of_squares", NULL}},
    [ND__LION] = {"lion",
                  HAS(RATE) | HAS(WEIGHT_DECAY) | HAS(BETA1) | HAS(BETA2),
                  {"master", "momentum", NULL, NULL}},
};

// What an option is called, and below what it must stay; all are at least 0.
static const struct {
    const char *name;
    double limit;
} rules[ND_OPTIMIZER_OPTION_COUNT] = {
    [ND_OPTIMIZER_RATE] = {"rate", INFINITY},
    [ND_OPTIMIZER_WEIGHT_DECAY] = {"weight_decay", INFINITY},
    [ND_OPTIMIZER_MOMENTUM] = {"momentum", INFINITY},
    [ND_OPTIMIZER_NESTEROV] = {"nesterov", 2},
    [ND_OPTIMIZER_BETA1] = {"beta1", 1},
    [ND_OPTIMIZER_BETA2] = {"beta2", 1},
    [ND_OPTIMIZER_EPS] = {"eps", INFINITY},
    [ND_OPTIMIZER_ALPHA] = {"alpha", 1},
    [ND_OPTIMIZER_CENTERED] = {"centered", 2},
    [ND_OPTIMIZER_RATE_DECAY] = {"rate_decay", INFINITY},
    [ND_OPTIMIZER_INITIAL] = {"initial", INFINITY},
};

const char *nd__optimizer_kinds_option(nd_optimizer_option option) {
    return rules[option].name;
}

static bool is_switch(nd_optimizer_option option) {
    return option == ND_OPTIMIZER_NESTEROV || option == ND_OPTIMIZER_CENTERED;
}

bool nd__optimizer_kinds_allow(nd_optimizer_option option, double value) {
    return is_switch(option) ? value == 0 || value == 1 : value >= 0 && value < rules[option].limit;
}

nd_status nd__optimizer_kinds_check(const char *operation, nd_optimizer_option option,
                                    double value) {
    if (nd__optimizer_kinds_allow(option, value))
        return ND_OK;
    const double limit = rules[option].limit;
    if (is_switch(option))
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is %g; it must be 0 or 1", operation,
                         rules[option].name, value);
    if (isinf(limit))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: %s is %g; it must be finite and at least 0", operation,
                         rules[option].name, value);
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is %g; it must be at least 0 and below %g",
                     operation, rules[option].name, value, limit);
}

nd_status nd__optimizer_kinds_check_group(const char *operation, const nd_optimizer_group *group) {
    if (group->option[ND_OPTIMIZER_NESTEROV] != 0 && group->option[ND_OPTIMIZER_MOMENTUM] == 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: nesterov needs a momentum, which is 0",
                         operation);
    return ND_OK;
}

nd_optimizer *nd_sgd(const nd_module *module, const nd_sgd_options *options) {
    nd_sgd_options chosen = ND_SGD_OPTIONS_INIT;
    if (nd__versioned_read("sgd", "ND_SGD_OPTIONS_INIT", options, &chosen, sizeof chosen) != ND_OK)
        return NULL;
    const nd_optimizer_group group = {{[ND_OPTIMIZER_RATE] = chosen.rate,
                                       [ND_OPTIMIZER_MOMENTUM] = chosen.momentum,
                                       [ND_OPTIMIZER_WEIGHT_DECAY] = chosen.weight_decay,
                                       [ND_OPTIMIZER_NESTEROV] = chosen.nesterov}};
    if (nd__optimizer_kinds_check_group("sgd", &group) != ND_OK)
        return NULL;
    return nd__optimizer_new(ND__SGD, module, &group);
}

static nd_optimizer *new_adam(nd_optimizer_kind kind, const nd_module *module,
                              const nd_adam_options *chosen) {
    const nd_optimizer_group group = {{[ND_OPTIMIZER_RATE] = chosen->rate,
                                       [ND_OPTIMIZER_BETA1] = chosen->beta1,
                                       [ND_OPTIMIZER_BETA2] = chosen->beta2,
                                       [ND_OPTIMIZER_EPS] = chosen->eps,
                                       [ND_OPTIMIZER_WEIGHT_DECAY] = chosen->weight_decay}};
    return nd__optimizer_new(kind, module, &group);
}

nd_optimizer *nd_adam(const nd_module *module, const nd_adam_options *options) {
    nd_adam_options chosen = ND_ADAM_OPTIONS_INIT;
    if (nd__versioned_read("adam", "ND_ADAM_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
        ND_OK)
        return NULL;
    return new_adam(ND__ADAM, module, &chosen);
}

nd_optimizer *nd_adamw(const nd_module *module, const nd_adam_options *options) {
    nd_adam_options chosen = ND_ADAMW_OPTIONS_INIT;
    if (nd__versioned_read("adamw", "ND_ADAMW_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
        ND_OK)
        return NULL;
    return new_adam(ND__ADAMW, module, &chosen);
}

nd_optimizer *nd_rmsprop(const nd_module *module, const nd_rmsprop_options *options) {
    nd_rmsprop_options chosen = ND_RMSPROP_OPTIONS_INIT;
    if (nd__versioned_read("rmsprop", "ND_RMSPROP_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
        ND_OK)
        return NULL;
    const nd_optimizer_group group = {{[ND_OPTIMIZER_RATE] = chosen.rate,
                                       [ND_OPTIMIZER_ALPHA] = chosen.alpha,
                                       [ND_OPTIMIZER_EPS] = chosen.eps,
                                       [ND_OPTIMIZER_MOMENTUM] = chosen.momentum,
                                       [ND_OPTIMIZER_WEIGHT_DECAY] = chosen.weight_decay,
                                       [ND_OPTIMIZER_CENTERED] = chosen.centered}};
    return nd__optimizer_new(ND__RMSPROP, module, &group);
}

nd_optimizer *nd_adagrad(const nd_module *module, const nd_adagrad_options *options) {
    nd_adagrad_options chosen = ND_ADAGRAD_OPTIONS_INIT;
    if (nd__versioned_read("adagrad", "ND_ADAGRAD_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
        ND_OK)
        return NULL;
    const nd_optimizer_group group = {{[ND_OPTIMIZER_RATE] = chosen.rate,
                                       [ND_OPTIMIZER_RATE_DECAY] = chosen.rate_decay,
                                       [ND_OPTIMIZER_WEIGHT_DECAY] = chosen.weight_decay,
                                       [ND_OPTIMIZER_INITIAL] = chosen.initial,
                                       [ND_OPTIMIZER_EPS] = chosen.eps}};
    return nd__optimizer_new(ND__ADAGRAD, module, &group);
}

nd_optimizer *nd_lion(const nd_module *module, const nd_lion_options *options) {
    nd_lion_options chosen = ND_LION_OPTIONS_INIT;
    if (nd__versioned_read("lion", "ND_LION_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
        ND_OK)
        return NULL;
    const nd_optimizer_group group = {{[ND_OPTIMIZER_RATE] = chosen.rate,
                                       [ND_OPTIMIZER_BETA1] = chosen.beta1,
                                       [ND_OPTIMIZER_BETA2] = chosen.beta2,
                                       [ND_OPTIMIZER_WEIGHT_DECAY] = chosen.weight_decay}};
    return nd__optimizer_new(ND__LION, module, &group);
}
