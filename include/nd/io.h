// Files: IDX (MNIST), safetensors, and data sets with shuffled batches.
#ifndef ND_IO_H
#define ND_IO_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// Reads an IDX file, plain or gzipped, to a CPU tensor of its shape (u8, i32, f32, f64; i16
/// becomes i32, i8 i32).
ND_API nd_tensor *nd_load_idx(const char *path) ND_OWNED;

/// Writes the module's parameters under their full names as safetensors; written to a temporary
/// name and renamed, so a failure (full disk) leaves an old file as it was.
ND_API nd_status nd_save_safetensors(const char *path, const char *const *names,
                                     const nd_tensor *const *tensors, size_t count);
/// Reads one file: writes an owned list of tensors, each named (nd_get_name). Every header is
/// checked before use.
ND_API nd_list *nd_load_safetensors(const char *path) ND_OWNED;
/// Saves / loads all parameters of a module. Loading checks all names, shapes and dtypes before it
/// changes anything.
ND_API nd_status nd_save_parameters(const nd_module *module, const char *path);
ND_API nd_status nd_load_parameters(const nd_module *module, const char *path);

/// Data set over two CPU tensors with the same first size: images and labels.
/// Batches are cut from a permutation drawn per epoch from key; `drop_last` leaves out a short last
/// batch. With prefetch, one thread prepares the next batch while the current one is used. Images
/// of u8 are scaled to f32 in [0, 1]; labels become i64.
typedef struct nd_dataset_options {
    uint32_t size;
    uint32_t version;
    int64_t batch;
    nd_key key;
    bool shuffle;
    bool drop_last;
    bool prefetch;
    nd_device device; ///< where batches are put; CPU by default
} nd_dataset_options;
#define ND_DATASET_OPTIONS_INIT .size = sizeof(nd_dataset_options), .version = 1
ND_API nd_dataset *nd_dataset_new(const nd_tensor *images, const nd_tensor *labels,
                                  const nd_dataset_options *options) ND_OWNED;
/// Reads PREFIX-images-idx3-ubyte[.gz] and PREFIX-labels-idx1-ubyte[.gz] of a directory and makes a
/// data set of them.
ND_API nd_dataset *nd_dataset_open_idx(const char *directory, const char *prefix,
                                       const nd_dataset_options *options) ND_OWNED;
/// Starts (or restarts) an epoch; the shuffle is a function of key and epoch alone.
ND_API nd_status nd_dataset_start(nd_dataset *dataset, uint64_t epoch);
/// Next batch: true and two owned tensors, images [b, ...] and labels [b]; false at the end of the
/// epoch or on error (then nd_error_status() tells). Batches are placed in the caller's current
/// manager.
ND_API bool nd_dataset_next(nd_dataset *dataset, nd_tensor **ret_images, nd_tensor **ret_labels);
/// Number of samples, and of batches per epoch.
ND_API int64_t nd_dataset_size(const nd_dataset *dataset);
ND_API int64_t nd_dataset_batches(const nd_dataset *dataset);

#ifdef __cplusplus
}
#endif
#endif
