// Starts the sides, gives them turns, lets them finish.
#include "bench/workloads/harness/contest.h"

#include "bench/support/measure.h"
#include "bench/support/paths.h"
#include "bench/support/progress.h"
#include "bench/workloads/harness/handed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/// What the progress bar shows.
typedef struct view {
    const contest *contest;
    const side *side;
} view;

static void drop_slow_rival(contest *contest, int64_t done, double seconds, double left);
static int64_t next_steps(const contest *contest, int64_t done, double rate, double seconds);
static bool start_sides(contest *contest, const workload_settings *settings);
static bool start_side(contest *contest, const workload_settings *settings, const char *name,
                       workload_strategy strategy);
static bool start_rival(contest *contest, const workload_settings *settings);
static run_settings settings_of(const contest *contest, const workload_settings *settings,
                                workload_strategy strategy);
static bool take_turn(contest *contest, side *side, int64_t steps);
static void finish_side(contest *contest, side *side);
static bool all_done(const contest *contest);
static void watch(int64_t steps, void *data);

bool contest_run(contest *contest, const workload *workload, const workload_settings *settings,
                 double deadline) {
    *contest =
        (struct contest){.workload = workload, .planned_steps = settings_steps(settings, workload)};
    bool good = start_sides(contest, settings);
    int64_t done = 0, steps = 0;
    double before = bench_seconds();
    for (size_t round = 0; good && !all_done(contest); round++) {
        double now = bench_seconds();
        contest->out_of_time =
            round == CONTEST_ROUNDS || (round >= CONTEST_LEAST_ROUNDS && now > deadline);
        if (contest->out_of_time)
            break;
        if (round >= CONTEST_LEAST_ROUNDS)
            drop_slow_rival(contest, done, now - before, deadline - now);
        steps = next_steps(contest, done, (double)steps / (now - before),
                           (deadline - now) / (double)(CONTEST_ROUNDS - round));
        before = now;
        for (size_t i = 0; i < contest->side_count && good; i++)
            good = take_turn(contest, &contest->sides[(i + round) % contest->side_count], steps);
        done += steps;
    }
    for (size_t i = 0; i < contest->side_count; i++)
        finish_side(contest, &contest->sides[i]);
    bench_progress_clear();
    for (size_t i = 0; i < contest->side_count; i++) {
        const side *side = &contest->sides[i];
        if (side->figures.status != ND_OK && !side->figures.no_device)
            fprintf(stderr, "%s: %s, %s: %s\n", settings->program, workload->name, side->name,
                    side->figures.message);
        good = good && side->figures.status == ND_OK;
    }
    return good;
}

const side *contest_find(const contest *contest, workload_strategy strategy) {
    for (size_t i = 0; i < contest->side_count; i++)
        if (!contest->sides[i].is_rival && contest->sides[i].strategy == strategy)
            return &contest->sides[i];
    return NULL;
}

const side *contest_find_on(const contest *contest) {
    for (size_t i = contest->side_count; i-- > 0;)
        if (strcmp(contest->sides[i].name, "on") == 0)
            return &contest->sides[i];
    return contest_find(contest, WORKLOAD_BOUNDARY);
}

const side *contest_find_rival(const contest *contest) {
    const side *last = contest->side_count ? &contest->sides[contest->side_count - 1] : NULL;
    return last && last->is_rival ? last : NULL;
}

double contest_ratio(const side *side, const struct side *base) {
    double ratios[CONTEST_ROUNDS];
    size_t count = 0;
    if (side->rival.outdated || base->rival.outdated)
        return NAN;
    for (size_t i = 1; i < side->turn_count && i < base->turn_count; i++)
        if (side->turns[i].steps == base->turns[i].steps)
            ratios[count++] = side->turns[i].seconds / base->turns[i].seconds;
    return bench_median(ratios, count);
}

double side_rate(const side *side) {
    double seconds = 0;
    for (size_t i = 1; i < side->turn_count; i++)
        seconds += side->turns[i].seconds;
    if (side->turn_count < 2)
        return NAN;
    return (double)(side->turns[side->turn_count - 1].steps - side->turns[0].steps) / seconds;
}

double side_value(const side *side, const struct side *other) {
    size_t count = side->turn_count < other->turn_count ? side->turn_count : other->turn_count;
    size_t first = count - count / 4 - (count < 4 && count > 0);
    double sum = 0;
    for (size_t i = first; i < count; i++)
        sum += side->turns[i].value;
    return sum / (double)(count - first);
}

double side_growth(const side *side) {
    if (side->turn_count < 2)
        return NAN;
    const run_turn *first = &side->turns[0], *last = &side->turns[side->turn_count - 1];
    return ((double)last->live_bytes - (double)first->live_bytes) /
           (double)(last->steps - first->steps);
}

/// A rival that takes more than half of the time, where there is not enough for all steps, ends: what
/// is promised of ours can then still be judged. `seconds` are those of the round before.
static void drop_slow_rival(contest *contest, int64_t done, double seconds, double left) {
    side *last = &contest->sides[contest->side_count - 1];
    if (!last->is_rival || !last->running || last->turn_count < 2)
        return;
    const run_turn *turn = &last->turns[last->turn_count - 1];
    double rate = (double)(turn->steps - turn[-1].steps) / seconds;
    if (turn->seconds <= seconds / 2 || (double)(contest->planned_steps - done) / rate <= left)
        return;
    contest->rival_dropped = true;
    finish_side(contest, last);
}

