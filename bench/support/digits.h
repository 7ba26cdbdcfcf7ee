// MNIST as the benchmarks read it.
#ifndef ND_BENCH_DIGITS_H
#define ND_BENCH_DIGITS_H
#include <nd/nd.h>

/// Pixels scaled by the data set, labels as they are in the files; [n, 784] and [n], u8.
typedef struct digits {
    nd_manager *manager;
    nd_tensor *train_images;
    nd_tensor *train_labels;
    nd_tensor *test_images;
    nd_tensor *test_labels;
} digits;

/// Reads the digits: all 70,000 from the folder `data`, or with NULL the 10,000 of the repository.
/// Trains on at most `samples` of them; 0: all. On failure an error is set and nothing is left to
/// release.
nd_status digits_load(digits *digits, const char *data, int64_t samples);
void digits_release(digits *digits);

/// The next batch of a data set, of the next epoch when this one is over; `epoch` counts those that
/// have begun, and begins at 0. Owned; on error nothing is written.
nd_status digits_next_batch(nd_dataset *dataset, uint64_t *epoch, nd_tensor **ret_images,
                            nd_tensor **ret_labels);

#endif
