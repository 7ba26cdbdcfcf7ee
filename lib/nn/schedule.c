// Schedules of the learning rate.
//
// Invariant: rates are computed from the base rates and the number of steps, not from the rates
// before, so that nothing drifts and a schedule can be resumed anywhere.
#include "lib/nn/schedule.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/manager/place.h"
#include "lib/nn/optimizer_kinds.h"
#include "lib/pressure/pressure_alloc.h"

#include <math.h>
#include <string.h>

static void traverse(const nd_object *self, nd_visitor *visitor);
static void clear(nd_object *self);
static void destroy(nd_object *self);
static const nd_type schedule_type = {.size = sizeof(nd_type),
                                      .version = 1,
                                      .name = "schedule",
                                      .traverse = traverse,
                                      .clear = clear,
                                      .destroy = destroy};

static nd_schedule *new_schedule(nd_schedule_kind kind, size_t children);
static nd_schedule *publish(nd_schedule *schedule);
static nd_schedule *simple(const char *operation, nd_schedule_kind kind, double start, double end,
                           double gamma, int64_t steps);
static nd_schedule *composite(const char *operation, nd_schedule_kind kind, size_t count,
                              nd_schedule **schedules, const int64_t *milestones);
static nd_status take_milestones(const char *operation, nd_schedule *schedule, size_t count,
                                 const int64_t *milestones);
static nd_status check_factor(const char *operation, const char *name, double value);
static double factor_at(const nd_schedule *schedule, int64_t step);
static double one_cycle_at(const nd_one_cycle_options *options, int64_t step);
static size_t passed(const nd_schedule *schedule, int64_t step);
static bool needs_metric(const nd_schedule *schedule, int64_t step);
static void note_metric(nd_schedule *schedule, int64_t step, double metric);
static nd_status advance(const char *operation, nd_schedule *schedule, const double *metric);

// -------------------------------------------------------------------------------------------------
// constructors

nd_schedule *nd_step_schedule(int64_t every, double gamma) {
    return simple("step_schedule", ND__SCHEDULE_STEP, 0, 0, gamma, every);
}

nd_schedule *nd_exponential_schedule(double gamma) {
    return simple("exponential_schedule", ND__SCHEDULE_EXPONENTIAL, 0, 0, gamma, 1);
}

nd_schedule *nd_cosine_schedule(double floor, int64_t steps) {
    return simple("cosine_schedule", ND__SCHEDULE_COSINE, 1, floor, 0, steps);
}

nd_schedule *nd_linear_schedule(double start, double end, int64_t steps) {
    return simple("linear_schedule", ND__SCHEDULE_LINEAR, start, end, 0, steps);
}

nd_schedule *nd_multi_step_schedule(double gamma, size_t count, const int64_t *milestones) {
    static const char operation[] = "multi_step_schedule";
    if (check_factor(operation, "gamma", gamma) != ND_OK)
        return NULL;
    nd_schedule *schedule = new_schedule(ND__SCHEDULE_MULTI_STEP, 0);
    if (!schedule)
        return NULL;
    schedule->is.simple.gamma = gamma;
    if (take_milestones(operation, schedule, count, milestones) != ND_OK) {
        nd_release(schedule);
        return NULL;
    }
    return publish(schedule);
}

nd_schedule *nd_one_cycle_schedule(const nd_one_cycle_options *options) {
    static const char operation[] = "one_cycle_schedule";
    nd_one_cycle_options chosen = ND_ONE_CYCLE_OPTIONS_INIT;
    if (!options) {
        nd__error_null(operation, "options");
        return NULL;
    }
    if (nd__versioned_read(operation, "ND_ONE_CYCLE_OPTIONS_INIT", options, &chosen,
                           sizeof chosen) != ND_OK)
        return NULL;
    if (chosen.steps < 1 || !(chosen.rise > 0 && chosen.rise < 1) || !(chosen.divisor >= 1) ||
        !(chosen.final_divisor >= 1) || isinf(chosen.divisor) || isinf(chosen.final_divisor)) {
        nd__error(
            ND_ERROR_INVALID_ARGUMENT,
            "%s: steps is %lld, rise %g, divisor %g, final_divisor %g; steps must be at least "
            "1, rise between 0 and 1, the divisors at least 1",
            operation, (long long)chosen.steps, chosen.rise, chosen.divisor, chosen.final_divisor);
        return NULL;
    }
    nd_schedule *schedule = new_schedule(ND__SCHEDULE_ONE_CYCLE, 0);
    if (schedule)
        schedule->is.one_cycle = chosen;
    return publish(schedule);
}

