/// @file
/// Files: IDX (MNIST), CSV, NumPy's .npy and .npz, safetensors, and data sets with shuffled batches.
/// docs/files.md says which formats and dtypes, what is mapped, and what hostile files can cost.
///
/// What is read is a contiguous CPU tensor of its own, in the current manager. A function that reads
/// or writes a file may be called on any thread, beside others. Every error of a file names it and
/// says what is wrong where: ND_ERROR_IO (missing, unreadable, without the size of what is
/// in it, as files of /proc), ND_ERROR_FORMAT (content that breaks its format), either of them
/// (truncated, as what is missing is noticed while it is read or before), ND_ERROR_UNSUPPORTED
/// (valid, but beyond ndarc). What a write fails at is ND_ERROR_IO, and neither SIGPIPE nor SIGXFSZ.
#ifndef ND_IO_H
#define ND_IO_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// Reads an IDX file, plain or gzipped, to a CPU tensor of its shape (u8, i32, f32, f64; i16
/// becomes i32, i8 i32), placed in the current manager. Errors: ND_ERROR_IO (missing, unreadable,
/// truncated), ND_ERROR_FORMAT (content that breaks the format, more bytes than it announces, or far
/// fewer),
/// ND_ERROR_UNSUPPORTED (gzipped, and built without zlib).
ND_API nd_tensor *nd_load_idx(const char *path) ND_OWNED;

/// How a text of numbers is laid out.
typedef struct nd_csv_options {
    uint32_t size;    ///< sizeof(nd_csv_options)
    uint32_t version; ///< 1
    /// Between two fields: a punctuation mark or a tab; a space stands for any number of spaces and
    /// tabs. None of + - . " ' ( ), which numbers, quotes and NumPy's complex numbers are made of.
    /// Default: 0, a comma.
    char separator;
    bool missing;  ///< read: empty fields are NaN, of floats. Default: false, an error
    uint64_t skip; ///< read: lines at the beginning to leave out. Default: 0
} nd_csv_options;
/// What an nd_csv_options must begin as.
#define ND_CSV_OPTIONS_INIT ND__SIZED(nd_csv_options)

/// Reads a text of numbers, a line for each row, to [rows, columns] of f32, f64 or any integer
/// dtype, whatever the locale. Floats are rounded once, "inf" and "nan" are numbers; integers must
/// fit. Lines end with LF or CR LF; a byte order mark of UTF-8 before the first is left out. A line
/// of spaces and tabs is blank and left out, but for one with a tab where tabs separate; spaces and
/// tabs around numbers are left out too. options: NULL for the defaults. ND_ERROR_FORMAT names line
/// and column: what is no number, a missing one, a row of another length. ND_ERROR_DTYPE: other
/// dtypes.
ND_API nd_tensor *nd_load_csv(const char *path, nd_dtype dtype,
                              const nd_csv_options *options) ND_OWNED;
/// Writes [rows, columns], or [n] as n rows of one, of any dtype, device and layout, so that
/// nd_load_csv() reads the same numbers back: floats with as many digits as that takes, f16 and bf16
/// as f32, bool as 0 and 1. The file takes its place as in nd_save_safetensors(). options: NULL for
/// the defaults.
ND_API nd_status nd_save_csv(const char *path, const nd_tensor *tensor,
                             const nd_csv_options *options);

/// How a file is read.
typedef struct nd_load_options {
    uint32_t size;    ///< sizeof(nd_load_options)
    uint32_t version; ///< 1
    /// Tensors of 16 KiB and more that lie in the file as they do in memory are mapped, not read:
    /// in order, little endian, at a multiple of their element's size. Pages are then read when they
    /// are first used, and what is written to the tensor stays in the process. The file must not
    /// become shorter, or be written, while such a tensor lives; a file that another one was
    /// renamed over is fine. Default: false.
    bool mapped;
} nd_load_options;
/// What an nd_load_options must begin as.
#define ND_LOAD_OPTIONS_INIT ND__SIZED(nd_load_options)

