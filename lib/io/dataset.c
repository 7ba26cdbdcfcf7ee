// Data sets: shuffled batches of images and labels, optionally prepared ahead by one thread.
//
// Invariant: while an epoch runs, `plan` and what it points to stay as they are; the thread
// (lib/io/prefetch.h) reads nothing else. The data set holds the storages of its tensors beside the
// tensors, so that memory the thread reads stays even when somebody closes them. Tensors are made
// by the caller's thread, in the caller's manager, from what was prepared; a batch that cannot be
// made is not lost: the next call tries the same one again.
#include "lib/io/dataset.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/device/capture.h"
#include "lib/device/registry.h"
#include "lib/io/batch.h"
#include "lib/io/prefetch.h"
#include "lib/manager/place.h"
#include "lib/object/object.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/storage.h"
#include "lib/tensor/tensor.h"
#include <nd/io.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/// Batches kept ready: as many as fit these bytes, at least 2 and at most 8.
#define PREFETCH_BYTES ((size_t)4 << 20)
#define PREFETCH_DEPTH_MIN 2
#define PREFETCH_DEPTH_MAX 8

struct nd_dataset {
    nd_object header;
    nd_tensor *images;          ///< edge: contiguous, on the CPU
    nd_tensor *labels;          ///< edge: contiguous, on the CPU
    nd_storage *images_storage; ///< held until destroy, not traversed: a storage is green
    nd_storage *labels_storage;
    nd_dataset_options options;
    nd_batch_plan plan;
    int64_t *order; ///< room for a permutation; NULL without shuffle
    nd_batch_slot
        slots[PREFETCH_DEPTH_MAX]; ///< batches being prepared; empty until they are needed
    int64_t depth;                 ///< slots that are used
    int64_t position;              ///< number of the next batch
    uint64_t epoch;                ///< the last that was started
    bool started;                  ///< an epoch is running
    bool resumes; ///< it was running when it was saved, and is to be started at `position`
    nd_prefetch prefetch;
};

static void traverse(const nd_object *self, nd_visitor *visitor);
static void clear(nd_object *self);
static void destroy(nd_object *self);
static const nd_type dataset_type = {.size = sizeof(nd_type),
                                     .version = 1,
                                     .name = "dataset",
                                     .traverse = traverse,
                                     .clear = clear,
                                     .destroy = destroy};

static nd_status read_options(const char *operation, const nd_dataset_options *given,
                              nd_dataset_options *ret_options);
static nd_status check_tensors(const nd_tensor *images, const nd_tensor *labels);
static nd_tensor *load_idx_beside(const char *directory, const char *prefix, const char *suffix);
static nd_dataset *build(const nd_tensor *images, const nd_tensor *labels,
                         const nd_dataset_options *options);
static nd_status check_ranks(const char *operation, const nd_dataset_options *options,
                             int64_t samples);
static nd_status check_dataset(const char *operation, const nd_dataset *dataset);
static nd_status start_at(nd_dataset *dataset, uint64_t epoch, int64_t position);
static nd_status reserve(nd_dataset *dataset);
static nd_status shuffle(nd_dataset *dataset, uint64_t epoch);
static bool hand_over(nd_dataset *dataset, nd_tensor **ret_images, nd_tensor **ret_labels);
static bool make_batch(nd_dataset *dataset, nd_tensor **ret_images, nd_tensor **ret_labels);
static nd_status fill_tensors(nd_dataset *dataset, nd_tensor *images, nd_tensor *labels);
static void batch_shape(const nd_dataset *dataset, int64_t *ret_shape);

nd_dataset *nd_dataset_new(const nd_tensor *images, const nd_tensor *labels,
                           const nd_dataset_options *options) {
    nd_dataset_options chosen = ND_DATASET_OPTIONS_INIT;
    if (read_options("dataset_new", options, &chosen) != ND_OK ||
        check_tensors(images, labels) != ND_OK ||
        check_ranks("dataset_new", &chosen, images->shape[0]) != ND_OK)
        return NULL;
    nd_auto nd_tensor *images_in_order = nd_contiguous(images);
    nd_auto nd_tensor *labels_in_order = nd_contiguous(labels);
    if (!images_in_order || !labels_in_order)
        return NULL;
    return build(images_in_order, labels_in_order, &chosen);
}

