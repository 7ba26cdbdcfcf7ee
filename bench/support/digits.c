// Reads MNIST: the 10,000 digits of the repository, the first 8,000 to train on and the last 2,000
// to test on, or all 70,000 from a folder, in their original split.
#include "bench/support/digits.h"

#include "bench/support/paths.h"

#include <stdio.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

static nd_tensor *load(const char *folder, const char *name);
static nd_tensor *load_images(const char *folder, const char *name);
static nd_status load_split(digits *digits, const char *folder, int64_t train_count);
static nd_status load_original(digits *digits, const char *folder);
static nd_status limit(nd_tensor **tensor, int64_t count);

nd_status digits_load(digits *digits, const char *data, int64_t samples) {
    *digits = (struct digits){0};
    char folder[PATH_BYTES];
    digits->manager = nd_manager_new(nd_manager_get_root(), "digits");
    nd_status status = digits->manager ? ND_OK : nd_error_get_status();
    if (status == ND_OK) {
        nd_with_manager(digits->manager) {
            if (data && bench_user_path(data, folder, sizeof folder))
                status = load_original(digits, folder);
            else if (bench_find_file("data/mnist", folder, sizeof folder))
                status = load_split(digits, folder, 8000);
            else
                status = load_split(digits, "data/mnist", 8000);
        }
    }
    if (status == ND_OK && samples > 0) {
        status = limit(&digits->train_images, samples);
        if (status == ND_OK)
            status = limit(&digits->train_labels, samples);
    }
    if (status != ND_OK)
        digits_release(digits);
    return status;
}

void digits_release(digits *digits) {
    nd_release(digits->train_images);
    nd_release(digits->train_labels);
    nd_release(digits->test_images);
    nd_release(digits->test_labels);
    nd_release(digits->manager);
    *digits = (struct digits){0};
}

nd_status digits_next_batch(nd_dataset *dataset, uint64_t *epoch, nd_tensor **ret_images,
                            nd_tensor **ret_labels) {
    nd_tensor *images = NULL;
    nd_tensor *labels = NULL;
    nd_status status = ND_OK;
    if (*epoch > 0)
        status = nd_dataset_next_batch(dataset, &images, &labels);
    if (status == ND_OK && !images) {
        status = nd_dataset_start(dataset, *epoch);
        *epoch += status == ND_OK;
        if (status == ND_OK)
            status = nd_dataset_next_batch(dataset, &images, &labels);
    }
    if (status != ND_OK)
        return status;
    *ret_images = images;
    *ret_labels = labels;
    return ND_OK;
}

/// One pair of files, cut in two.
static nd_status load_split(digits *digits, const char *folder, int64_t train_count) {
    nd_auto nd_tensor *images = load_images(folder, "t10k-images-idx3-ubyte");
    nd_auto nd_tensor *labels = images ? load(folder, "t10k-labels-idx1-ubyte") : NULL;
    if (!labels)
        return nd_error_get_status();
    digits->train_images = nd_slice(images, 0, train_count, 1, 0);
    digits->train_labels = nd_slice(labels, 0, train_count, 1, 0);
    digits->test_images = nd_slice(images, train_count, INT64_MAX, 1, 0);
    digits->test_labels = nd_slice(labels, train_count, INT64_MAX, 1, 0);
    return digits->train_images && digits->train_labels && digits->test_images &&
                   digits->test_labels
               ? ND_OK
               : nd_error_get_status();
}

/// Two pairs of files; stops at the first that cannot be read, whose name the error says.
static nd_status load_original(digits *digits, const char *folder) {
    digits->train_images = load_images(folder, "train-images-idx3-ubyte");
    if (digits->train_images)
        digits->train_labels = load(folder, "train-labels-idx1-ubyte");
    if (digits->train_labels)
        digits->test_images = load_images(folder, "t10k-images-idx3-ubyte");
    if (digits->test_images)
        digits->test_labels = load(folder, "t10k-labels-idx1-ubyte");
    return digits->test_labels ? ND_OK : nd_error_get_status();
}

/// [n, 28, 28] -> [n, 784].
static nd_tensor *load_images(const char *folder, const char *name) {
    nd_auto nd_tensor *images = load(folder, name);
    return nd_flatten(images, 1);
}

/// The file under its original name, or with .gz behind it.
static nd_tensor *load(const char *folder, const char *name) {
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    bool plain = length > 0 && (size_t)length < sizeof path && access(path, R_OK) == 0;
    if (!plain)
        snprintf(path, sizeof path, "%s/%s.gz", folder, name);
    return nd_load_idx(path);
}

/// Keeps the first `count` of a tensor.
static nd_status limit(nd_tensor **tensor, int64_t count) {
    nd_tensor *first = nd_slice(*tensor, 0, count, 1, 0);
    if (!first)
        return nd_error_get_status();
    nd_release(*tensor);
    *tensor = first;
    return ND_OK;
}