nd_schedule *nd_plateau_schedule(const nd_plateau_options *options) {
    static const char operation[] = "plateau_schedule";
    nd_plateau_options chosen = ND_PLATEAU_OPTIONS_INIT;
    if (nd__versioned_read(operation, "ND_PLATEAU_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
            ND_OK ||
        check_factor(operation, "gamma", chosen.gamma) != ND_OK ||
        check_factor(operation, "threshold", chosen.threshold) != ND_OK ||
        check_factor(operation, "floor", chosen.floor) != ND_OK)
        return NULL;
    if (chosen.gamma >= 1 || chosen.patience < 0 || chosen.cooldown < 0) {
        nd__error(
            ND_ERROR_INVALID_ARGUMENT,
            "%s: gamma is %g, patience %lld, cooldown %lld; gamma must be below 1, the others "
            "at least 0",
            operation, chosen.gamma, (long long)chosen.patience, (long long)chosen.cooldown);
        return NULL;
    }
    nd_schedule *schedule = new_schedule(ND__SCHEDULE_PLATEAU, 0);
    if (schedule) {
        schedule->is.plateau = chosen;
        schedule->now.best = chosen.maximize ? -INFINITY : INFINITY;
    }
    return publish(schedule);
}

nd_schedule *nd_product_schedule(size_t count, nd_schedule **schedules) {
    return composite("product_schedule", ND__SCHEDULE_PRODUCT, count, schedules, NULL);
}

nd_schedule *nd_sequence_schedule(size_t count, nd_schedule **schedules,
                                  const int64_t *milestones) {
    return composite("sequence_schedule", ND__SCHEDULE_SEQUENCE, count, schedules, milestones);
}

// -------------------------------------------------------------------------------------------------
// use

nd_status nd_schedule_start(nd_schedule *schedule, nd_optimizer *optimizer) {
    static const char operation[] = "schedule_start";
    nd_status status = nd__schedule_check(operation, schedule);
    if (status == ND_OK)
        status = nd__optimizer_check(operation, optimizer);
    if (status == ND_OK && schedule->optimizer)
        status = nd__error(ND_ERROR_STATE, "%s: the schedule was started before", operation);
    if (status != ND_OK)
        return status;
    const size_t count = optimizer->group_count;
    double *bases = nd__pressure_alloc(count * sizeof *bases);
    if (!bases)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the rates of %zu groups",
                         operation, count);
    status = nd__schedule_check(operation, schedule); // a callback for memory may have closed it
    if (status == ND_OK)
        status = nd__optimizer_check(operation, optimizer);
    if (status == ND_OK && (schedule->optimizer || count != optimizer->group_count))
        status = nd__error(ND_ERROR_STATE, "%s: a callback for memory used it", operation);
    for (size_t i = 0; status == ND_OK && i < count; i++)
        bases[i] = optimizer->groups[i].option[ND_OPTIMIZER_RATE];
    if (status == ND_OK)
        status = nd__schedule_check_rates(operation, schedule, count, bases);
    if (status != ND_OK) {
        nd__alloc_free(bases);
        return status;
    }
    schedule->bases = bases;
    schedule->base_count = count;
    nd_edge_set(&schedule->optimizer, optimizer);
    nd__schedule_apply(schedule);
    return ND_OK;
}

nd_status nd_schedule_step(nd_schedule *schedule) {
    return advance("schedule_step", schedule, NULL);
}

nd_status nd_schedule_step_with(nd_schedule *schedule, double metric) {
    return advance("schedule_step_with", schedule, &metric);
}

double nd_schedule_get_factor(const nd_schedule *schedule) {
    return nd__schedule_check("schedule_get_factor", schedule) == ND_OK
               ? factor_at(schedule, schedule->now.steps)
               : (double)NAN;
}

