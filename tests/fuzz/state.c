// The harness of nd_load_state. The input is tried as the file of several trainings, made anew for
// it. What one of them accepts is saved and loaded into another one of its kind, which then saves
// the same bytes; one that refuses it saves what it did before.
#include "tests/fuzz/reader.h"
#include "tests/fuzz/text.h"
#include "tests/training.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RATES = 2 };

typedef struct training {
    nd_state *state;
    nd_optimizer *scheduled; ///< borrowed: in no part, its rates are set by a schedule; or NULL
} training;

// --------------------------------------------------------------------------------- what is loaded

static void must(bool works) {
    if (!works)
        fuzz_die("no training: %s", nd_error_get_message());
}

static void step(const nd_module *module, nd_optimizer *optimizer) {
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter_at(module, 0, NULL));
    nd_auto nd_tensor *grad = nd_ones_like(weight);
    must(nd_set_grad(weight, grad) == ND_OK && nd_optimizer_step(optimizer) == ND_OK &&
         nd_set_grad(weight, NULL) == ND_OK);
}

/// A module with buffers, one that draws keys, and Adam with two groups. After a step the first
/// parameter has moments; before it none has.
static void add_model(training *made, bool stepped) {
    nd_auto nd_module *module =
        ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 2, 1, false), nd_batch_norm_module(1, NULL),
                      nd_dropout_module(nd_key_new(2), 0.5));
    nd_auto nd_optimizer *adam = nd_adam(module, NULL);
    const nd_tensor *bias = nd_module_get_parameter(module, "1.bias");
    must(nd_optimizer_add_group(adam, 1, &bias, NULL) == ND_OK &&
         nd_state_add_optimizer(made->state, "o", adam) == ND_OK &&
         nd_state_add_module(made->state, "m", module) == ND_OK);
    if (stepped)
        step(module, adam);
}

static void add_fresh_model(training *made) {
    add_model(made, false);
}

static void add_stepped_model(training *made) {
    add_model(made, true);
}

/// Parameters of a half, with masters, and SGD; a schedule of an optimizer that is a part.
static void add_halves(training *made) {
    nd_auto nd_module *module = nd_linear_module(nd_key_new(3), 1, 2, true);
    must(module && nd_module_cast(module, ND_F16) == ND_OK);
    nd_auto nd_optimizer *sgd = sgd_of(module, 0.5, 0.9, 0);
    nd_auto nd_schedule *cosine = nd_cosine_schedule(0.1, 5);
    must(nd_schedule_start(cosine, sgd) == ND_OK && nd_schedule_step(cosine) == ND_OK &&
         nd_state_add_module(made->state, "m", module) == ND_OK &&
         nd_state_add_optimizer(made->state, "o", sgd) == ND_OK &&
         nd_state_add_schedule(made->state, "s", cosine) == ND_OK);
    step(module, sgd);
}

/// A tree of schedules, of an optimizer that is no part and whose rates they set.
static void add_schedules(training *made) {
    nd_auto nd_module *module = nd_linear_module(nd_key_new(4), 1, 1, true);
    nd_auto nd_optimizer *sgd = sgd_of(module, 0.5, 0, 0);
    nd_plateau_options options = ND_PLATEAU_OPTIONS_INIT;
    options.patience = 0;
    nd_auto nd_schedule *schedule = nd_product_schedule(
        2, (nd_schedule *[]){nd_plateau_schedule(&options), nd_linear_schedule(0.5, 1, 4)});
    const nd_tensor *bias = nd_module_get_parameter(module, "bias");
    must(nd_optimizer_add_group(sgd, 1, &bias, NULL) == ND_OK &&
         nd_optimizer_set_option(sgd, 1, ND_OPTIMIZER_RATE, 0.25) == ND_OK &&
         nd_schedule_start(schedule, sgd) == ND_OK && nd_schedule_step_with(schedule, 1) == ND_OK &&
         nd_schedule_step_with(schedule, 2) == ND_OK &&
         nd_state_add_schedule(made->state, "s", schedule) == ND_OK);
    made->scheduled = sgd;
}

/// All other kinds of parts.
static void add_others(training *made) {
    nd_auto nd_tensor *samples = nd_zeros(ND_SHAPE(5, 1), ND_F32);
    nd_auto nd_tensor *labels = nd_zeros(ND_SHAPE(5), ND_I64);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 2;
    options.shuffle = true;
    options.key = nd_key_new(5);
    nd_auto nd_dataset *dataset = nd_dataset_new(samples, labels, &options);
    nd_auto nd_module *module = nd_linear_module(nd_key_new(6), 1, 1, false);
    nd_auto nd_ema *ema = nd_ema_new(module, 0.5);
    nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(NULL);
    nd_auto nd_tensor *tensor = nd_arange(0, 3, 1, ND_I16);
    must(nd_dataset_start(dataset, 3) == ND_OK &&
         nd_state_add_dataset(made->state, "d", dataset) == ND_OK &&
         nd_state_add_ema(made->state, "e", ema) == ND_OK &&
         nd_state_add_loss_scaler(made->state, "l", scaler) == ND_OK &&
         nd_state_add_tensor(made->state, "t", tensor) == ND_OK &&
         nd_state_set_i64(made->state, "i", -1) == ND_OK &&
         nd_state_set_f64(made->state, "f", 0.5) == ND_OK &&
         nd_state_set_key(made->state, "k", nd_key_new(7)) == ND_OK);
}

