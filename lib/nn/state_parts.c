// How each kind of part speaks to a stream: one function for saving, comparing and loading.
//
// Invariant: a part changes in the commit alone. State tensors that an optimizer lacks are made in
// the check, since that may fail, and are the stream's until the commit.
#include "lib/nn/state_parts.h"
#include "lib/base/error.h"
#include "lib/io/dataset.h"
#include "lib/nn/ema.h"
#include "lib/nn/loss_scaler.h"
#include "lib/nn/optimizer_kinds.h"
#include "lib/nn/optimizer_slots.h"
#include "lib/nn/parameters.h"
#include "lib/nn/schedule.h"
#include "lib/object/edge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static nd_status exchange_module(nd_state_stream *stream, const nd_module *module);
static nd_status exchange_draws(nd_state_stream *stream, nd_module *module, char *path,
                                size_t length, int depth);
static nd_status exchange_optimizer(nd_state_stream *stream, nd_optimizer *optimizer);
static nd_status exchange_groups(nd_state_stream *stream, nd_optimizer *optimizer);
static nd_status exchange_steps(nd_state_stream *stream, nd_optimizer *optimizer, int64_t *numbers);
static nd_status exchange_slots(nd_state_stream *stream, nd_optimizer *optimizer);
static nd_status exchange_schedule(nd_state_stream *stream, nd_schedule *schedule);
static nd_status exchange_node(nd_state_stream *stream, nd_schedule *node, int *number);
static nd_status exchange_dataset(nd_state_stream *stream, nd_dataset *dataset);
static nd_status exchange_ema(nd_state_stream *stream, nd_ema *ema);
static nd_status exchange_loss_scaler(nd_state_stream *stream, nd_loss_scaler *scaler);

nd_status nd__state_parts_exchange(nd_state_stream *stream, nd_state_part *part,
                                   const nd_object *object) {
    void *writable = (void *)(uintptr_t)object;
    int64_t i64[2] = {part->value.i64[0], part->value.i64[1]};
    double f64 = part->value.f64;
    nd_status status = ND_OK;
    stream->part = part->name;
    switch (part->kind) {
    case ND__STATE_MODULE:
        return exchange_module(stream, writable);
    case ND__STATE_OPTIMIZER:
        return exchange_optimizer(stream, writable);
    case ND__STATE_SCHEDULE:
        return exchange_schedule(stream, writable);
    case ND__STATE_DATASET:
        return exchange_dataset(stream, writable);
    case ND__STATE_EMA:
        return exchange_ema(stream, writable);
    case ND__STATE_LOSS_SCALER:
        return exchange_loss_scaler(stream, writable);
    case ND__STATE_TENSOR:
        return nd__state_stream_tensor(stream, "", NULL, writable);
    case ND__STATE_F64:
        status = nd__state_stream_numbers(stream, "", ND_F64, 1, &f64);
        if (status == ND_OK && stream->phase == ND__STATE_COMMIT)
            part->value.f64 = f64;
        return status;
    case ND__STATE_I64:
    case ND__STATE_KEY:
        status =
            nd__state_stream_numbers(stream, "", ND_I64, part->kind == ND__STATE_KEY ? 2 : 1, i64);
        if (status == ND_OK && stream->phase == ND__STATE_COMMIT)
            memcpy(part->value.i64, i64, sizeof i64);
        return status;
    }
    return ND_OK;
}

// -------------------------------------------------------------------------------------------------
// modules

static nd_status exchange_module(nd_state_stream *stream, const nd_module *module) {
    nd_module_walk walk;
    nd_tensor *tensor;
    nd__parameters_walk_begin(&walk, stream->operation, module, ND__MEMBER_TENSOR);
    while ((tensor = nd__parameters_walk_next(&walk))) {
        nd_status status = nd__state_stream_tensor(stream, walk.name, NULL, tensor);
        if (status != ND_OK)
            return status;
    }
    char path[ND__FULL_NAME_BYTES + sizeof ".random"] = "";
    return walk.status == ND_OK ? exchange_draws(stream, (nd_module *)(uintptr_t)module, path, 0, 1)
                                : walk.status;
}