int64_t nd_schedule_get_steps(const nd_schedule *schedule) {
    return schedule ? schedule->now.steps : 0;
}

static nd_status advance(const char *operation, nd_schedule *schedule, const double *metric) {
    nd_status status = nd__schedule_check(operation, schedule);
    if (status == ND_OK && !schedule->optimizer)
        status = nd__error(ND_ERROR_STATE, "%s: the schedule was not started with an optimizer",
                           operation);
    if (status == ND_OK)
        status = nd__optimizer_check(operation, schedule->optimizer);
    if (status == ND_OK && schedule->optimizer->group_count != schedule->base_count)
        status = nd__error(ND_ERROR_STATE,
                           "%s: the optimizer has %zu groups, and had %zu when the schedule was "
                           "started",
                           operation, schedule->optimizer->group_count, schedule->base_count);
    if (status == ND_OK && !metric && needs_metric(schedule, schedule->now.steps))
        status = nd__error(ND_ERROR_STATE, "%s: a plateau wants a metric: nd_schedule_step_with()",
                           operation);
    if (status != ND_OK)
        return status;
    nd__schedule_keep(schedule);
    if (metric)
        note_metric(schedule, schedule->now.steps, *metric);
    schedule->now.steps++;
    status = nd__schedule_check_rates(operation, schedule, schedule->base_count, schedule->bases);
    if (status == ND_OK)
        nd__schedule_apply(schedule);
    else
        nd__schedule_take_back(schedule);
    return status;
}

nd_status nd__schedule_check_rates(const char *operation, const nd_schedule *schedule, size_t count,
                                   const double *bases) {
    const double factor = factor_at(schedule, schedule->now.steps);
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < count; i++)
        status = nd__optimizer_kinds_check(operation, ND_OPTIMIZER_RATE, bases[i] * factor);
    return status;
}

void nd__schedule_apply(const nd_schedule *schedule) {
    const double factor = factor_at(schedule, schedule->now.steps);
    for (size_t i = 0; i < schedule->base_count; i++)
        schedule->optimizer->groups[i].option[ND_OPTIMIZER_RATE] = schedule->bases[i] * factor;
}

void nd__schedule_keep(nd_schedule *schedule) {
    schedule->kept = schedule->now;
    for (size_t i = 0; i < schedule->count; i++)
        nd__schedule_keep(schedule->children[i]);
}

void nd__schedule_take_back(nd_schedule *schedule) {
    schedule->now = schedule->kept;
    for (size_t i = 0; i < schedule->count; i++)
        nd__schedule_take_back(schedule->children[i]);
}

// -------------------------------------------------------------------------------------------------
// factors

static double factor_at(const nd_schedule *schedule, int64_t step) {
    const double start = schedule->is.simple.start, end = schedule->is.simple.end;
    const double gamma = schedule->is.simple.gamma;
    const int64_t steps = schedule->is.simple.steps;
    const double part = (double)(step < steps ? step : steps) / (double)steps;
    double product = 1;
    size_t phase = 0;
    switch (schedule->kind) {
    case ND__SCHEDULE_STEP:
        return pow(gamma, (double)(step / steps));
    case ND__SCHEDULE_MULTI_STEP:
        return pow(gamma, (double)passed(schedule, step));
    case ND__SCHEDULE_EXPONENTIAL:
        return pow(gamma, (double)step);
    case ND__SCHEDULE_COSINE:
        return end + (start - end) * (1 + cos(M_PI * part)) / 2;
    case ND__SCHEDULE_LINEAR:
        return start + (end - start) * part;
    case ND__SCHEDULE_ONE_CYCLE:
        return one_cycle_at(&schedule->is.one_cycle, step);
    case ND__SCHEDULE_PLATEAU:
        return schedule->now.factor;
    case ND__SCHEDULE_PRODUCT:
        for (size_t i = 0; i < schedule->count; i++)
            product *= factor_at(schedule->children[i], step);
        return product;
    case ND__SCHEDULE_SEQUENCE:
        phase = passed(schedule, step);
        return factor_at(schedule->children[phase],
                         phase > 0 ? step - schedule->milestones[phase - 1] : step);
    }
    return 1;
}

