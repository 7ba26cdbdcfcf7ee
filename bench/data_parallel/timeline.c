// Each rank is the only one of a communicator for this. A hook on each parameter notes the time: its
// gradient is complete then, and is copied into its bucket.
#include "bench/data_parallel/timeline.h"

#include "bench/support/measure.h"

#include <math.h>

#include <string.h>

#if ND_HAVE_MPI
#include <mpi.h>

enum { PARAMETERS = 64, PASSES = 15, WARM_UP = 3 };
static const double first_bucket_bytes = 1 << 20, bucket_bytes = 25 << 20;

/// What the hooks write; one timeline is measured at a time.
static struct {
    size_t count;
    const nd_tensor *parameter[PARAMETERS];
    double at[PARAMETERS];
} seen;

static nd_tensor *note(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    for (size_t i = 0; i < seen.count; i++)
        if ((const void *)seen.parameter[i] == (const void *)context)
            seen.at[i] = bench_seconds();
    return NULL;
}

/// Puts a hook at each parameter. Its context is a tensor of its own, of which the parameter's
/// address could not be one: an edge to itself is a cycle.
static bool watch(training *train, nd_tensor **ret_marks, uint64_t *ret_ids) {
    seen.count = nd_module_get_parameter_count(train->model);
    if (seen.count > PARAMETERS)
        return false;
    for (size_t i = 0; i < seen.count; i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(train->model, i, NULL);
        ret_marks[i] = nd_scalar(0, ND_F32);
        seen.parameter[i] = ret_marks[i];
        nd_auto nd_tensor *held = nd_retain(parameter);
        if (!ret_marks[i] || nd_add_hook(held, note, ret_marks[i], &ret_ids[i]) != ND_OK)
            return false;
    }
    return true;
}

static void unwatch(training *train, nd_tensor **marks, const uint64_t *ids) {
    for (size_t i = 0; i < seen.count && i < PARAMETERS; i++) {
        nd_auto nd_tensor *held = nd_retain(nd_module_get_parameter_at(train->model, i, NULL));
        if (ids[i])
            nd_remove_hook(held, ids[i]);
        nd_release(marks[i]);
    }
    seen.count = 0;
}

/// One step; when its parts were over.
static bool pass(training *train, nd_data_parallel *alone, double *ret_forward,
                 double *ret_backward, double *ret_step) {
    double begin = bench_seconds();
    nd_auto nd_tensor *y = nd_module_forward(train->model, train->x);
    nd_auto nd_tensor *loss = nd_cross_entropy(y, train->labels);
    bool good = nd_optimizer_zero_grad(train->optimizer) == ND_OK;
    double middle = bench_seconds();
    good = good && nd_data_parallel_backward(alone, loss, NULL) == ND_OK;
    double end = bench_seconds();
    good = good && nd_optimizer_step(train->optimizer) == ND_OK;
    *ret_forward = middle - begin;
    *ret_backward = end - middle;
    *ret_step = bench_seconds() - begin;
    for (size_t i = 0; i < seen.count; i++)
        seen.at[i] -= middle;
    return good;
}

static double bytes_of(const training *train, size_t parameter) {
    return 4.0 * (double)nd_get_numel(nd_module_get_parameter_at(train->model, parameter, NULL));
}

/// Parameters in the order of their gradients.
static void sort(const double *ready, size_t *ret_order) {
    for (size_t i = 0; i < seen.count; i++) {
        size_t at = i;
        for (; at > 0 && ready[ret_order[at - 1]] > ready[i]; at--)
            ret_order[at] = ret_order[at - 1];
        ret_order[at] = i;
    }
}

/// Parameters go into buckets as nd_data_parallel puts them: the last, of a first bucket's bytes or
/// just more, into one of their own.
static void fill_buckets(const training *train, const double *ready, timeline *line) {
    size_t order[PARAMETERS], tail = seen.count;
    sort(ready, order);
    for (double bytes = 0; tail > 0 && bytes < first_bucket_bytes;)
        bytes += bytes_of(train, order[--tail]);
    for (size_t i = 0; i < seen.count; i++) {
        double bytes = bytes_of(train, order[i]);
        double limit = line->count == 1 ? first_bucket_bytes : bucket_bytes;
        struct timeline_bucket *last = &line->buckets[line->count - (line->count > 0)];
        bool new = line->count == 0 || i == tail || last->bytes + bytes > limit;
        if (new && line->count < TIMELINE_BUCKETS) {
            last = &line->buckets[line->count++];
            *last = (struct timeline_bucket){0};
        }
        last->bytes += bytes;
        last->ready = fmax(last->ready, ready[order[i]]);
    }
}

bool timeline_measure(training *train, timeline *ret_timeline) {
    static double at[PARAMETERS][PASSES];
    double forward[PASSES], backward[PASSES], step[PASSES], ready[PARAMETERS];
    MPI_Comm self = MPI_COMM_SELF;
    nd_auto nd_communicator *only = nd_communicator_from_mpi(&self, NULL);
    nd_auto nd_data_parallel *alone = nd_data_parallel_new(train->model, only, NULL);
    nd_tensor *marks[PARAMETERS] = {NULL};
    uint64_t ids[PARAMETERS] = {0};
    bool good = alone && watch(train, marks, ids);
    for (int i = -WARM_UP; good && i < PASSES; i++) {
        int place = i < 0 ? 0 : i;
        good = pass(train, alone, &forward[place], &backward[place], &step[place]);
        for (size_t k = 0; k < seen.count; k++)
            at[k][place] = seen.at[k];
    }
    if (good) {
        for (size_t k = 0; k < seen.count; k++)
            ready[k] = bench_median(at[k], PASSES);
        *ret_timeline = (timeline){.forward = bench_median(forward, PASSES),
                                   .backward = bench_median(backward, PASSES),
                                   .step = bench_median(step, PASSES)};
        fill_buckets(train, ready, ret_timeline);
    }
    unwatch(train, marks, ids);
    return good;
}

#else
bool timeline_measure(training *train, timeline *ret_timeline) {
    (void)train;
    (void)ret_timeline;
    return false;
}
#endif

double timeline_finish(const timeline *line, const double *seconds) {
    double end = 0;
    for (size_t i = 0; i < line->count; i++)
        end = fmax(end, line->buckets[i].ready) + seconds[i];
    return end;
}
