// Calls of what a training has beside modules: optimizers of every kind and their groups,
// schedules, averages, loss scalers, autocast, and the file of its state.
#include "tests/fuzz/program.h"
#include "tests/training.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// -------------------------------------------------------------------------------------- optimizers

static nd_optimizer *plain_optimizer(const nd_module *module, uint8_t which) {
    switch (which % 6) {
    case 0:
        return nd_sgd(module, NULL);
    case 1:
        return nd_adam(module, NULL);
    case 2:
        return nd_adamw(module, NULL);
    case 3:
        return nd_rmsprop(module, NULL);
    case 4:
        return nd_adagrad(module, NULL);
    default:
        return nd_lion(module, NULL);
    }
}

static nd_optimizer *optimizer_with_options(const nd_module *module, const fuzz_step *s) {
    static const double numbers[] = {0.1, 0, 0.9, 1, -1, 1e-8, (double)INFINITY, 0.5};
    const double first = numbers[s->d % 8], second = numbers[s->d / 8 % 8];
    nd_rmsprop_options rmsprop = ND_RMSPROP_OPTIONS_INIT;
    nd_adagrad_options adagrad = ND_ADAGRAD_OPTIONS_INIT;
    nd_lion_options lion = ND_LION_OPTIONS_INIT;
    switch (s->c / 8 % 3) {
    case 0:
        rmsprop.alpha = first;
        rmsprop.momentum = second;
        rmsprop.centered = s->d / 64 % 2;
        return nd_rmsprop(module, &rmsprop);
    case 1:
        adagrad.rate_decay = first;
        adagrad.initial = second;
        return nd_adagrad(module, &adagrad);
    default:
        lion.beta1 = first;
        lion.weight_decay = second;
        return nd_lion(module, &lion);
    }
}

static void any_optimizer(fuzz_actor *me, const fuzz_step *s) {
    const nd_module *module = fuzz_pick(me, FUZZ_MODULE, s->b);
    nd_optimizer *optimizer =
        s->c % 8 < 6 ? plain_optimizer(module, s->c % 8) : optimizer_with_options(module, s);
    fuzz_expect(me, optimizer);
    fuzz_put(me, FUZZ_OPTIMIZER, s->a, optimizer);
}

static void add_group(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *parameters[2] = {fuzz_tensor(me, s->b), fuzz_tensor(me, s->c)};
    nd_optimizer *optimizer = fuzz_pick_to_write(me, FUZZ_OPTIMIZER, s->a);
    size_t before = nd_optimizer_get_group_count(optimizer), group = 0;
    if (before > 8)
        return;
    nd_status status = nd_optimizer_add_group(optimizer, s->d % 3, parameters, &group);
    fuzz_expect(me, status == ND_OK);
    if (!me->disturbed && nd_optimizer_get_group_count(optimizer) != before + (status == ND_OK))
        fuzz_die("an optimizer has another number of groups than it was given");
    if (status == ND_OK && !me->disturbed && group != before)
        fuzz_die("a new group has another number than the next one");
}

/// What was set is read.
static void optimizer_option(fuzz_actor *me, const fuzz_step *s) {
    static const double values[] = {0.1, 0, 0.9, 1, -1, 1e-8, (double)NAN, 0.5};
    nd_optimizer *optimizer = fuzz_pick_to_write(me, FUZZ_OPTIMIZER, s->a);
    const nd_optimizer_option option =
        (nd_optimizer_option)(s->c % (ND_OPTIMIZER_OPTION_COUNT + 2) - 1);
    const double value = values[s->d % 8];
    const size_t group = s->b % 4;
    if (s->b & 16) {
        fuzz_expect(me, nd_optimizer_set_rate(optimizer, value) == ND_OK);
        return;
    }
    const double before = nd_optimizer_get_option(optimizer, group, option);
    fuzz_expect(me, !isnan(before));
    nd_error_clear();
    nd_status status = nd_optimizer_set_option(optimizer, group, option, value);
    fuzz_expect(me, status == ND_OK);
    const double expected = status == ND_OK ? value : before;
    const double after = nd_optimizer_get_option(optimizer, group, option);
    if (isnan(expected) ? !isnan(after) : after != expected)
        fuzz_die("an optimizer's option is %g where it should be %g", after, expected);
    nd_error_clear();
    fuzz_expect(me, true);
}