/// The keys of modules that draw. Their names cannot be a member's: "model.1..random".
static nd_status exchange_draws(nd_state_stream *stream, nd_module *module, char *path,
                                size_t length, int depth) {
    nd_status status = ND_OK;
    if (module->draws) {
        int64_t numbers[] = {(int64_t)module->key.seed, (int64_t)module->key.stream,
                             (int64_t)atomic_load_explicit(&module->drawn, memory_order_relaxed)};
        strcpy(path + length, ".random");
        status = nd__state_stream_numbers(stream, path, ND_I64, 3, numbers);
        path[length] = 0;
        if (status == ND_OK && stream->phase == ND__STATE_COMMIT) {
            module->key = (nd_key){(uint64_t)numbers[0], (uint64_t)numbers[1]};
            atomic_store_explicit(&module->drawn, (uint64_t)numbers[2], memory_order_relaxed);
        }
    }
    for (size_t i = 0; status == ND_OK && i < module->count && depth < ND__MODULE_DEPTH_MAX; i++) {
        const nd_member *member = &module->members[i];
        if (nd__module_is_tensor(member))
            continue;
        const size_t bytes = strlen(member->name);
        memcpy(path + length, member->name, bytes);
        strcpy(path + length + bytes, ".");
        status = exchange_draws(stream, (nd_module *)member->object, path, length + bytes + 1,
                                depth + 1);
        path[length] = 0;
    }
    return status;
}

// -------------------------------------------------------------------------------------------------
// optimizers

static nd_status exchange_optimizer(nd_state_stream *stream, nd_optimizer *optimizer) {
    nd_status status = nd__optimizer_check(stream->operation, optimizer);
    if (status == ND_OK)
        status = exchange_groups(stream, optimizer);
    if (status != ND_OK)
        return status;
    int64_t *numbers = nd__state_stream_scratch(stream, optimizer->count * sizeof *numbers);
    if (!numbers)
        return nd_error_get_status();
    status = exchange_steps(stream, optimizer, numbers);
    return status == ND_OK ? exchange_slots(stream, optimizer) : status;
}

/// Refuses numbers of the entry `name` that the option may not have.
static nd_status check_options(const nd_state_stream *stream, const char *name,
                               nd_optimizer_option option, size_t count, const double *numbers) {
    for (size_t i = 0; i < count; i++) {
        if (!nd__optimizer_kinds_allow(option, numbers[i])) {
            char problem[64];
            snprintf(problem, sizeof problem, "has %g, which is no %s", numbers[i],
                     nd__optimizer_kinds_option(option));
            return nd__state_stream_refuse(stream, name, problem);
        }
    }
    return ND_OK;
}

/// Each option that the kind has, as one number for each group: "optimizer.adamw.rate".
static nd_status exchange_groups(nd_state_stream *stream, nd_optimizer *optimizer) {
    const nd_optimizer_info *info = &nd__optimizer_infos[optimizer->kind];
    const size_t groups = optimizer->group_count;
    double *numbers = nd__state_stream_scratch(stream, groups * sizeof *numbers);
    if (!numbers)
        return nd_error_get_status();
    nd_status status = ND_OK;
    for (int option = 0; status == ND_OK && option < ND_OPTIMIZER_OPTION_COUNT; option++) {
        if (!(info->options & (1u << option)))
            continue;
        char name[64];
        snprintf(name, sizeof name, "%s.%s", info->name,
                 nd__optimizer_kinds_option((nd_optimizer_option)option));
        for (size_t i = 0; i < groups; i++)
            numbers[i] = optimizer->groups[i].option[option];
        status = nd__state_stream_numbers(stream, name, ND_F64, groups, numbers);
        if (status == ND_OK)
            status = check_options(stream, name, (nd_optimizer_option)option, groups, numbers);
        for (size_t i = 0; status == ND_OK && stream->phase == ND__STATE_COMMIT && i < groups; i++)
            optimizer->groups[i].option[option] = numbers[i];
    }
    return status;
}

