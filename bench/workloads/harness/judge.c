// Judges what a contest shows. A claim that it gives no ground to judge (too few turns, a side that
// did not run) is not judged, and says why.
#include "bench/support/numbers.h"
#include "bench/workloads/harness/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void judge_side(const contest *contest, const side *side, claim_list *list);
static void judge_memory(const contest *contest, const side *side, claim_list *list);
static void judge_resident(const contest *contest, const side *side, claim_list *list);
static void judge_left(const contest *contest, const side *side, claim_list *list);
static void judge_same(const contest *contest, claim_list *list);
static void judge_score(const contest *contest, const workload_settings *settings,
                        claim_list *list);
static void judge_value(const contest *contest, claim_list *list);
static void judge_first(const contest *contest, claim_list *list);
static void judge_rival(const contest *contest, claim_list *list);
static const side *find_own(const contest *contest);
static bool is_whole(const contest *contest, const side *side);
static bool grows(const side *side);
static bool flat(const side *side);

void workload_report_judge(const contest *contest, const workload_settings *settings,
                           claim_list *list) {
    for (size_t i = 0; i < contest->side_count; i++)
        if (!contest->sides[i].is_rival)
            judge_side(contest, &contest->sides[i], list);
    judge_same(contest, list);
    judge_score(contest, settings, list);
    judge_value(contest, list);
    judge_first(contest, list);
    judge_rival(contest, list);
}

static void judge_side(const contest *contest, const side *side, claim_list *list) {
    judge_memory(contest, side, list);
    judge_resident(contest, side, list);
    judge_left(contest, side, list);
}

static void judge_memory(const contest *contest, const side *side, claim_list *list) {
    if (contest->workload->keeps_history && side->strategy == WORKLOAD_DISPOSE)
        return; // what is held is closed by force: a program that keeps something must not do that
    const char *name = contest->workload->name;
    char growth[NUMBER_TEXT], bytes[NUMBER_TEXT];
    bool leaks = contest->workload->keeps_history ||
                 (contest->workload->makes_cycles && side->strategy == WORKLOAD_LET_BE);
    bool enough = side->turn_count >= CONTEST_LEAST_ROUNDS;
    if (leaks) {
        double by = side_growth(side);
        claims_add(list,
                   !enough       ? NOT_JUDGED
                   : grows(side) ? HOLDS
                                 : FAILS,
                   "%s, %s: live objects and bytes grow in every turn, by %s bytes a step", name,
                   side->name, with_commas(growth, by > 0 ? (uint64_t)by : 0));
    } else if (run_has_boundaries(side->strategy)) {
        claims_add(list,
                   !enough      ? NOT_JUDGED
                   : flat(side) ? HOLDS
                                : FAILS,
                   "%s, %s: flat to the byte from the second turn: %s bytes", name, side->name,
                   with_commas(
                       bytes, side->turn_count ? side->turns[side->turn_count - 1].live_bytes : 0));
    }
    if (!contest->workload->keeps_history || !run_has_boundaries(side->strategy))
        return;
    bool told = strstr(side->figures.escaped_sites[0], ".c:") != NULL;
    claims_add(list, told && side->figures.collected_objects == 0 ? HOLDS : FAILS,
               "%s, %s: nothing of it is garbage, and a step's manager names the line: %s", name,
               side->name, told ? side->figures.escaped_sites[0] : "none");
}

bool workload_report_resident(const side *side, double *ret_tenth, double *ret_end) {
    enum { TENTHS = 10 };
    const size_t count = side->turn_count;
    if (count < TENTHS)
        return false;
    const run_turn *end = &side->turns[count - 1], *tenth = side->turns;
    while (tenth->steps * TENTHS < end->steps)
        tenth++;
    *ret_tenth = (double)tenth->resident_bytes;
    *ret_end = (double)end->resident_bytes;
    return true;
}