// --------------------------------------------------------------------------------------- schedules

/// One of several schedules, of the handles in the slots that a number means.
static nd_schedule *join(fuzz_actor *me, const fuzz_step *s) {
    static const int64_t milestones[] = {1, 3};
    nd_schedule *parts[3] = {NULL, NULL, NULL};
    const size_t count = s->d % 4;
    for (uint8_t i = 0; i < count; i++)
        parts[i] = nd_retain((nd_schedule *)fuzz_pick(me, FUZZ_SCHEDULE, (uint8_t)(s->c + i)));
    return s->b % 9 == 7 ? nd_product_schedule(count, parts)
                         : nd_sequence_schedule(count, parts, milestones);
}

static void new_schedule(fuzz_actor *me, const fuzz_step *s) {
    static const int64_t milestones[] = {1, 2, 5};
    const double first = fuzz_value(s->c), second = fuzz_value(s->d);
    const int64_t steps = s->d == 255 ? INT64_MAX : s->d / 16;
    nd_one_cycle_options cycle = ND_ONE_CYCLE_OPTIONS_INIT;
    nd_plateau_options plateau = ND_PLATEAU_OPTIONS_INIT;
    nd_schedule *schedule = NULL;
    switch (s->b % 9) {
    case 0:
        schedule = nd_step_schedule(steps, first);
        break;
    case 1:
        schedule = nd_multi_step_schedule(first, s->d % 4, milestones);
        break;
    case 2:
        schedule = nd_exponential_schedule(first);
        break;
    case 3:
        schedule = nd_cosine_schedule(first, steps);
        break;
    case 4:
        schedule = nd_linear_schedule(first, second, steps);
        break;
    case 5:
        cycle.steps = steps;
        cycle.rise = first;
        cycle.linear = s->d % 2;
        schedule = nd_one_cycle_schedule(&cycle);
        break;
    case 6:
        plateau.patience = s->c / 16 % 4;
        plateau.cooldown = s->d % 4;
        plateau.maximize = s->d / 4 % 2;
        plateau.absolute = s->d / 8 % 2;
        schedule = nd_plateau_schedule(s->c == 1 ? NULL : &plateau);
        break;
    default:
        schedule = join(me, s);
    }
    fuzz_expect(me, schedule);
    fuzz_put(me, FUZZ_SCHEDULE, s->a, schedule);
}

static void schedule_start(fuzz_actor *me, const fuzz_step *s) {
    nd_optimizer *optimizer = fuzz_pick_to_write(me, FUZZ_OPTIMIZER, s->b);
    nd_schedule *schedule = fuzz_pick_to_write(me, FUZZ_SCHEDULE, s->a);
    fuzz_expect(me, nd_schedule_start(schedule, optimizer) == ND_OK);
}

/// A step counts one, and one that fails counts nothing.
static void schedule_step(fuzz_actor *me, const fuzz_step *s) {
    nd_schedule *schedule = fuzz_pick_to_write(me, FUZZ_SCHEDULE, s->a);
    const int64_t before = nd_schedule_get_steps(schedule);
    nd_status status =
        s->b % 4 ? nd_schedule_step(schedule) : nd_schedule_step_with(schedule, fuzz_value(s->c));
    fuzz_expect(me, status == ND_OK);
    if (!me->disturbed && nd_schedule_get_steps(schedule) != before + (status == ND_OK))
        fuzz_die("a schedule has made another number of steps than it was asked for");
    nd_error_clear();
    fuzz_expect(me, !isnan(nd_schedule_get_factor(schedule)));
}

// ------------------------------------------------------------------------- averages, loss scalers

static void new_ema(fuzz_actor *me, const fuzz_step *s) {
    static const double decays[] = {0.5, 0, 0.999, 1, -1};
    nd_ema *ema = nd_ema_new(fuzz_pick(me, FUZZ_MODULE, s->b), decays[s->c % 5]);
    fuzz_expect(me, ema);
    fuzz_put(me, FUZZ_EMA, s->a, ema);
}

static void ema_change(fuzz_actor *me, const fuzz_step *s) {
    nd_ema *ema = fuzz_pick_to_write(me, FUZZ_EMA, s->a);
    nd_status status = s->b % 3 == 0   ? nd_ema_update(ema)
                       : s->b % 3 == 1 ? nd_ema_apply(ema)
                                       : nd_ema_restore(ema);
    fuzz_expect(me, status == ND_OK);
}