/// The group and the updates of each parameter.
static nd_status exchange_steps(nd_state_stream *stream, nd_optimizer *optimizer,
                                int64_t *numbers) {
    const size_t count = optimizer->count;
    for (size_t i = 0; i < count; i++)
        numbers[i] = (int64_t)optimizer->states[i].group;
    nd_status status = nd__state_stream_numbers(stream, "group", ND_I64, count, numbers);
    for (size_t i = 0; status == ND_OK && i < count; i++) {
        if (numbers[i] < 0 || (size_t)numbers[i] >= optimizer->group_count)
            status = nd__state_stream_refuse(stream, "group", "names a group that is not there");
        else if (stream->phase == ND__STATE_COMMIT)
            optimizer->states[i].group = (size_t)numbers[i];
    }
    for (size_t i = 0; status == ND_OK && i < count; i++)
        numbers[i] = (int64_t)optimizer->states[i].steps;
    if (status == ND_OK)
        status = nd__state_stream_numbers(stream, "steps", ND_I64, count, numbers);
    for (size_t i = 0; status == ND_OK && i < count; i++) {
        if (numbers[i] < 0)
            status = nd__state_stream_refuse(stream, "steps", "has a negative number");
        else if (stream->phase == ND__STATE_COMMIT)
            optimizer->states[i].steps = (uint64_t)numbers[i];
    }
    return status;
}

/// What a step of the parameter as it is now uses: a master of a half that was cast since is of no use.
static bool has_slot(const nd_parameter_state *state, int slot) {
    return state->slot[slot] &&
           (slot != ND__SLOT_MASTER || nd__dtype_is_half(state->parameter->dtype));
}

/// Which state tensors each parameter has, bit by slot. Files that do not say so have what they have.
static nd_status exchange_made(nd_state_stream *stream, const nd_optimizer *optimizer,
                               int64_t *made) {
    const nd_optimizer_info *info = &nd__optimizer_infos[optimizer->kind];
    const bool saves = stream->phase == ND__STATE_SAVE;
    int64_t possible = 0;
    for (int slot = 0; slot < ND__SLOTS; slot++)
        possible |= info->slots[slot] ? INT64_C(1) << slot : 0;
    for (size_t i = 0; i < optimizer->count; i++) {
        made[i] = 0;
        for (int slot = 0; slot < ND__SLOTS; slot++) {
            const char *name = info->slots[slot];
            const bool has = saves
                                 ? has_slot(&optimizer->states[i], slot)
                                 : name && nd__state_stream_has(stream, name, optimizer->names[i]);
            made[i] |= has ? INT64_C(1) << slot : 0;
        }
    }
    if (!saves && !nd__state_stream_has(stream, "slots", NULL))
        return ND_OK;
    nd_status status = nd__state_stream_numbers(stream, "slots", ND_I64, optimizer->count, made);
    for (size_t i = 0; status == ND_OK && i < optimizer->count; i++)
        if (made[i] & ~possible)
            status = nd__state_stream_refuse(stream, "slots", "names what its kind has not");
    return status;
}

/// The tensor that a slot has when all is loaded, or that the next step would have: in the check, and
/// when the parameter was cast or moved since the last step, it stays out of the optimizer.
static nd_status fill_slot(nd_state_stream *stream, nd_optimizer *optimizer,
                           nd_parameter_state *state, nd_slot slot, nd_tensor **ret_tensor) {
    nd_tensor *made = NULL;
    nd_status status = ND_OK;
    if (stream->phase == ND__STATE_CHECK || stream->phase == ND__STATE_SAVE) {
        status = nd__optimizer_slots_make_one(stream->operation, optimizer, state, slot, &made);
        if (made)
            status = nd__state_stream_keep_spare(stream, &state->slot[slot], made);
        if (status == ND_OK) // a callback for memory may have closed it
            status = nd__optimizer_check(stream->operation, optimizer);
    } else if (stream->phase == ND__STATE_COMMIT) {
        nd_auto nd_tensor *spare = nd__state_stream_take_spare(stream, &state->slot[slot]);
        if (spare && !nd__edge_set_in(&optimizer->header, &state->slot[slot], spare))
            status = nd__optimizer_check(stream->operation, optimizer);
    }
    *ret_tensor = made ? made : state->slot[slot];
    return status;
}