/// Reads the array of a .npy file (https://numpy.org/doc/stable/reference/generated/
/// numpy.lib.format.html), versions 1.0 to 3.0, either order of axes and of bytes, dtypes by code or
/// by name ("<f4", "float32"), to a tensor in row-major order; complex numbers of f32 and f64 as pairs
/// along a last axis of 2, as <nd/fft.h> takes them. options: NULL for the defaults.
/// ND_ERROR_UNSUPPORTED: dtypes that ndarc does not have, which the error names (strings, dates,
/// structures, pickled objects), and more than 8 dimensions.
ND_API nd_tensor *nd_load_npy(const char *path, const nd_load_options *options) ND_OWNED;
/// Writes a tensor of any device and layout, its elements in C order, as the .npy file, of version
/// 1.0, that NumPy makes of them. The file takes its place as in nd_save_safetensors().
/// ND_ERROR_DTYPE: bf16, which the format does not have.
ND_API nd_status nd_save_npy(const char *path, const nd_tensor *tensor);
/// Reads all arrays of a .npz file: a map from their names, without ".npy", to tensors, in the order
/// of the archive's directory. Entries are stored or deflated; their checksums are verified. What is
/// no array, and names given twice, are ND_ERROR_FORMAT; encrypted entries, other compression, and
/// deflated entries in a library without zlib, ND_ERROR_UNSUPPORTED.
ND_API nd_map *nd_load_npz(const char *path) ND_OWNED;
/// How a .npz file is written.
typedef struct nd_npz_options {
    uint32_t size;    ///< sizeof(nd_npz_options)
    uint32_t version; ///< 1
    bool compressed;  ///< arrays are deflated. Default: false, stored
} nd_npz_options;
/// What an nd_npz_options must begin as.
#define ND_NPZ_OPTIONS_INIT ND__SIZED(nd_npz_options)
/// Writes tensors of any device and layout under unique UTF-8 names as a .npz file, which NumPy
/// reads. The file takes its place as in nd_save_safetensors(). options: NULL for the defaults.
/// ND_ERROR_DTYPE: bf16; ND_ERROR_UNSUPPORTED: compressed, and built without zlib.
ND_API nd_status nd_save_npz(const char *path, size_t count, const char *const *names,
                             const nd_tensor *const *tensors, const nd_npz_options *options);

/// Writes tensors of any device and layout under unique UTF-8 names as safetensors
/// (https://github.com/huggingface/safetensors). Written beside the target and renamed, so a
/// failure (full disk) leaves an old file as it was, and a crash at any moment leaves it or the new
/// one; after ND_OK the new one is on the disk. A symbolic link is followed, also to where nothing
/// is yet; owner, group and permissions stay. A file with several names, and one whose owner or
/// group the caller may not give, is written over from a complete copy beside it; should that fail,
/// the error names the copy. A target that is a device or a pipe is written directly.
ND_API nd_status nd_save_safetensors(const char *path, size_t count, const char *const *names,
                                     const nd_tensor *const *tensors);
/// Reads one file: an owned list of CPU tensors in the order of the file's header, each named
/// (nd_get_name), all placed in the current manager. The whole header is checked before anything is
/// read by it: ND_ERROR_FORMAT for what the format refuses (ranges that overlap, leave holes or do
/// not fit their shape, names given twice, malformed text), ND_ERROR_UNSUPPORTED for dtypes beyond
/// ours and more than 8 dimensions. Floats of eight bits (F8_E4M3, F8_E5M2, F8_E4M3FNUZ,
/// F8_E5M2FNUZ) and of four (F4, the lower half of a byte first) are read as f16, F8_E8M0 as f32,
/// exactly; C64 as pairs of f32 along a last axis of 2.
ND_API nd_list *nd_load_safetensors(const char *path) ND_OWNED;
/// nd_load_safetensors() with options; NULL for the defaults.
ND_API nd_list *nd_load_safetensors_with(const char *path, const nd_load_options *options) ND_OWNED;
/// Reads a model of several files by its index (model.safetensors.index.json): an owned list of
/// named CPU tensors in the order of the index's weight_map, of files beside it. The files must hold
/// exactly what the index says: a file that is missing, a name that its file does not have, a tensor
/// that the index does not have or puts elsewhere, names given twice, and names of files that lead
/// into another folder are errors. options: NULL for the defaults.
ND_API nd_list *nd_load_safetensors_index(const char *path,
                                          const nd_load_options *options) ND_OWNED;
/// Writes all parameters and buffers of a module under their full names ("0.weight") with
/// nd_save_safetensors.
ND_API nd_status nd_save_parameters(const nd_module *module, const char *path);
/// Reads parameters and buffers back. The file must hold exactly the module's names, each with its
/// tensor's shape and dtype, else this is ND_ERROR_INVALID_ARGUMENT, ND_ERROR_SHAPE or
/// ND_ERROR_DTYPE with the name; all of it is checked and read before anything changes. Of a tensor that
/// has several names the last one's numbers stay.
ND_API nd_status nd_load_parameters(const nd_module *module, const char *path);