static void ema_average(fuzz_actor *me, const fuzz_step *s) {
    static const char *const names[] = {"weight", "0.weight", "bias", "no.such"};
    const nd_tensor *average = nd_ema_get_average(fuzz_pick(me, FUZZ_EMA, s->b), names[s->c % 4]);
    fuzz_expect(me, average);
    if (average)
        fuzz_put(me, FUZZ_TENSOR, s->a, nd_retain(average));
}

static void new_loss_scaler(fuzz_actor *me, const fuzz_step *s) {
    nd_loss_scaler_options options = ND_LOSS_SCALER_OPTIONS_INIT;
    options.scale = fuzz_value(s->b);
    options.growth = fuzz_value(s->c);
    options.interval = s->d % 4;
    nd_loss_scaler *scaler = nd_loss_scaler_new(s->d / 4 % 2 ? NULL : &options);
    fuzz_expect(me, scaler);
    fuzz_put(me, FUZZ_SCALER, s->a, scaler);
}

static void scale_loss(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *loss = fuzz_tensor(me, s->c);
    if (nd_get_numel(loss) > 200)
        return;
    nd_tensor *scaled = nd_loss_scaler_scale(fuzz_pick(me, FUZZ_SCALER, s->b), loss);
    fuzz_expect(me, scaled);
    fuzz_put(me, FUZZ_TENSOR, s->a, scaled);
}

static void loss_scaler_step(fuzz_actor *me, const fuzz_step *s) {
    nd_optimizer *optimizer = fuzz_pick_to_write(me, FUZZ_OPTIMIZER, s->b);
    nd_loss_scaler *scaler = fuzz_pick_to_write(me, FUZZ_SCALER, s->a);
    bool stepped = false;
    nd_status status = s->c % 4 ? nd_loss_scaler_step(scaler, optimizer, &stepped)
                                : nd_loss_scaler_unscale(scaler, optimizer);
    fuzz_expect(me, status == ND_OK);
    if (scaler && !(nd_loss_scaler_get_scale(scaler) > 0))
        fuzz_die("a loss scaler has the scale %g", nd_loss_scaler_get_scale(scaler));
}

static void autocast_begin(fuzz_actor *me, const fuzz_step *s) {
    static const nd_dtype dtypes[] = {ND_BF16, ND_F16, ND_F32, ND_I32};
    if (me->autocast_block_count == FUZZ_BLOCKS)
        return;
    me->autocast_blocks[me->autocast_block_count++] = nd__autocast_block_begin(dtypes[s->a % 4]);
    if (nd_get_autocast_dtype() != (s->a % 4 == 3 ? ND_F32 : dtypes[s->a % 4]))
        fuzz_die("a block casts to another dtype than was asked for");
    fuzz_expect(me, s->a % 4 != 3);
}

static void autocast_end(fuzz_actor *me, const fuzz_step *s) {
    (void)s;
    if (me->autocast_block_count)
        nd__autocast_block_end(&me->autocast_blocks[--me->autocast_block_count]);
}

// --------------------------------------------------------------------------------------- data sets

/// What a data set says of itself fits itself.
static void dataset_look(fuzz_actor *me, const fuzz_step *s) {
    const nd_dataset *dataset = fuzz_pick(me, FUZZ_DATASET, s->a);
    if (!dataset || nd_is_closed(dataset))
        return;
    const int64_t batches = nd_dataset_get_batches(dataset), size = nd_dataset_get_size(dataset);
    const int64_t position = nd_dataset_get_position(dataset);
    if (batches > size || position < 0 || position > batches)
        fuzz_die("a data set is at batch %lld of %lld of %lld samples", (long long)position,
                 (long long)batches, (long long)size);
    if (!(nd_dataset_get_weight(dataset) > 0))
        fuzz_die("a batch without weight");
    nd_dataset_get_epoch(dataset);
    fuzz_expect(me, true);
}

// ------------------------------------------------------------------------------------------ states

static void new_state(fuzz_actor *me, const fuzz_step *s) {
    nd_state *state = nd_state_new();
    fuzz_expect(me, state);
    fuzz_put(me, FUZZ_STATE, s->a, state);
}

