// What is known of a kind of optimizer.
#ifndef ND_LIB_NN_OPTIMIZER_KINDS_H
#define ND_LIB_NN_OPTIMIZER_KINDS_H
#include "lib/nn/optimizer.h"

typedef struct nd_optimizer_info {
    const char *name;             ///< "adam"
    unsigned options;             ///< which it has: bits 1 << nd_optimizer_option
    const char *slots[ND__SLOTS]; ///< what its slots are called in reports and files; NULL: unused
} nd_optimizer_info;
extern const nd_optimizer_info nd__optimizer_infos[ND__OPTIMIZER_KINDS];

/// What an option is called: "rate".
const char *nd__optimizer_kinds_option(nd_optimizer_option option);

/// Whether an option may have a value.
bool nd__optimizer_kinds_allow(nd_optimizer_option option, double value);
/// Whether the options of a group go together.
nd_status nd__optimizer_kinds_check_group(const char *operation, const nd_optimizer_group *group);
/// Whether an option may have a value; an error that names it when not.
nd_status nd__optimizer_kinds_check(const char *operation, nd_optimizer_option option,
                                    double value);
#endif