nd_dataset *nd_dataset_open_idx(const char *directory, const char *prefix,
                                const nd_dataset_options *options) {
    ND__UNCANCELLED;
    nd_auto nd_tensor *images = NULL;
    nd_auto nd_tensor *labels = NULL;
    if (!directory || !prefix) {
        nd__error_null("dataset_open_idx", directory ? "prefix" : "directory");
        return NULL;
    }
    nd_dataset_options chosen = ND_DATASET_OPTIONS_INIT;
    if (read_options("dataset_open_idx", options, &chosen) != ND_OK)
        return NULL;
    images = load_idx_beside(directory, prefix, "images-idx3-ubyte");
    labels = images ? load_idx_beside(directory, prefix, "labels-idx1-ubyte") : NULL;
    return labels ? nd_dataset_new(images, labels, options) : NULL;
}

nd_status nd_dataset_start(nd_dataset *dataset, uint64_t epoch) {
    ND__UNCANCELLED;
    nd_status status = check_dataset("dataset_start", dataset);
    return status == ND_OK ? start_at(dataset, epoch, 0) : status;
}

nd_status nd_dataset_next_batch(nd_dataset *dataset, nd_tensor **ret_images,
                                nd_tensor **ret_labels) {
    ND__UNCANCELLED;
    nd_status status = check_dataset("dataset_next_batch", dataset);
    if (status != ND_OK)
        return status;
    if (!ret_images || !ret_labels)
        return nd__error_null("dataset_next_batch", ret_images ? "ret_labels" : "ret_images");
    if (dataset->resumes) {
        const int64_t position = dataset->position;
        status = start_at(dataset, dataset->epoch, position);
        if (status != ND_OK) { // another call tries again
            dataset->position = position;
            dataset->resumes = true;
            return status;
        }
    }
    if (!dataset->started)
        return nd__error(ND_ERROR_STATE,
                         "dataset_next_batch: no epoch has been started with nd_dataset_start");
    nd_tensor *images = NULL;
    nd_tensor *labels = NULL;
    if (dataset->position == dataset->plan.batches) {
        nd__prefetch_stop(&dataset->prefetch);
        *ret_images = images;
        *ret_labels = labels;
        return ND_OK;
    }
    // A batch that fills its slot, or all of it but one sample of the last batch.
    bool whole = nd__batch_count(&dataset->plan, dataset->position) >= dataset->plan.batch;
    bool made = whole && dataset->options.prefetch && dataset->options.device.kind == ND_CPU
                    ? hand_over(dataset, &images, &labels)
                    : make_batch(dataset, &images, &labels);
    if (!made)
        return nd_error_get_status();
    dataset->position++;
    *ret_images = images;
    *ret_labels = labels;
    return ND_OK;
}

uint64_t nd_dataset_get_epoch(const nd_dataset *dataset) {
    return dataset ? dataset->epoch : 0;
}

int64_t nd_dataset_get_position(const nd_dataset *dataset) {
    return dataset ? dataset->position : 0;
}

nd_status nd__dataset_get_position(const char *operation, const nd_dataset *dataset,
                                   nd_dataset_position *ret_position) {
    nd_status status = check_dataset(operation, dataset);
    if (status != ND_OK)
        return status;
    const nd_dataset_options *options = &dataset->options;
    int64_t batch;
    if (__builtin_mul_overflow(options->batch, dataset->plan.ranks, &batch))
        batch = INT64_MAX;
    *ret_position = (nd_dataset_position){
        .started = dataset->started || dataset->resumes,
        .epoch = (int64_t)dataset->epoch,
        .position = dataset->position,
        .batches = dataset->plan.batches,
        .seed = (int64_t)options->key.seed,
        .stream = (int64_t)options->key.stream,
        .samples = dataset->plan.samples,
        .batch = batch,
        .options = (options->shuffle ? 1 : 0) | (options->drop_last ? 2 : 0),
    };
    return ND_OK;
}

