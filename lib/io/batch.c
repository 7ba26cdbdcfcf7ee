// Cutting batches.
//
// Invariant: reads only what the plan points to and writes only the batch, so it runs on any
// thread.
#include "lib/io/batch.h"
#include "lib/base/float_mode.h"
#include "lib/memory/host.h"
#include "lib/memory/ladder.h"
#include "lib/tensor/number.h"
#include "lib/tensor/tensor.h"

#include <string.h>

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/// How many batches an epoch has: those of all ranks together, and a last one when that has a
/// sample for each of them.
static int64_t count_batches(const nd_batch_plan *plan, bool drop_last) {
    const int64_t whole = plan->batch * plan->ranks, rest = plan->samples % whole;
    return plan->samples / whole + (rest >= plan->ranks && !drop_last);
}

void nd__batch_plan(nd_batch_plan *ret_plan, const nd_tensor *images, const nd_tensor *labels,
                    const nd_dataset_options *options) {
    nd_batch_plan *plan = ret_plan;
    plan->images = images->data;
    plan->labels = labels->data;
    plan->source_dtype = images->dtype;
    plan->image_dtype = images->dtype == ND_U8 ? ND_F32 : images->dtype;
    plan->label_dtype = labels->dtype;
    plan->samples = images->shape[0];
    plan->rank = options->rank;
    plan->ranks = options->ranks > 1 ? options->ranks : 1;
    // More than there are is as good as all of them, and does not overflow.
    plan->batch = smaller(options->batch, plan->samples / plan->ranks + 1);
    plan->batches = count_batches(plan, options->drop_last);
    plan->drop_last = options->drop_last;
    plan->sample_elements = 1;
    for (int axis = 1; axis < images->ndim; axis++)
        plan->sample_elements *= images->shape[axis];
    // Only the last one can have more than the first.
    int64_t largest = plan->batches ? nd__batch_count(plan, 0) : 0;
    if (plan->batches && nd__batch_count(plan, plan->batches - 1) > largest)
        largest = nd__batch_count(plan, plan->batches - 1);
    plan->images_bytes =
        (size_t)(largest * plan->sample_elements) * nd_dtype_get_size(plan->image_dtype);
    plan->labels_bytes = (size_t)largest * sizeof(int64_t);
    plan->order = NULL;
}

int64_t nd__batch_count_of_all(const nd_batch_plan *plan, int64_t batch) {
    const int64_t whole = plan->batch * plan->ranks, left = plan->samples - batch * whole;
    return batch + 1 < plan->batches || plan->drop_last ? whole : left;
}

int64_t nd__batch_count(const nd_batch_plan *plan, int64_t batch) {
    const int64_t all = nd__batch_count_of_all(plan, batch);
    return all / plan->ranks + (plan->rank < all % plan->ranks);
}

/// Where this rank's samples begin in the order of the epoch: behind those of the ranks before it.
static int64_t first_of(const nd_batch_plan *plan, int64_t batch) {
    const int64_t all = nd__batch_count_of_all(plan, batch);
    return batch * plan->batch * plan->ranks + all / plan->ranks * plan->rank +
           smaller(plan->rank, all % plan->ranks);
}

/// pixel / 255, rounded as the division rounds it (true for all 256 values) but with
/// multiplications: the first product is exact.
static inline float scale_pixel(unsigned char pixel) {
    return (float)pixel * (1.0f / 256) + (float)pixel * (1.0f / 65280);
}

/// In blocks of a fixed size, which compilers turn into vector instructions.
static void scale_pixels(const unsigned char *restrict source, float *restrict ret_image,
                         int64_t count) {
    enum { BLOCK = 16 };
    int64_t done = 0;
    for (; done + BLOCK <= count; done += BLOCK)
        for (int64_t i = 0; i < BLOCK; i++)
            ret_image[done + i] = scale_pixel(source[done + i]);
    for (; done < count; done++)
        ret_image[done] = scale_pixel(source[done]);
}

static int64_t sample_at(const nd_batch_plan *plan, int64_t position) {
    return plan->order ? plan->order[position] : position;
}

void nd__batch_fill_images(const nd_batch_plan *plan, int64_t batch, void *ret_images) {
    const int64_t begin = first_of(plan, batch);
    const int64_t count = nd__batch_count(plan, batch);
    const int64_t elements = plan->sample_elements;
    const size_t sample_bytes = (size_t)elements * nd_dtype_get_size(plan->source_dtype);
    nd__float_mode mode;
    nd__float_mode_begin(&mode);
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *source =
            plan->images + (size_t)sample_at(plan, begin + i) * sample_bytes;
        if (plan->source_dtype != ND_U8) {
            memcpy((unsigned char *)ret_images + (size_t)i * sample_bytes, source, sample_bytes);
            continue;
        }
        scale_pixels(source, (float *)ret_images + i * elements, elements);
    }
    nd__float_mode_end(&mode);
}

void nd__batch_fill_labels(const nd_batch_plan *plan, int64_t batch, int64_t *ret_labels) {
    const int64_t begin = first_of(plan, batch);
    const int64_t count = nd__batch_count(plan, batch);
    const size_t bytes = nd_dtype_get_size(plan->label_dtype);
    for (int64_t i = 0; i < count; i++) {
        int64_t sample = sample_at(plan, begin + i);
        // Integers; a uint64 beyond int64 keeps its bits.
        ret_labels[i] =
            nd__number_at(plan->label_dtype, plan->labels + (size_t)sample * bytes).value.i64;
    }
}

bool nd__batch_slot_new(nd_batch_slot *ret_slot, const nd_batch_plan *plan) {
    nd_batch_slot slot = {nd__ladder_alloc_host(plan->images_bytes),
                          nd__ladder_alloc_host(plan->labels_bytes)};
    if (!slot.images || !slot.labels) {
        nd__batch_slot_free(&slot, plan);
        return false;
    }
    *ret_slot = slot;
    return true;
}

void nd__batch_slot_free(nd_batch_slot *slot, const nd_batch_plan *plan) {
    nd__host_free(slot->images, plan->images_bytes);
    nd__host_free(slot->labels, plan->labels_bytes);
    *slot = (nd_batch_slot){NULL, NULL};
}

void nd__batch_fill(const void *plan, int64_t batch, void *slot) {
    const nd_batch_slot *room = slot;
    nd__batch_fill_images(plan, batch, room->images);
    nd__batch_fill_labels(plan, batch, room->labels);
}