/// What a data set is made of: two CPU tensors with the same first size: images [n, ...] and
/// integer labels [n], which must not be written while an epoch runs. Batches are cut from a
/// permutation drawn per epoch from key; `drop_last` leaves out a short last batch. With prefetch,
/// one thread prepares the next batches while the current one is used; it ends with the epoch, and
/// a restart or the data set's end waits for it. Images of u8 are scaled to f32 in [0, 1], others
/// keep their dtype; labels become i64.
typedef struct nd_dataset_options {
    uint32_t size;    ///< sizeof(nd_dataset_options)
    uint32_t version; ///< 1
    int64_t batch;    ///< samples per batch, at least 1
    nd_key key;       ///< of the shuffle
    bool shuffle;     ///< a new order each epoch; else that of the tensors
    bool drop_last;   ///< leave out a last batch that is short
    bool prefetch;    ///< prepare the next batches on a thread
    nd_device device; ///< where batches are put; CPU by default
    int rank;         ///< which of the ranks has this data set, from 0
    int ranks;        ///< how many processes share the samples; 0 or 1: one has all
} nd_dataset_options;
/// What an nd_dataset_options must begin as; `batch` must be set.
///
/// Several ranks, each with a data set over all samples, with the same key and options but `rank`,
/// get the batches of one process whose batch is `ranks` times as large, cut among them in their
/// order: all make as many steps, and each sample is in one batch of one rank. Where a last, short
/// batch has a sample for each rank, shares differ by at most one sample (nd_dataset_get_weight());
/// where it has fewer, its samples are added to the batch before, which has batch + 1 on some ranks
/// then. Nothing is sent for that; <nd/distributed.h> does it for a communicator, with a comparison
/// (nd_dataset_shard()).
#define ND_DATASET_OPTIONS_INIT ND__SIZED(nd_dataset_options)
/// Data set over two CPU tensors, which it holds; see nd_dataset_options. ND_ERROR_SHAPE: fewer
/// samples than ranks, unless they are dropped.
ND_API nd_dataset *nd_dataset_new(const nd_tensor *images, const nd_tensor *labels,
                                  const nd_dataset_options *options) ND_OWNED;
/// Reads PREFIX-images-idx3-ubyte[.gz] and PREFIX-labels-idx1-ubyte[.gz] of a directory and makes a
/// data set of them.
ND_API nd_dataset *nd_dataset_open_idx(const char *directory, const char *prefix,
                                       const nd_dataset_options *options) ND_OWNED;
/// Starts (or restarts) an epoch; the shuffle is a function of key and epoch alone. On error no
/// epoch runs.
ND_API nd_status nd_dataset_start(nd_dataset *dataset, uint64_t epoch);
/// Next batch: two owned tensors, images [b, ...] and labels [b]. At the end of the epoch both are
/// NULL, and the status is ND_OK as well: the end is no error. On error nothing is written, and the
/// same batch can be asked for again. Batches are placed in the caller's current manager. One
/// thread at a time.
///
///     while ((status = nd_dataset_next_batch(data, &images, &labels)) == ND_OK && images) {
ND_API nd_status nd_dataset_next_batch(nd_dataset *dataset, nd_tensor **ret_images,
                                       nd_tensor **ret_labels);
/// Number of the epoch that was started last, or that a loaded state goes on with.
ND_API uint64_t nd_dataset_get_epoch(const nd_dataset *dataset);
/// Number of the next batch in that epoch.
ND_API int64_t nd_dataset_get_position(const nd_dataset *dataset);
/// Number of samples, of all ranks together.
ND_API int64_t nd_dataset_get_size(const nd_dataset *dataset);
/// Number of batches per epoch, the same on all ranks.
ND_API int64_t nd_dataset_get_batches(const nd_dataset *dataset);
/// What the mean over the last batch is multiplied by so that the mean of that over all ranks is
/// the mean over all of their samples: 1 but where their shares differ. Also 1 before the first
/// batch, and for NULL.
ND_API double nd_dataset_get_weight(const nd_dataset *dataset);

#ifdef __cplusplus
}
#endif
#endif