void nd__dataset_set_position(nd_dataset *dataset, const nd_dataset_position *position) {
    nd__prefetch_stop(&dataset->prefetch);
    dataset->started = false;
    dataset->resumes = position->started != 0;
    dataset->epoch = (uint64_t)position->epoch;
    dataset->position = position->position;
    dataset->options.key = (nd_key){(uint64_t)position->seed, (uint64_t)position->stream};
}

int64_t nd_dataset_get_size(const nd_dataset *dataset) {
    return dataset ? dataset->plan.samples : 0;
}

int64_t nd_dataset_get_batches(const nd_dataset *dataset) {
    return dataset ? dataset->plan.batches : 0;
}

double nd_dataset_get_weight(const nd_dataset *dataset) {
    if (!dataset || dataset->position == 0)
        return 1;
    const nd_batch_plan *plan = &dataset->plan;
    const int64_t last = dataset->position - 1, all = nd__batch_count_of_all(plan, last);
    const int64_t own = nd__batch_count(plan, last);
    return own * plan->ranks == all ? 1 : (double)own * (double)plan->ranks / (double)all;
}

const nd_tensor *nd__dataset_images(const nd_dataset *dataset) {
    return dataset->images;
}

const nd_tensor *nd__dataset_labels(const nd_dataset *dataset) {
    return dataset->labels;
}

nd_status nd__dataset_check_rank(const char *operation, const nd_dataset *dataset, int rank,
                                 int ranks) {
    nd_status status = check_dataset(operation, dataset);
    if (status != ND_OK)
        return status;
    if (dataset->started || dataset->resumes || dataset->position)
        return nd__error(ND_ERROR_STATE,
                         "%s: the data set is read already; its share is chosen before its first "
                         "epoch and before a state is loaded",
                         operation);
    nd_dataset_options options = dataset->options;
    options.rank = rank;
    options.ranks = ranks;
    return check_ranks(operation, &options, dataset->plan.samples);
}

void nd__dataset_set_rank(nd_dataset *dataset, int rank, int ranks) {
    dataset->options.rank = rank;
    dataset->options.ranks = ranks;
    nd__batch_plan(&dataset->plan, dataset->images, dataset->labels, &dataset->options);
}

static void traverse(const nd_object *self, nd_visitor *visitor) {
    const nd_dataset *dataset = (const nd_dataset *)self;
    nd_visit(visitor, dataset->images, "images");
    nd_visit(visitor, dataset->labels, "labels");
}

static void clear(nd_object *self) {
    nd_dataset *dataset = (nd_dataset *)self;
    nd_edge_clear(&dataset->images);
    nd_edge_clear(&dataset->labels);
}

/// Runs outside the gate, so it may wait for the thread; only then may the memory go that the
/// thread reads.
static void destroy(nd_object *self) {
    nd_dataset *dataset = (nd_dataset *)self;
    nd__prefetch_stop(&dataset->prefetch);
    nd_object_release(dataset->images_storage);
    nd_object_release(dataset->labels_storage);
    nd__alloc_free(dataset->order);
    for (int64_t i = 0; i < PREFETCH_DEPTH_MAX; i++)
        nd__batch_slot_free(&dataset->slots[i], &dataset->plan);
    dataset->images_storage = NULL;
    dataset->labels_storage = NULL;
    dataset->order = NULL;
}

static nd_status read_options(const char *operation, const nd_dataset_options *given,
                              nd_dataset_options *ret_options) {
    if (!given)
        return nd__error_null(operation, "options");
    nd_status status = nd__versioned_read(operation, "ND_DATASET_OPTIONS_INIT", given, ret_options,
                                          sizeof *ret_options);
    if (status == ND_OK && ret_options->batch < 1)
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: a batch of %lld samples", operation,
                           (long long)ret_options->batch);
    return status == ND_OK ? nd__registry_device_check(operation, ret_options->device) : status;
}