/// State tensors: "optimizer.first_moment.0.weight". One that was not made when the file was saved
/// is not in it, and goes.
static nd_status exchange_slots(nd_state_stream *stream, nd_optimizer *optimizer) {
    const nd_optimizer_info *info = &nd__optimizer_infos[optimizer->kind];
    int64_t *made = nd__state_stream_scratch(stream, optimizer->count * sizeof *made);
    nd_status status = made ? exchange_made(stream, optimizer, made) : nd_error_get_status();
    for (size_t i = 0; status == ND_OK && i < optimizer->count; i++) {
        nd_parameter_state *state = &optimizer->states[i];
        for (int slot = 0; status == ND_OK && slot < ND__SLOTS; slot++) {
            if (!info->slots[slot])
                continue;
            if (!(made[i] >> slot & 1)) {
                if (stream->phase == ND__STATE_COMMIT)
                    nd__edge_set_in(&optimizer->header, &state->slot[slot], NULL);
                continue;
            }
            nd_tensor *tensor;
            status = fill_slot(stream, optimizer, state, (nd_slot)slot, &tensor);
            if (status == ND_OK)
                status =
                    nd__state_stream_tensor(stream, info->slots[slot], optimizer->names[i], tensor);
        }
    }
    return status;
}

// -------------------------------------------------------------------------------------------------
// schedules

static bool is_part(const nd_state_stream *stream, const void *object) {
    for (size_t i = 0; i < nd_list_get_size(stream->objects); i++)
        if (nd_list_get(stream->objects, i) == object)
            return true;
    return false;
}

/// Whether the rates that these become can be set.
static nd_status check_application(const nd_state_stream *stream, const nd_schedule *schedule,
                                   const double *bases) {
    nd_status status = nd__optimizer_check(stream->operation, schedule->optimizer);
    if (status != ND_OK ||
        nd__schedule_check_rates(stream->operation, schedule, schedule->base_count, bases) == ND_OK)
        return status;
    return nd__state_stream_refuse(stream, "rates", "become rates that no optimizer may have");
}

static nd_status exchange_schedule(nd_state_stream *stream, nd_schedule *schedule) {
    nd_status status = nd__schedule_check(stream->operation, schedule);
    if (status == ND_OK && !schedule->optimizer)
        status = nd__error(ND_ERROR_STATE, "%s: the schedule '%s' was not started",
                           stream->operation, stream->part);
    if (status != ND_OK)
        return status;
    int64_t steps = schedule->now.steps;
    status = nd__state_stream_numbers(stream, "steps", ND_I64, 1, &steps);
    if (status == ND_OK && steps < 0)
        status = nd__state_stream_refuse(stream, "steps", "is negative");
    double *bases = nd__state_stream_scratch(stream, schedule->base_count * sizeof *bases);
    if (!bases)
        return nd_error_get_status();
    memcpy(bases, schedule->bases, schedule->base_count * sizeof *bases);
    if (status == ND_OK)
        status = nd__state_stream_numbers(stream, "rates", ND_F64, schedule->base_count, bases);
    if (status == ND_OK)
        status = check_options(stream, "rates", ND_OPTIMIZER_RATE, schedule->base_count, bases);
    // Of an optimizer that is a part itself the rates are read, perhaps set since the last step.
    const bool applies = !is_part(stream, schedule->optimizer);
    nd__schedule_keep(schedule);
    int number = 0;
    if (status == ND_OK)
        status = exchange_node(stream, schedule, &number);
    schedule->now.steps = steps;
    if (status == ND_OK && applies)
        status = check_application(stream, schedule, bases);
    if (status != ND_OK || stream->phase != ND__STATE_COMMIT) {
        nd__schedule_take_back(schedule);
        return status;
    }
    memcpy(schedule->bases, bases, schedule->base_count * sizeof *bases);
    if (applies)
        nd__schedule_apply(schedule);
    return ND_OK;
}

/// The kind of each schedule of the tree, and what a plateau has come to, which is so from then on.
static nd_status exchange_node(nd_state_stream *stream, nd_schedule *node, int *number) {
    char name[32];
    nd_schedule_state *now = &node->now;
    int64_t counts[] = {node->kind, now->bad, now->cooldown};
    double metrics[] = {now->best, now->factor};
    snprintf(name, sizeof name, "counts.%d", *number);
    nd_status status = nd__state_stream_numbers(stream, name, ND_I64, 3, counts);
    if (status == ND_OK && counts[0] != (int64_t)node->kind)
        status = nd__state_stream_refuse(stream, name, "is of another kind of schedule");
    snprintf(name, sizeof name, "metrics.%d", (*number)++);
    if (status == ND_OK)
        status = nd__state_stream_numbers(stream, name, ND_F64, 2, metrics);
    if (status == ND_OK &&
        (counts[1] < 0 || counts[2] < 0 || !(metrics[1] >= 0 && metrics[1] < INFINITY)))
        status = nd__state_stream_refuse(stream, name, "is of no plateau");
    if (status == ND_OK) {
        now->bad = counts[1];
        now->cooldown = counts[2];
        now->best = metrics[0];
        now->factor = metrics[1];
    }
    for (size_t i = 0; status == ND_OK && i < node->count; i++)
        status = exchange_node(stream, node->children[i], number);
    return status;
}

