// Inside of schedules.
//
// Invariant: a schedule's factor is a function of its number of steps alone, but for a plateau,
// whose factor is part of its state. Children are edges and never reach their parent: they are
// there before it. Only a schedule that was started has an optimizer and base rates.
#ifndef ND_LIB_NN_SCHEDULE_H
#define ND_LIB_NN_SCHEDULE_H
#include "lib/nn/optimizer.h"

/// Most schedules inside each other.
#define ND__SCHEDULE_DEPTH_MAX 16

typedef enum nd_schedule_kind {
    ND__SCHEDULE_STEP,
    ND__SCHEDULE_MULTI_STEP,
    ND__SCHEDULE_EXPONENTIAL,
    ND__SCHEDULE_COSINE,
    ND__SCHEDULE_LINEAR,
    ND__SCHEDULE_ONE_CYCLE,
    ND__SCHEDULE_PLATEAU,
    ND__SCHEDULE_PRODUCT,
    ND__SCHEDULE_SEQUENCE
} nd_schedule_kind;

/// What changes as a schedule goes on.
typedef struct nd_schedule_state {
    double best;      ///< of a plateau: the best metric yet
    double factor;    ///< of a plateau: what it has come to
    int64_t bad;      ///< of a plateau: steps without a better metric
    int64_t cooldown; ///< of a plateau: steps to wait still
    int64_t steps;    ///< since it was started, of the one that was
} nd_schedule_state;

struct nd_schedule {
    nd_object header;
    nd_schedule_kind kind;
    int depth; ///< of schedules inside each other, this one included
    union {
        struct {
            double start, end, gamma; ///< factors
            int64_t steps;
        } simple;
        nd_one_cycle_options one_cycle;
        nd_plateau_options plateau;
    } is;
    nd_schedule_state now, kept;
    nd_optimizer *optimizer; ///< edge; NULL before it was started
    double *bases;           ///< rates of the groups when it was started
    size_t base_count;
    int64_t *milestones;
    size_t milestone_count;
    size_t count;
    nd_schedule *children[]; ///< edges
};

nd_status nd__schedule_check(const char *operation, const nd_schedule *schedule);
/// Whether an optimizer may have the rates that these become by what the schedule says now; an error
/// that names one when not.
nd_status nd__schedule_check_rates(const char *operation, const nd_schedule *schedule, size_t count,
                                   const double *bases);
/// Sets the optimizer's rates to that; they were checked.
void nd__schedule_apply(const nd_schedule *schedule);
/// Keeps what the schedule and those inside it have come to, for nd__schedule_take_back.
void nd__schedule_keep(nd_schedule *schedule);
void nd__schedule_take_back(nd_schedule *schedule);
#endif