static const char *part_name(uint8_t number) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "", "dot.ted"};
    return names[number % 8];
}

static void state_add(fuzz_actor *me, const fuzz_step *s) {
    static const fuzz_kind kinds[] = {FUZZ_MODULE, FUZZ_OPTIMIZER, FUZZ_SCHEDULE, FUZZ_DATASET,
                                      FUZZ_EMA,    FUZZ_SCALER,    FUZZ_TENSOR};
    const void *part = fuzz_pick(me, kinds[s->d % 7], s->b);
    nd_state *state = fuzz_pick_to_write(me, FUZZ_STATE, s->a);
    const char *name = part_name(s->c);
    nd_status status = ND_OK;
    switch (kinds[s->d % 7]) {
    case FUZZ_MODULE:
        status = nd_state_add_module(state, name, part);
        break;
    case FUZZ_OPTIMIZER:
        status = nd_state_add_optimizer(state, name, part);
        break;
    case FUZZ_SCHEDULE:
        status = nd_state_add_schedule(state, name, part);
        break;
    case FUZZ_DATASET:
        status = nd_state_add_dataset(state, name, part);
        break;
    case FUZZ_EMA:
        status = nd_state_add_ema(state, name, part);
        break;
    case FUZZ_SCALER:
        status = nd_state_add_loss_scaler(state, name, part);
        break;
    default:
        if (nd_get_numel(part) < 100)
            status = nd_state_add_tensor(state, name, part);
    }
    fuzz_expect(me, status == ND_OK);
}

/// A number that was set is read.
static void state_number(fuzz_actor *me, const fuzz_step *s) {
    nd_state *state = fuzz_pick_to_write(me, FUZZ_STATE, s->a);
    const char *name = part_name(s->b);
    int64_t i64 = 0;
    double f64 = 0;
    nd_key key = {0, 0};
    nd_status set, get;
    switch (s->c % 3) {
    case 0:
        set = nd_state_set_i64(state, name, s->d);
        fuzz_expect(me, set == ND_OK);
        get = nd_state_get_i64(state, name, &i64);
        break;
    case 1:
        set = nd_state_set_f64(state, name, s->d);
        fuzz_expect(me, set == ND_OK);
        get = nd_state_get_f64(state, name, &f64);
        break;
    default:
        set = nd_state_set_key(state, name, nd_key_new(s->d));
        fuzz_expect(me, set == ND_OK);
        get = nd_state_get_key(state, name, &key);
    }
    fuzz_expect(me, set == ND_OK && get == ND_OK);
    if (!me->disturbed && set == ND_OK &&
        (get != ND_OK || (s->c % 3 == 0 && i64 != s->d) || (s->c % 3 == 1 && f64 != s->d) ||
         (s->c % 3 == 2 && key.seed != nd_key_new(s->d).seed)))
        fuzz_die("a state has another number than it was given");
}

enum { FILES = 3 }; ///< two that programs write, and one for comparisons
static char folder[48];

static void remove_folder(void) {
    rmdir(folder);
}

/// Path of a file in a folder of this process's own, in memory where that can be.
static const char *file_path(unsigned number) {
    static char paths[FILES][64];
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "%s/ndarc-program-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (!mkdtemp(folder) || atexit(remove_folder) != 0)
            fuzz_die("no folder for files");
    }
    snprintf(paths[number % FILES], sizeof paths[0], "%s/%u", folder, number % FILES);
    return paths[number % FILES];
}

void fuzz_remove_files(void) {
    for (unsigned i = 0; folder[0] && i < FILES; i++)
        unlink(file_path(i));
}

typedef struct content {
    char *bytes;
    size_t size;
} content;

/// What a state would be saved as, to be freed; nothing when it cannot be saved.
static content saved(const nd_state *state) {
    content of = {NULL, 0};
    FILE *file = nd_save_state(state, file_path(FILES - 1)) == ND_OK
                     ? fopen(file_path(FILES - 1), "rb")
                     : NULL;
    nd_error_clear();
    if (!file)
        return of;
    fseek(file, 0, SEEK_END);
    of.size = (size_t)ftell(file);
    of.bytes = malloc(of.size);
    rewind(file);
    if (!of.bytes || fread(of.bytes, 1, of.size, file) != of.size)
        fuzz_die("a file cannot be read that was just written");
    fclose(file);
    return of;
}