/// A rank that there is, and a sample for each.
static nd_status check_ranks(const char *operation, const nd_dataset_options *options,
                             int64_t samples) {
    const int ranks = options->ranks == 0 ? 1 : options->ranks;
    if (ranks < 0 || options->rank < 0 || options->rank >= ranks)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: rank %d of %d ranks", operation,
                         options->rank, options->ranks);
    if (samples > 0 && samples < ranks && !options->drop_last)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: %lld samples for %d ranks; each rank needs one, unless they are "
                         "dropped (drop_last)",
                         operation, (long long)samples, ranks);
    return ND_OK;
}

static nd_status check_tensors(const nd_tensor *images, const nd_tensor *labels) {
    nd_status status = nd__tensor_check_operand("dataset_new", "images", images);
    if (status == ND_OK)
        status = nd__tensor_check_operand("dataset_new", "labels", labels);
    if (status != ND_OK)
        return status;
    if (images->device.kind != ND_CPU || labels->device.kind != ND_CPU)
        return nd__error(
            ND_ERROR_DEVICE,
            "dataset_new: images are on %s; images and labels must be on the CPU, batches "
            "can go elsewhere",
            nd__registry_device_text(images->device.kind != ND_CPU ? images->device
                                                                   : labels->device));
    if (nd__dtype_is_float(labels->dtype))
        return nd__error(ND_ERROR_DTYPE, "dataset_new: labels are %s, they must be integers",
                         nd_dtype_get_name(labels->dtype));
    if (images->ndim < 1 || labels->ndim != 1 || images->shape[0] != labels->shape[0]) {
        char a[ND__SHAPE_TEXT];
        char b[ND__SHAPE_TEXT];
        return nd__error(
            ND_ERROR_SHAPE,
            "dataset_new: images %s and labels %s; labels must be [n] and images [n, ...]",
            nd__shape_text(a, images->ndim, images->shape),
            nd__shape_text(b, labels->ndim, labels->shape));
    }
    return ND_OK;
}

/// DIRECTORY/PREFIX-SUFFIX, or the same with .gz when the plain file is not there.
static nd_tensor *load_idx_beside(const char *directory, const char *prefix, const char *suffix) {
    size_t bytes = strlen(directory) + strlen(prefix) + strlen(suffix) + sizeof("/-.gz");
    char *path = nd__pressure_alloc(bytes);
    if (!path) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "dataset_open_idx: no memory for the name of a file");
        return NULL;
    }
    snprintf(path, bytes, "%s/%s-%s", directory, prefix, suffix);
    if (access(path, F_OK) != 0)
        strcat(path, ".gz");
    nd_tensor *tensor = nd_load_idx(path);
    nd__alloc_free(path);
    return tensor;
}

/// The data set over two contiguous tensors.
static nd_dataset *build(const nd_tensor *images, const nd_tensor *labels,
                         const nd_dataset_options *options) {
    nd_dataset *dataset = (nd_dataset *)nd__object_new(&dataset_type, sizeof(*dataset));
    if (!dataset)
        return NULL;
    dataset->images = nd_retain(images);
    dataset->labels = nd_retain(labels);
    dataset->images_storage = nd_object_retain(nd__tensor_storage(images));
    dataset->labels_storage = nd_object_retain(nd__tensor_storage(labels));
    if (!dataset->images_storage || !dataset->labels_storage) {
        nd_release(dataset);
        return NULL;
    }
    dataset->options = *options;
    nd__batch_plan(&dataset->plan, images, labels, options);
    return nd__place_publish_or_release(nd__place_begin(NULL, 0), &dataset->header);
}

static nd_status check_dataset(const char *operation, const nd_dataset *dataset) {
    if (!dataset)
        return nd__error_null(operation, "dataset");
    if (nd__object_is_closed(dataset))
        return nd__error(ND_ERROR_CLOSED, "%s: the data set was closed", operation);
    if (nd__object_is_closed(dataset->images) || nd__object_is_closed(dataset->labels))
        return nd__error(ND_ERROR_CLOSED, "%s: the images or labels of the data set were closed",
                         operation);
    return ND_OK;
}

