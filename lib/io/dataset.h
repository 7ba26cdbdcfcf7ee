// Where a data set stands, so that it can go on from there.
#ifndef ND_LIB_IO_DATASET_H
#define ND_LIB_IO_DATASET_H
#include <nd/error.h>
#include <nd/io.h>

/// Everything that the next batches depend on beside the tensors: numbers of 64 bits alone.
typedef struct nd_dataset_position {
    int64_t started; ///< 1: an epoch runs
    int64_t epoch;
    int64_t position; ///< number of the next batch
    int64_t batches;  ///< of an epoch
    int64_t seed;     ///< of the shuffle's key
    int64_t stream;
    int64_t samples;
    int64_t batch;   ///< samples of one, of all ranks together
    int64_t options; ///< bit 0: shuffle, bit 1: drop_last
} nd_dataset_position;
#define ND__DATASET_POSITION_NUMBERS 9

nd_status nd__dataset_get_position(const char *operation, const nd_dataset *dataset,
                                   nd_dataset_position *ret_position);
/// Goes on from a position of this data set: the next call for a batch starts its epoch there.
/// Needs no memory.
void nd__dataset_set_position(nd_dataset *dataset, const nd_dataset_position *position);
/// Whether it can become one rank's share. Errors: an epoch was started, or a state loaded; there
/// are fewer samples than ranks; the numbers are none of ranks.
nd_status nd__dataset_check_rank(const char *operation, const nd_dataset *dataset, int rank,
                                 int ranks);
/// Makes it that, after the check.
void nd__dataset_set_rank(nd_dataset *dataset, int rank, int ranks);
/// The images, for their shape and dtype; borrowed.
const nd_tensor *nd__dataset_images(const nd_dataset *dataset);
/// The same of the labels.
const nd_tensor *nd__dataset_labels(const nd_dataset *dataset);
#endif