/// Of a run that has lasted: what the process has in memory after a tenth of it is what it needs.
static void judge_resident(const contest *contest, const side *side, claim_list *list) {
    static const double most = 0.02;
    const workload *workload = contest->workload;
    const int64_t steps = side->turn_count ? side->turns[side->turn_count - 1].steps : 0;
    char least[NUMBER_TEXT], before[NUMBER_TEXT], after[NUMBER_TEXT], done[NUMBER_TEXT];
    double tenth, end;
    if (side->strategy != WORKLOAD_BOUNDARY || workload->lasts == 0)
        return;
    if (steps < workload->lasts || !workload_report_resident(side, &tenth, &end)) {
        claims_add(list, NOT_JUDGED, "%s, %s: resident bytes are flat (needs %s steps)",
                   workload->name, side->name, with_commas(least, (uint64_t)workload->lasts));
        return;
    }
    claims_add(list, end / tenth - 1 <= most ? HOLDS : FAILS,
               "%s, %s: resident bytes after a tenth of the %s steps and at the end: %s, %s, "
               "%+.2f %% (at most %.0f %%)",
               workload->name, side->name, with_commas(done, (uint64_t)steps),
               in_units(before, (uint64_t)tenth), in_units(after, (uint64_t)end),
               100 * (end / tenth - 1), 100 * most);
}

static void judge_left(const contest *contest, const side *side, claim_list *list) {
    const run_figures *figures = &side->figures;
    char objects[NUMBER_TEXT];
    with_commas(objects, figures->left_objects);
    bool none = figures->remaining_objects == 0 && figures->remaining_bytes == 0;
    bool at_once = run_has_boundaries(side->strategy) && side->strategy != WORKLOAD_LET_BE;
    if (at_once || !contest->workload->makes_cycles)
        none = none && figures->left_objects == 0 && figures->left_bytes == 0;
    bool freed = figures->freed_objects == figures->left_objects &&
                 figures->freed_bytes == figures->left_bytes;
    claims_add(list, none && freed ? HOLDS : FAILS,
               "%s, %s: %s objects left after the run%s, %" PRIu64 " at the end",
               contest->workload->name, side->name, objects,
               figures->left_objects ? ", freed by one explicit collection" : "",
               figures->remaining_objects);
}

/// The collector changes what is freed, never what is computed.
static void judge_same(const contest *contest, claim_list *list) {
    const side *first = &contest->sides[0];
    bool same = true;
    int64_t steps = 0;
    size_t compared = 0;
    for (size_t i = 1; i < contest->side_count; i++) {
        const side *side = &contest->sides[i];
        for (size_t turn = 0; turn < side->turn_count && turn < first->turn_count; turn++) {
            if (side->is_rival || side->turns[turn].steps != first->turns[turn].steps)
                continue;
            same = same && side->turns[turn].digest == first->turns[turn].digest;
            steps = side->turns[turn].steps > steps ? side->turns[turn].steps : steps;
            compared++;
        }
    }
    if (compared)
        claims_add(list, same ? HOLDS : FAILS,
                   "%s: every step's %s is the same to the bit on all sides, for %" PRId64 " steps",
                   contest->workload->name, contest->workload->value, steps);
}

/// Whether a side has done all steps, and no fewer than what is promised is for.
static bool is_whole(const contest *contest, const side *side) {
    return side->figures.steps == contest->planned_steps &&
           contest->planned_steps >= contest->workload->steps;
}

static void judge_value(const contest *contest, claim_list *list) {
    const workload *workload = contest->workload;
    const side *own = find_own(contest);
    if (workload->most_value <= 0 || !own || own->turn_count == 0)
        return;
    double value = own->turns[own->turn_count - 1].value;
    bool whole = is_whole(contest, own);
    claims_add(list,
               !whole                          ? NOT_JUDGED
               : value <= workload->most_value ? HOLDS
                                               : FAILS,
               "%s: %.3f %s in the last turn (at most %.2f%s)", workload->name, value,
               workload->value, workload->most_value, whole ? "" : ", after the default steps");
}