/// Starts an epoch at one of its batches. On error no epoch runs.
static nd_status start_at(nd_dataset *dataset, uint64_t epoch, int64_t position) {
    nd__prefetch_stop(&dataset->prefetch);
    dataset->started = false;
    dataset->resumes = false;
    dataset->epoch = epoch;
    dataset->position = position;
    nd_status status = reserve(dataset);
    if (status == ND_OK && dataset->options.shuffle)
        status = shuffle(dataset, epoch);
    if (status == ND_OK && dataset->options.prefetch && dataset->plan.batches > position)
        status = nd__prefetch_start(&dataset->prefetch, "dataset_start", nd__batch_fill,
                                    &dataset->plan, dataset->slots, sizeof(*dataset->slots),
                                    dataset->depth, position, dataset->plan.batches);
    dataset->started = status == ND_OK;
    return status;
}

/// Memory that an epoch needs beyond the tensors it hands out; taken once and kept.
static nd_status reserve(nd_dataset *dataset) {
    nd_batch_plan *plan = &dataset->plan;
    if (dataset->options.shuffle && !dataset->order && plan->samples > 0) {
        dataset->order = nd__pressure_alloc((size_t)plan->samples * sizeof(*dataset->order));
        if (!dataset->order)
            return nd__error(ND_ERROR_OUT_OF_MEMORY,
                             "dataset_start: no memory for the order of %lld samples",
                             (long long)plan->samples);
    }
    const bool on_host = nd__registry_backend(dataset->options.device.kind)->host_accessible;
    if (dataset->plan.batches == 0 || (on_host && !dataset->options.prefetch))
        return ND_OK;
    const size_t bytes = plan->images_bytes + plan->labels_bytes;
    size_t depth = PREFETCH_BYTES / (bytes ? bytes : 1);
    depth = depth < PREFETCH_DEPTH_MIN ? PREFETCH_DEPTH_MIN : depth;
    depth = depth > PREFETCH_DEPTH_MAX ? PREFETCH_DEPTH_MAX : depth;
    dataset->depth = dataset->options.prefetch ? (int64_t)depth : 1;
    for (int64_t i = 0; i < dataset->depth; i++)
        if (!dataset->slots[i].images && !nd__batch_slot_new(&dataset->slots[i], plan))
            return nd__error(ND_ERROR_OUT_OF_MEMORY,
                             "dataset_start: no memory for %lld prepared batches of %zu bytes",
                             (long long)dataset->depth, bytes);
    return ND_OK;
}

static nd_status shuffle(nd_dataset *dataset, uint64_t epoch) {
    nd_batch_plan *plan = &dataset->plan;
    plan->order = NULL;
    if (plan->samples == 0)
        return ND_OK;
    nd_auto nd_tensor *order = nd_randperm(nd_key_fold(dataset->options.key, epoch), plan->samples);
    if (!order)
        return nd_error_get_status();
    nd_status status = nd__copy_to_host("dataset_start", order, dataset->order);
    if (status == ND_OK)
        plan->order = dataset->order;
    return status;
}

static void batch_shape(const nd_dataset *dataset, int64_t *ret_shape) {
    const nd_tensor *images = dataset->images;
    memcpy(ret_shape, images->shape, (size_t)images->ndim * sizeof *ret_shape);
    ret_shape[0] = nd__batch_count(&dataset->plan, dataset->position);
}

/// Tensor on a block of the host allocator, which stays the caller's until `borrowed` is cleared; the
/// block may be larger.
static nd_tensor *tensor_on_block(nd_manager *manager, void *block, size_t bytes, nd_dtype dtype,
                                  int ndim, const int64_t *shape) {
    nd_storage *storage =
        nd__storage_wrap("dataset_next_batch", manager, (nd_device){ND_CPU, 0}, block, bytes);
    int64_t numel = 1;
    for (int axis = 0; axis < ndim; axis++)
        numel *= shape[axis];
    return storage ? nd__tensor_on(manager, storage, dtype, ndim, shape, numel) : NULL;
}

