// Batches cut from images and labels in host memory: plain bytes, no objects, so that a thread can
// prepare them.
#ifndef ND_LIB_IO_BATCH_H
#define ND_LIB_IO_BATCH_H
#include <nd/io.h>

// What batches are cut from. Stays as it is while an epoch runs.
typedef struct nd_batch_plan {
    const unsigned char *images;
    const unsigned char *labels;
    nd_dtype source_dtype; ///< of the images
    nd_dtype image_dtype;  ///< of a batch: u8 becomes f32 in [0, 1], everything else stays
    nd_dtype label_dtype;  ///< any integer, u8 or bool; a batch has i64
    int64_t sample_elements;
    int64_t samples;
    int64_t batch;        ///< samples per batch of a rank; the last one may have fewer, or one more
    int64_t batches;      ///< of an epoch
    bool drop_last;       ///< samples that do not fill a batch of all ranks are left out
    int64_t rank;         ///< whose batches these are
    int64_t ranks;        ///< at least 1
    const int64_t *order; ///< permutation of the samples; NULL: as they stand
    size_t images_bytes;  ///< of the largest batch
    size_t labels_bytes;
} nd_batch_plan;

/// Plan for contiguous CPU tensors of shapes [n, ...] and [n], of which one rank gets its share;
/// without order.
void nd__batch_plan(nd_batch_plan *ret_plan, const nd_tensor *images, const nd_tensor *labels,
                    const nd_dataset_options *options);
/// Number of samples in batch number `batch`.
int64_t nd__batch_count(const nd_batch_plan *plan, int64_t batch);
/// Number of samples that all ranks together have in it.
int64_t nd__batch_count_of_all(const nd_batch_plan *plan, int64_t batch);
void nd__batch_fill_images(const nd_batch_plan *plan, int64_t batch, void *ret_images);
void nd__batch_fill_labels(const nd_batch_plan *plan, int64_t batch, int64_t *ret_labels);

// Room for the largest batch: two blocks as a storage on the CPU has them, so that a storage can take
// them over.
typedef struct nd_batch_slot {
    void *images;
    int64_t *labels;
} nd_batch_slot;

/// False when there is no memory; the slot is empty then.
bool nd__batch_slot_new(nd_batch_slot *ret_slot, const nd_batch_plan *plan);
/// An empty slot is fine.
void nd__batch_slot_free(nd_batch_slot *slot, const nd_batch_plan *plan);
/// Fills a slot: an nd_prefetch_fill whose context is the plan.
void nd__batch_fill(const void *plan, int64_t batch, void *slot);
#endif