static void judge_score(const contest *contest, const workload_settings *settings,
                        claim_list *list) {
    const workload *workload = contest->workload;
    double least = settings->data ? workload->data_score : workload->least_score;
    const side *own = find_own(contest);
    if (least <= 0 || !own)
        return;
    bool whole = is_whole(contest, own);
    claims_add(list,
               !whole                                ? NOT_JUDGED
               : own->figures.outcome.score >= least ? HOLDS
                                                     : FAILS,
               "%s: %s %.4f (at least %.2f%s)", workload->name, workload->score,
               own->figures.outcome.score, least, whole ? "" : ", after the default steps");
}

/// From the same parameters, with the same data: each of the first steps. What differs there is an
/// error of one side; what differs later may be rounding that has grown.
static void judge_first(const contest *contest, claim_list *list) {
    const side *rival = contest_find_rival(contest), *own = find_own(contest);
    const workload *workload = contest->workload;
    if (contest->rival_failed)
        claims_add(list, FAILS, "%s: PyTorch's side begins", workload->name);
    if (!rival || !own || !workload->hand_over)
        return;
    int64_t count = workload->first_steps ? workload->first_steps : WORKLOAD_FIRST_STEPS;
    const side *sides[] = {rival, own};
    for (int i = 0; i < 2; i++) {
        int64_t steps = sides[i]->turn_count ? sides[i]->turns[sides[i]->turn_count - 1].steps : 0;
        count = steps < count ? steps : count;
    }
    double largest = 0, differs = 0;
    for (int64_t i = 0; i < count; i++) {
        double ours = own->figures.first_values[i], theirs = rival->figures.first_values[i];
        largest = fmax(largest, fabs(theirs));
        if (!(fabs(ours - theirs) <= differs)) // NaN, too, which stays
            differs = isnan(differs) ? differs : fabs(ours - theirs);
    }
    claims_add(list,
               count == 0                                       ? NOT_JUDGED
               : differs <= workload->first_tolerance * largest ? HOLDS
                                                                : FAILS,
               "%s: begun with the same parameters and data, the first %" PRId64
               " steps' %s differs from PyTorch's by at most %.1e of the largest (at most %.0e)",
               workload->name, count, workload->value, differs / largest,
               workload->first_tolerance);
}

static void judge_rival(const contest *contest, claim_list *list) {
    const side *rival = contest_find_rival(contest), *own = find_own(contest);
    if (!rival || !own || contest->workload->tolerance <= 0)
        return;
    const char *what = contest->workload->score;
    double ours = what ? own->figures.outcome.score : side_value(own, rival);
    double theirs = what ? rival->figures.outcome.score : side_value(rival, own);
    bool whole = rival->turn_count == own->turn_count &&
                 own->figures.steps == contest->planned_steps &&
                 contest->planned_steps >= contest->workload->steps;
    bool near = fabs(ours - theirs) <= contest->workload->tolerance * fabs(theirs);
    claims_add(list,
               !whole ? NOT_JUDGED
               : near ? HOLDS
                      : FAILS,
               "%s: %s %.4f, in PyTorch %.4f (within %.2g %%%s)", contest->workload->name,
               what ? what : contest->workload->value, ours, theirs,
               contest->workload->tolerance * 100, whole ? "" : ", after the default steps");
}

/// The side that PyTorch's is compared with: on; where that does not run, the first.
static const side *find_own(const contest *contest) {
    const side *on = contest_find_on(contest);
    const side *first = contest->side_count ? &contest->sides[0] : NULL;
    return on || !first || first->is_rival ? on : first;
}

static bool grows(const side *side) {
    for (size_t i = 1; i < side->turn_count; i++)
        if (side->turns[i].live_bytes <= side->turns[i - 1].live_bytes ||
            side->turns[i].live_objects <= side->turns[i - 1].live_objects)
            return false;
    return true;
}

static bool flat(const side *side) {
    for (size_t i = 2; i < side->turn_count; i++)
        if (side->turns[i].live_bytes != side->turns[1].live_bytes ||
            side->turns[i].live_objects != side->turns[1].live_objects)
            return false;
    return true;
}