/// The next prepared batch, as tensors on the very memory in which it was prepared; its slot gets
/// new memory.
static bool hand_over(nd_dataset *dataset, nd_tensor **ret_images, nd_tensor **ret_labels) {
    const nd_batch_plan *plan = &dataset->plan;
    int64_t shape[ND_MAX_DIMS];
    batch_shape(dataset, shape);
    nd_batch_slot replacement;
    if (!nd__batch_slot_new(&replacement, plan)) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "dataset_next_batch: no memory for a batch of %zu bytes",
                  plan->images_bytes + plan->labels_bytes);
        return false;
    }
    nd_batch_slot *slot = nd__prefetch_wait(&dataset->prefetch);
    if (!slot) {
        nd__batch_slot_free(&replacement, plan);
        return false;
    }
    nd_place place = nd__place_begin(NULL, 0);
    nd_tensor *images = tensor_on_block(place.manager, slot->images, plan->images_bytes,
                                        plan->image_dtype, dataset->images->ndim, shape);
    nd_tensor *labels =
        images ? tensor_on_block(place.manager, slot->labels, plan->labels_bytes, ND_I64, 1, shape)
               : NULL;
    nd__place_end(place);
    if (!labels) {
        nd_release(images);
        nd__batch_slot_free(&replacement, plan);
        return false;
    }
    nd__tensor_storage_now(images)->borrowed = false;
    nd__tensor_storage_now(labels)->borrowed = false;
    *slot = replacement;
    nd__prefetch_done(&dataset->prefetch);
    *ret_images = images;
    *ret_labels = labels;
    return true;
}

/// The next batch in new tensors: cut directly into them, or copied from a slot.
static bool make_batch(nd_dataset *dataset, nd_tensor **ret_images, nd_tensor **ret_labels) {
    const nd_device device = dataset->options.device;
    int64_t shape[ND_MAX_DIMS];
    batch_shape(dataset, shape);
    nd_place place = nd__place_begin(NULL, 0);
    nd_tensor *images = nd__tensor_new("dataset_next_batch", place.manager, device,
                                       dataset->plan.image_dtype, dataset->images->ndim, shape);
    nd_tensor *labels =
        images ? nd__tensor_new("dataset_next_batch", place.manager, device, ND_I64, 1, shape)
               : NULL;
    nd__place_end(place);
    if (!labels || fill_tensors(dataset, images, labels) != ND_OK) {
        nd_release(images);
        nd_release(labels);
        return false;
    }
    *ret_images = images;
    *ret_labels = labels;
    return true;
}

static nd_status fill_tensors(nd_dataset *dataset, nd_tensor *images, nd_tensor *labels) {
    const nd_batch_plan *plan = &dataset->plan;
    nd_batch_slot *slot = dataset->slots;
    if (nd__capture_check("dataset_next_batch", images->device) != ND_OK)
        return ND_ERROR_STATE;
    if (!slot->images) {
        nd__batch_fill_images(plan, dataset->position, images->data);
        nd__batch_fill_labels(plan, dataset->position, labels->data);
        return ND_OK;
    }
    if (dataset->options.prefetch)
        slot = nd__prefetch_wait(&dataset->prefetch);
    else
        nd__batch_fill(plan, dataset->position, slot);
    if (!slot)
        return ND_ERROR_STATE;
    const nd_backend *backend = nd__registry_backend(images->device.kind);
    const int index = images->device.index;
    size_t images_bytes = (size_t)images->numel * nd_dtype_get_size(images->dtype);
    size_t labels_bytes = (size_t)labels->numel * sizeof(int64_t);
    nd_status status = backend->copy_from_host(index, images->data, slot->images, images_bytes);
    if (status == ND_OK)
        status = backend->copy_from_host(index, labels->data, slot->labels, labels_bytes);
    if (status != ND_OK)
        return nd__error(status, "dataset_next_batch: a batch cannot be copied to %s",
                         nd__registry_device_text(images->device));
    if (dataset->options.prefetch)
        nd__prefetch_done(&dataset->prefetch);
    return ND_OK;
}