static bool same(const content *a, const content *b) {
    return a->size == b->size && memcmp(a->bytes, b->bytes, a->size) == 0;
}

/// Callbacks run no further steps: what a state holds is in use meanwhile.
static void save_state(fuzz_actor *me, const fuzz_step *s) {
    const nd_state *state = fuzz_pick(me, FUZZ_STATE, s->a);
    bool quiet = me->quiet;
    me->quiet = true;
    fuzz_expect(me, nd_save_state(state, file_path(s->b % 2)) == ND_OK);
    me->quiet = quiet;
}

/// What was loaded is saved and loaded again to the same file; what was refused has changed
/// nothing.
static void load_state(fuzz_actor *me, const fuzz_step *s) {
    const nd_state *state = fuzz_pick(me, FUZZ_STATE, s->a);
    bool quiet = me->quiet;
    unsigned after = me->fail_after, count = me->fail_count;
    me->quiet = true;
    fuzz_disarm(me);
    content before = saved(state);
    me->fail_after = after;
    me->fail_count = count;
    nd_status status = nd_load_state(state, file_path(s->b % 2));
    fuzz_expect(me, status == ND_OK);
    fuzz_disarm(me);
    nd_error_clear();
    content loaded = saved(state);
    if (status != ND_OK && before.bytes && loaded.bytes && !same(&before, &loaded))
        fuzz_die("a state that was refused has changed");
    if (status == ND_OK && loaded.bytes && nd_load_state(state, file_path(FILES - 1)) == ND_OK) {
        content again = saved(state);
        if (again.bytes && !same(&loaded, &again))
            fuzz_die("a state changed on its way through a file");
        free(again.bytes);
    }
    nd_error_clear();
    free(before.bytes);
    free(loaded.bytes);
    me->quiet = quiet;
}

static void parameters_file(fuzz_actor *me, const fuzz_step *s) {
    const nd_module *module = fuzz_pick_to_write(me, FUZZ_MODULE, s->a);
    bool quiet = me->quiet;
    me->quiet = true;
    nd_status status = s->b & 2 ? nd_load_parameters(module, file_path(s->b % 2))
                                : nd_save_parameters(module, file_path(s->b % 2));
    fuzz_expect(me, status == ND_OK);
    me->quiet = quiet;
}

const fuzz_call fuzz_training_calls[] = {
    {"any_optimizer", any_optimizer, FUZZ_ALONE | FUZZ_QUEUES},
    {"add_group", add_group, FUZZ_ALONE | FUZZ_QUEUES},
    {"optimizer_option", optimizer_option, FUZZ_ALONE | FUZZ_QUEUES},
    {"new_schedule", new_schedule, FUZZ_ALONE | FUZZ_QUEUES},
    {"schedule_start", schedule_start, FUZZ_ALONE | FUZZ_QUEUES},
    {"schedule_step", schedule_step, FUZZ_ALONE | FUZZ_QUEUES},
    {"new_ema", new_ema, FUZZ_ALONE | FUZZ_QUEUES},
    {"ema_change", ema_change, FUZZ_ALONE},
    {"ema_average", ema_average, FUZZ_ALONE | FUZZ_QUEUES},
    {"new_loss_scaler", new_loss_scaler, FUZZ_ALONE | FUZZ_QUEUES},
    {"scale_loss", scale_loss, FUZZ_ALONE | FUZZ_QUEUES},
    {"loss_scaler_step", loss_scaler_step, FUZZ_ALONE},
    {"autocast_begin", autocast_begin, FUZZ_OUTER | FUZZ_QUEUES},
    {"autocast_end", autocast_end, FUZZ_OUTER | FUZZ_QUEUES},
    {"dataset_look", dataset_look, FUZZ_ALONE | FUZZ_QUEUES},
    {"new_state", new_state, FUZZ_ALONE | FUZZ_QUEUES},
    {"state_add", state_add, FUZZ_ALONE | FUZZ_QUEUES},
    {"state_number", state_number, FUZZ_ALONE | FUZZ_QUEUES},
    {"save_state", save_state, FUZZ_OUTER | FUZZ_ALONE},
    {"load_state", load_state, FUZZ_OUTER | FUZZ_ALONE},
    {"parameters_file", parameters_file, FUZZ_OUTER | FUZZ_ALONE},
    {0},
};