/// Of the next turn: an equal part of all, or so many as fit into its seconds at the rate of the turn
/// before.
static int64_t next_steps(const contest *contest, int64_t done, double rate, double seconds) {
    enum { PARTS = CONTEST_ROUNDS - 2, WARM_UP = 2 };
    int64_t steps = (contest->planned_steps + PARTS - 1) / PARTS;
    if (done == 0)
        return steps < WARM_UP ? steps : WARM_UP;
    double fitting = rate * seconds;
    if (fitting < (double)steps)
        steps = fitting < 1 ? 1 : (int64_t)fitting;
    return steps < contest->planned_steps - done ? steps : contest->planned_steps - done;
}

static bool start_sides(contest *contest, const workload_settings *settings) {
    bool good = true;
    if (settings->all_strategies) {
        for (workload_strategy i = 0; i < WORKLOAD_STRATEGY_COUNT && good; i++)
            good = start_side(contest, settings, workload_strategy_name(i), i);
    } else {
        if (settings->off)
            good = start_side(contest, settings, "off", WORKLOAD_LET_BE);
        if (settings->on && good)
            good = start_side(contest, settings, "on", settings->strategy);
    }
    if (!good || !settings->peers)
        return good;
    if (contest->workload->has_peer)
        return start_rival(contest, settings);
    snprintf(contest->peer_skipped, sizeof contest->peer_skipped, "no PyTorch side");
    return true;
}

static bool start_side(contest *contest, const workload_settings *settings, const char *name,
                       workload_strategy strategy) {
    side *side = &contest->sides[contest->side_count];
    *side = (struct side){.strategy = strategy};
    snprintf(side->name, sizeof side->name, "%s", name);
    run_settings of_run = settings_of(contest, settings, strategy);
    side->running = child_start(&side->child, contest->workload, &of_run, 0);
    contest->side_count += side->running;
    return side->running;
}

/// False only when what it begins with could not be handed over.
static bool start_rival(contest *contest, const workload_settings *settings) {
    side *side = &contest->sides[contest->side_count];
    *side = (struct side){.name = "PyTorch", .is_rival = true};
    run_settings of_run = settings_of(contest, settings, WORKLOAD_LET_BE);
    handed handed;
    if (!handed_make(&handed, contest->workload, &of_run))
        return false;
    of_run.hand_over = handed.folder;
    side->running = rival_start(&side->rival, contest->workload, &of_run);
    handed_remove(&handed);
    contest->rival_failed = side->rival.failed;
    contest->side_count += side->running;
    if (!side->running)
        snprintf(contest->peer_skipped, sizeof contest->peer_skipped, "%s", side->rival.library);
    return true;
}

static run_settings settings_of(const contest *contest, const workload_settings *settings,
                                workload_strategy strategy) {
    const uint64_t usual = (uint64_t)64 << 20, own = contest->workload->step_bytes;
    return (run_settings){.options = {.device = settings->device,
                                      .strategy = strategy,
                                      .seed = settings->seed,
                                      .steps = contest->planned_steps,
                                      .data = settings->data,
                                      .output = settings->output},
                          .threads = settings->threads,
                          .most_bytes = settings->most_bytes,
                          .room_bytes = 2 * (own > usual ? own : usual)};
}

/// False when a side of ndarc failed; a rival that does just stops.
static bool take_turn(contest *contest, side *side, int64_t steps) {
    if (!side->running)
        return true;
    view view = {.contest = contest, .side = side};
    run_turn *turn = &side->turns[side->turn_count];
    bool good = side->is_rival ? rival_turn(&side->rival, steps, watch, &view, turn)
                               : child_turn(&side->child, steps, watch, &view, turn);
    if (side->is_rival && side->turn_count)
        turn->steps += side->turns[side->turn_count - 1].steps;
    int64_t before = side->turn_count ? side->turns[side->turn_count - 1].steps : 0;
    side->turn_count += good && turn->steps > before;
    if (!good || turn->steps < before + steps)
        finish_side(contest, side);
    return good || side->is_rival;
}

static void finish_side(contest *contest, side *side) {
    if (!side->running)
        return;
    view view = {.contest = contest, .side = side};
    side->running = false;
    if (side->is_rival)
        rival_finish(&side->rival, &side->figures);
    else
        child_finish(&side->child, watch, &view, &side->figures);
}

/// Nobody runs, or those that do have done all steps.
static bool all_done(const contest *contest) {
    for (size_t i = 0; i < contest->side_count; i++) {
        const side *side = &contest->sides[i];
        int64_t steps = side->turn_count ? side->turns[side->turn_count - 1].steps : 0;
        if (side->running && !side->is_rival && steps < contest->planned_steps)
            return false;
    }
    return true;
}

static void watch(int64_t steps, void *data) {
    const view *view = data;
    const contest *contest = view->contest;
    char text[96];
    double done = 0;
    for (size_t i = 0; i < contest->side_count; i++) {
        const side *side = &contest->sides[i];
        if (side == view->side && steps >= 0)
            done += (double)steps;
        else if (side->turn_count)
            done += (double)side->turns[side->turn_count - 1].steps;
    }
    snprintf(text, sizeof text, "%s, %s", contest->workload->name, view->side->name);
    bench_progress_show(text, done / (double)contest->planned_steps / (double)contest->side_count);
}
