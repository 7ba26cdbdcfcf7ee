// Several sides do one workload: ndarc with the collector off, on, or by other strategies, and
// PyTorch. They take turns of some steps each, so that a machine that slows down slows all.
//
// Invariant: in each round every side that has not ended has one turn, of equally many steps; who
// comes first alternates. The first turn is a short one, which warms up. A side ends early only
// when it fails, has reached the bound of bytes, or is a rival that takes the time of all; when the
// time is up all end.
#ifndef ND_BENCH_WORKLOADS_CONTEST_H
#define ND_BENCH_WORKLOADS_CONTEST_H
#include "bench/workloads/harness/rival.h"
#include "bench/workloads/harness/settings.h"

/// Rounds at most, and how many are needed to see whether something grows.
enum { CONTEST_ROUNDS = 52, CONTEST_LEAST_ROUNDS = 4, CONTEST_SIDES = WORKLOAD_STRATEGY_COUNT + 1 };

typedef struct side {
    char name[16]; ///< "off", "on", a strategy or "PyTorch"
    bool is_rival;
    workload_strategy strategy;
    child child;
    rival rival;
    bool running;
    run_turn turns[CONTEST_ROUNDS];
    size_t turn_count;
    run_figures figures; ///< when it has ended
} side;

typedef struct contest {
    const workload *workload;
    int64_t planned_steps;
    side sides[CONTEST_SIDES];
    size_t side_count;
    bool out_of_time;
    bool rival_dropped;     ///< PyTorch was so slow that there was no time for it
    bool rival_failed;      ///< PyTorch's script ended without saying why
    char peer_skipped[160]; ///< why PyTorch is not among them; empty: it is, or was not asked for
} contest;

/// Runs it until all steps are done or bench_seconds() says `deadline`. False, with a printed
/// message, when a side of ndarc failed.
bool contest_run(contest *contest, const workload *workload, const workload_settings *settings,
                 double deadline);
/// The side of that strategy; NULL: there is none.
const side *contest_find(const contest *contest, workload_strategy strategy);
/// The side that is on; NULL: there is none.
const side *contest_find_on(const contest *contest);
/// PyTorch's; NULL: it did not run.
const side *contest_find_rival(const contest *contest);
/// Median of the ratios of two sides' seconds, turn by turn, but for the first; NaN without a
/// second one.
double contest_ratio(const side *side, const struct side *base);
/// Steps in a second, but for the first turn; NaN without a second one.
double side_rate(const side *side);
/// Mean value of the last quarter of the turns that `other` has, too.
double side_value(const side *side, const struct side *other);
/// Bytes by which it grows in a step, from the first turn to the last.
double side_growth(const side *side);

#endif