static void (*const kinds[])(training *made) = {add_fresh_model, add_stepped_model, add_halves,
                                                add_schedules, add_others};
enum { KINDS = sizeof kinds / sizeof *kinds };
static int kind; ///< of the trainings that are made now

static training make(void) {
    training made = {nd_state_new(), NULL};
    must(made.state);
    kinds[kind](&made);
    return made;
}

// ------------------------------------------------------------------------------------ what it saves

/// A state's file as it is written, to be freed.
typedef struct content {
    uint8_t *bytes;
    size_t size;
} content;

static content save(const nd_state *state) {
    content saved = {NULL, 0};
    const char *path = fuzz_path();
    if (nd_save_state(state, path) != ND_OK)
        fuzz_die("a state cannot be saved: %s", nd_error_get_message());
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        fuzz_die("a state was saved and is not there");
    saved.size = (size_t)ftell(file);
    saved.bytes = malloc(saved.size);
    rewind(file);
    if (!saved.bytes || fread(saved.bytes, 1, saved.size, file) != saved.size)
        fuzz_die("a state was saved and cannot be read");
    fclose(file);
    unlink(path);
    return saved;
}

static bool same(content a, content b) {
    return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}

static bool equal(const void *a, const void *b) {
    content saved_a = save(a), saved_b = save(b);
    bool answer = same(saved_a, saved_b);
    free(saved_a.bytes);
    free(saved_b.bytes);
    return answer;
}

// -------------------------------------------------------------------------------------- the verdict

static void read_rates(const training *of, double *rates) {
    for (size_t i = 0; i < RATES; i++)
        rates[i] = of->scheduled ? nd_optimizer_get_option(of->scheduled, i, ND_OPTIMIZER_RATE) : 0;
}

/// What each kind is before it is loaded, once.
static const content *before(void) {
    static content contents[KINDS];
    if (!contents[kind].bytes) {
        training made = make();
        contents[kind] = save(made.state);
        nd_release(made.state);
    }
    return &contents[kind];
}

static void *load(const char *path) {
    training made = make();
    double rates[RATES], rates_after[RATES];
    read_rates(&made, rates);
    nd_status status = nd_load_state(made.state, path);
    read_rates(&made, rates_after);
    for (size_t i = 0; i < RATES; i++)
        if (!(rates_after[i] >= 0 && rates_after[i] < (double)INFINITY))
            fuzz_die("a state has set the rate %g", rates_after[i]);
    if (status == ND_OK)
        return made.state;
    content after = save(made.state);
    if (!same(*before(), after) || memcmp(rates, rates_after, sizeof rates) != 0)
        fuzz_die("a state that was refused has changed");
    free(after.bytes);
    nd_release(made.state);
    return NULL;
}

static void check_round_trip(const nd_state *state) {
    content saved = save(state);
    const char *path = fuzz_file(saved.bytes, saved.size);
    training again = make();
    if (nd_load_state(again.state, path) != ND_OK)
        fuzz_die("a state that was saved cannot be loaded: %s", nd_error_get_message());
    content saved_again = save(again.state);
    if (!same(saved, saved_again))
        fuzz_die("a state changed on its way through a file");
    free(saved.bytes);
    free(saved_again.bytes);
    nd_release(again.state);
}

/// What was in the file is in the state, bit by bit. A data set's position may be another one that
/// means the same, and one entry may be missing in the file.
static void check_taken(const nd_state *state, const uint8_t *data, size_t size) {
    char name[256];
    content saved = save(state);
    nd_auto nd_list *given = nd_load_safetensors(fuzz_file(data, size));
    nd_auto nd_list *kept = nd_load_safetensors(fuzz_file(saved.bytes, saved.size));
    if (!given || !kept)
        fuzz_die("a state's file is no safetensors file: %s", nd_error_get_message());
    size_t found = 0;
    for (size_t i = 0; i < nd_list_get_size(given); i++)
        for (size_t k = 0; k < nd_list_get_size(kept); k++) {
            const nd_tensor *a = (const nd_tensor *)nd_list_get(given, i);
            const nd_tensor *b = (const nd_tensor *)nd_list_get(kept, k);
            bool moves = strcmp(nd_get_name(a, name, sizeof name), "d.position") == 0;
            char other[256];
            found += moves ? strcmp(nd_get_name(b, other, sizeof other), name) == 0
                           : fuzz_tensors_equal(a, b);
        }
    size_t more = nd_list_get_size(kept) - nd_list_get_size(given);
    if (found != nd_list_get_size(given) || more > 1)
        fuzz_die("a state has other content than the file it was loaded from");
    free(saved.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (kind = 0; kind < KINDS; kind++) {
        before();
        nd_state *state = fuzz_load(data, size, load, equal);
        nd_error_clear();
        if (state) {
            check_taken(state, data, size);
            check_round_trip(state);
        }
        nd_release(state);
        fuzz_end_input();
    }
    return 0;
}