/// From `start` to `end` as part goes from 0 to 1.
static double anneal(bool linear, double start, double end, double part) {
    return linear ? start + (end - start) * part : end + (start - end) / 2 * (1 + cos(M_PI * part));
}

/// Smith and Topin 2018, the phases ending where PyTorch's do.
static double one_cycle_at(const nd_one_cycle_options *options, int64_t step) {
    const double last = (double)(options->steps - 1);
    const double peak = options->rise * (double)options->steps - 1;
    const double start = 1 / options->divisor;
    const double end = start / options->final_divisor;
    const double at = (double)step < last ? (double)step : last;
    if (at <= peak)
        return peak > 0 ? anneal(options->linear, start, 1, at / peak) : 1;
    return last > peak ? anneal(options->linear, 1, end, (at - peak) / (last - peak)) : end;
}

/// How many milestones a step has reached.
static size_t passed(const nd_schedule *schedule, int64_t step) {
    size_t count = 0;
    while (count < schedule->milestone_count && schedule->milestones[count] <= step)
        count++;
    return count;
}

/// Whether a plateau is in force at a step.
static bool needs_metric(const nd_schedule *schedule, int64_t step) {
    if (schedule->kind == ND__SCHEDULE_SEQUENCE)
        return needs_metric(schedule->children[passed(schedule, step)], step);
    bool needs = schedule->kind == ND__SCHEDULE_PLATEAU;
    for (size_t i = 0; i < schedule->count; i++)
        needs |= needs_metric(schedule->children[i], step);
    return needs;
}

static bool is_better(const nd_plateau_options *options, double metric, double best) {
    const double margin = options->absolute ? options->threshold
                          : isinf(best)     ? 0
                                            : options->threshold * fabs(best);
    return options->maximize ? metric > best + margin : metric < best - margin;
}

/// Hands a metric to every plateau that is in force.
static void note_metric(nd_schedule *schedule, int64_t step, double metric) {
    if (schedule->kind == ND__SCHEDULE_SEQUENCE) {
        const size_t phase = passed(schedule, step);
        note_metric(schedule->children[phase],
                    phase > 0 ? step - schedule->milestones[phase - 1] : step, metric);
        return;
    }
    for (size_t i = 0; i < schedule->count; i++)
        note_metric(schedule->children[i], step, metric);
    if (schedule->kind != ND__SCHEDULE_PLATEAU)
        return;
    const nd_plateau_options *options = &schedule->is.plateau;
    if (is_better(options, metric, schedule->now.best)) {
        schedule->now.best = metric;
        schedule->now.bad = 0;
    } else {
        schedule->now.bad++;
    }
    if (schedule->now.cooldown > 0) {
        schedule->now.cooldown--;
        schedule->now.bad = 0;
    }
    if (schedule->now.bad > options->patience) {
        schedule->now.factor = fmax(schedule->now.factor * options->gamma, options->floor);
        schedule->now.cooldown = options->cooldown;
        schedule->now.bad = 0;
    }
}

// -------------------------------------------------------------------------------------------------
// the object

nd_status nd__schedule_check(const char *operation, const nd_schedule *schedule) {
    if (!schedule)
        return nd__error_null(operation, "schedule");
    if (nd__object_is_closed(schedule))
        return nd__error(ND_ERROR_CLOSED, "%s: the schedule was closed", operation);
    for (size_t i = 0; i < schedule->count; i++) {
        nd_status status = nd__schedule_check(operation, schedule->children[i]);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

/// Owned, not yet published.
static nd_schedule *new_schedule(nd_schedule_kind kind, size_t children) {
    nd_schedule *schedule = (nd_schedule *)nd__object_new(
        &schedule_type, sizeof(*schedule) + children * sizeof(*schedule->children));
    if (!schedule)
        return NULL;
    schedule->kind = kind;
    schedule->depth = 1;
    schedule->now.factor = 1;
    schedule->is.simple.steps = 1;
    return schedule;
}

static nd_schedule *publish(nd_schedule *schedule) {
    return schedule ? nd__place_publish_or_release(nd__place_begin(NULL, 0), &schedule->header)
                    : NULL;
}

static nd_status check_factor(const char *operation, const char *name, double value) {
    if (value >= 0 && !isinf(value))
        return ND_OK;
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is %g; it must be finite and at least 0",
                     operation, name, value);
}

static nd_schedule *simple(const char *operation, nd_schedule_kind kind, double start, double end,
                           double gamma, int64_t steps) {
    if (check_factor(operation, "a factor", start) != ND_OK ||
        check_factor(operation, "a factor", end) != ND_OK ||
        check_factor(operation, "gamma", gamma) != ND_OK)
        return NULL;
    if (steps < 1) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %lld steps; there must be at least 1", operation,
                  (long long)steps);
        return NULL;
    }
    nd_schedule *schedule = new_schedule(kind, 0);
    if (schedule) {
        schedule->is.simple.start = start;
        schedule->is.simple.end = end;
        schedule->is.simple.gamma = gamma;
        schedule->is.simple.steps = steps;
    }
    return publish(schedule);
}