// -------------------------------------------------------------------------------------------------
// data sets

/// Whether a file's numbers can be those of any number of ranks: they differ in a rest that is no
/// batch of its own where it has fewer samples than there are ranks.
static bool is_position(const nd_dataset_position *there) {
    int64_t batches = there->samples / there->batch, rest = there->samples % there->batch;
    return (there->batches == batches ||
            (there->batches == batches + 1 && rest > 0 && !(there->options & 2))) &&
           there->position >= 0 && there->position <= there->batches;
}

/// The position here of the samples that follow in a file of another number of ranks.
static nd_status translate_position(const nd_state_stream *stream, const nd_dataset_position *here,
                                    nd_dataset_position *there) {
    if (there->samples != here->samples || there->batch != here->batch ||
        there->options != here->options)
        return nd__state_stream_refuse(stream, "position",
                                       "is of a data set of another size, batch or order");
    if (!is_position(there))
        return nd__state_stream_refuse(stream, "position", "is none of this data set");
    const bool at_end = there->position == there->batches;
    if (!at_end && there->position == here->batches)
        return nd__state_stream_refuse(
            stream, "position",
            "is before a last batch that has fewer samples than there are ranks here, where it is "
            "a part of the batch before: load it with as many ranks as saved it, or fewer");
    there->batches = here->batches;
    if (at_end)
        there->position = here->batches;
    return ND_OK;
}

static nd_status exchange_dataset(nd_state_stream *stream, nd_dataset *dataset) {
    nd_dataset_position here, there;
    nd_status status = nd__dataset_get_position(stream->operation, dataset, &here);
    if (status != ND_OK)
        return status;
    there = here;
    _Static_assert(sizeof there == ND__DATASET_POSITION_NUMBERS * sizeof(int64_t), "all of i64");
    status =
        nd__state_stream_numbers(stream, "position", ND_I64, ND__DATASET_POSITION_NUMBERS, &there);
    if (status == ND_OK)
        status = translate_position(stream, &here, &there);
    if (status == ND_OK && stream->phase == ND__STATE_COMMIT)
        nd__dataset_set_position(dataset, &there);
    return status;
}

// -------------------------------------------------------------------------------------------------
// averages and scales

static nd_status exchange_ema(nd_state_stream *stream, nd_ema *ema) {
    nd_status status = nd__ema_check(stream->operation, ema);
    if (status == ND_OK && ema->applied)
        status = nd__error(ND_ERROR_STATE, "%s: the averages '%s' are applied (nd_ema_restore)",
                           stream->operation, stream->part);
    for (size_t i = 0; status == ND_OK && i < ema->count; i++)
        status = nd__state_stream_tensor(stream, "average", ema->names[i], ema->of[i].average);
    return status;
}

static nd_status exchange_loss_scaler(nd_state_stream *stream, nd_loss_scaler *scaler) {
    nd_status status = nd__loss_scaler_check(stream->operation, scaler);
    if (status != ND_OK)
        return status;
    double scale = scaler->scale;
    int64_t steps = scaler->steps;
    status = nd__state_stream_numbers(stream, "scale", ND_F64, 1, &scale);
    if (status == ND_OK && !(scale >= ND__LEAST_SCALE))
        status = nd__state_stream_refuse(stream, "scale", "is below the least scale, 2^-126");
    if (status == ND_OK)
        status = nd__state_stream_numbers(stream, "steps", ND_I64, 1, &steps);
    if (status == ND_OK && steps < 0)
        status = nd__state_stream_refuse(stream, "steps", "is negative");
    if (status == ND_OK && stream->phase == ND__STATE_COMMIT) {
        scaler->scale = scale;
        scaler->steps = steps;
    }
    return status;
}