/// Consumes the schedules, always.
static nd_schedule *composite(const char *operation, nd_schedule_kind kind, size_t count,
                              nd_schedule **schedules, const int64_t *milestones) {
    if (count == 0 || !schedules) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: it needs at least one schedule", operation);
        return NULL;
    }
    nd_status status = ND_OK;
    int depth = 1;
    for (size_t i = 0; i < count && status == ND_OK; i++) {
        status = nd__schedule_check(operation, schedules[i]);
        if (status != ND_OK)
            break;
        depth = schedules[i]->depth >= depth ? schedules[i]->depth + 1 : depth;
        if (schedules[i]->optimizer)
            status = nd__error(ND_ERROR_STATE, "%s: schedule %zu was started", operation, i);
        else if (depth > ND__SCHEDULE_DEPTH_MAX)
            status = nd__error(ND_ERROR_UNSUPPORTED,
                               "%s: more than %d schedules stand inside each other", operation,
                               ND__SCHEDULE_DEPTH_MAX);
    }
    nd_schedule *schedule = status == ND_OK ? new_schedule(kind, count) : NULL;
    if (schedule) {
        schedule->depth = depth;
        schedule->count = count;
        for (size_t i = 0; i < count; i++)
            schedule->children[i] = nd_retain(schedules[i]);
        if (kind == ND__SCHEDULE_SEQUENCE &&
            take_milestones(operation, schedule, count - 1, milestones) != ND_OK) {
            nd_release(schedule);
            schedule = NULL;
        }
    }
    for (size_t i = 0; i < count; i++)
        nd_release(schedules[i]);
    return publish(schedule);
}

/// Copies milestones, which rise from above 0.
static nd_status take_milestones(const char *operation, nd_schedule *schedule, size_t count,
                                 const int64_t *milestones) {
    if (count > 0 && !milestones)
        return nd__error_null(operation, "milestones");
    for (size_t i = 0; i < count; i++)
        if (milestones[i] < 1 || (i > 0 && milestones[i] <= milestones[i - 1]))
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "%s: milestones[%zu] is %lld; they must rise, from at least 1",
                             operation, i, (long long)milestones[i]);
    schedule->milestones = nd__pressure_alloc((count + 1) * sizeof *milestones);
    if (!schedule->milestones)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu milestones", operation,
                         count);
    if (count > 0)
        memcpy(schedule->milestones, milestones, count * sizeof *milestones);
    schedule->milestone_count = count;
    return ND_OK;
}

static void traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_schedule *schedule = (const nd_schedule *)self;
    nd_visit(visitor, schedule->optimizer, "optimizer");
    for (size_t i = 0; i < schedule->count; i++)
        nd_visit(visitor, schedule->children[i], "schedule");
}

static void clear(nd_object *self) {
    nd_schedule *schedule = (nd_schedule *)self;
    nd_edge_clear(&schedule->optimizer);
    for (size_t i = 0; i < schedule->count; i++)
        nd_edge_clear(&schedule->children[i]);
}

static void destroy(nd_object *self) {
    nd_schedule *schedule = (nd_schedule *)self;
    nd__alloc_free(schedule->bases);
    nd__alloc_free(schedule->milestones);
    schedule->bases = NULL;
    schedule->milestones = NULL;
    schedule->base_count = 0;
    schedule->milestone_count = 0;
}
