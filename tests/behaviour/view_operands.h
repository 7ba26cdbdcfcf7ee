// Operands for every operation: random views of sizes that go together, of any strides that the
// library can make; with compact copies, and copies of the same windows on a device.
//
// All that is random comes from views.h, so that a round can be run again.
#ifndef ND_TESTS_BEHAVIOUR_VIEW_OPERANDS_H
#define ND_TESTS_BEHAVIOUR_VIEW_OPERANDS_H
#include "tests/behaviour/views.h"

typedef struct operands {
    nd_tensor *a, *b;                 ///< of one dtype; b broadcasts to a
    nd_tensor *other;                 ///< broadcasts to a, of another dtype
    nd_tensor *condition, *mask;      ///< bool: broadcasts to a, of a's shape
    nd_tensor *index, *source;        ///< of a's dimensions: gather's and scatter_add's
    nd_tensor *rows;                  ///< indices along the axis, of any shape
    nd_tensor *classes;               ///< indices of one_hot
    nd_tensor *few, *number;          ///< indices of weight's rows and columns; one of a's dtype
    nd_tensor *piece;                 ///< stands beside a along the axis
    nd_tensor *left, *right;          ///< a product's operands
    nd_tensor *x, *weight, *bias;     ///< linear's
    nd_tensor *pairs;                 ///< complex numbers along two axes
    nd_tensor *logits, *targets;      ///< cross_entropy's
    nd_tensor *image, *filter, *tint; ///< a convolution's
    nd_tensor *signal, *band, *turned_band, *turned; ///< of one axis; of a transposed one
    nd_tensor *volume, *block, *turned_block;        ///< of three axes
    nd_tensor *shuffled, *pixels, *matrix;           ///< 2 x 2 pixels in a channel each; fold's
} operands;

enum { OPERANDS = sizeof(operands) / sizeof(nd_tensor *) };

/// What is not a tensor and the same for both sides.
static struct {
    int axis, second_axis, naxes, axes[ND_MAX_DIMS], order[ND_MAX_DIMS];
    bool keepdims;
    double number;
    int64_t start, stop, step, at;
    nd_conv2d_options windows;
    nd_max_pool2d_options pooling;
    nd_conv1d_options signal;
    nd_conv_transpose2d_options turned;
    nd_max_pool1d_options peaks;
    nd_max_pool3d_options volumes;
    nd_avg_pool1d_options means;
    nd_avg_pool2d_options averages;
    nd_avg_pool3d_options volume_means;
    nd_interpolate_options sizes;
    nd_unfold_options columns, columns_of_four;
    int64_t side;
    int64_t lengths[2]; ///< of a transform along turned_axes
    int turned_axes[2];
    int expanded_ndim, factored_ndim, reduced_ndim;
    int64_t expanded[ND_MAX_DIMS], factored[ND_MAX_DIMS], reduced[ND_MAX_DIMS];
} given;

static inline nd_tensor **slots(operands *in) {
    return (nd_tensor **)in;
}

// ------------------------------------------------------------------------------------------ shapes

/// A shape that broadcasts to another.
static inline int smaller_shape(int ndim, const int64_t *shape, int64_t *ret_shape) {
    int missing = views_chance(40) ? (int)views_below(ndim + 1) : 0;
    for (int i = missing; i < ndim; i++)
        ret_shape[i - missing] = views_chance(30) ? 1 : shape[i];
    return ndim - missing;
}

static inline nd_tensor *view(int ndim, const int64_t *shape, nd_dtype dtype) {
    return views_random(VIEWS_ANY, ndim, shape, dtype, NULL);
}

static inline nd_tensor *view_like(const nd_tensor *x, nd_dtype dtype) {
    return view(nd_get_ndim(x), nd_get_shape(x), dtype);
}

static inline nd_tensor *smaller_view(const nd_tensor *x, nd_dtype dtype) {
    int64_t shape[ND_MAX_DIMS];
    int ndim = smaller_shape(nd_get_ndim(x), nd_get_shape(x), shape);
    return view(ndim, shape, dtype);
}

/// Overwrites a view of whole numbers with indices below `size`. Shared elements stay shared.
static inline nd_tensor *as_indices(nd_tensor *x, int64_t size) {
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        set_element(nd_get_data(x), nd_get_dtype(x), views_offset(x, i),
                    (double)(size > 0 ? views_below(2 * size) - size : 0));
    return x;
}

static inline nd_dtype index_dtype(void) {
    return views_chance(70) ? ND_I64 : ND_I32;
}

// --------------------------------------------------------------------------------------- one round

static inline void choose_along_axis(operands *in) {
    int ndim = nd_get_ndim(in->a);
    int64_t shape[ND_MAX_DIMS] = {0};
    in->number = view(0, shape, nd_get_dtype(in->a));
    if (ndim == 0) { // errors, which must be the same on both sides
        in->index = view(0, shape, ND_I64);
        in->source = view(0, shape, nd_get_dtype(in->a));
        in->piece = view(0, shape, nd_get_dtype(in->a));
        in->rows = view(0, shape, ND_I64);
        return;
    }
    for (int i = 0; i < ndim; i++)
        shape[i] = nd_get_shape(in->a)[i] ? 1 + views_below(nd_get_shape(in->a)[i]) : 0;
    shape[given.axis] = views_size();
    int64_t size = nd_get_shape(in->a)[given.axis];
    in->index = as_indices(view(ndim, shape, index_dtype()), size);
    in->source = view(ndim, shape, nd_get_dtype(in->a));
    for (int i = 0; i < ndim; i++)
        shape[i] = i == given.axis ? views_size() : nd_get_shape(in->a)[i];
    in->piece = view(ndim, shape, nd_get_dtype(in->a));
    int rows = views_shape(0, 2, shape);
    in->rows = as_indices(view(rows, shape, index_dtype()), size);
}

static inline int64_t random_side(void) {
    static const int64_t sides[] = {1, 1, 1, 2, 3, 7, 33, 40};
    return views_chance(1) ? 0 : sides[views_below(8)];
}

static inline void choose_products(operands *in, nd_dtype dtype) {
    int64_t batch[ND_MAX_DIMS], shape[ND_MAX_DIMS];
    int64_t m = random_side(), k = random_side(), n = random_side();
    int ndim = (int)views_below(4);
    for (int i = 0; i < ndim; i++)
        batch[i] = views_chance(50) ? 1 : 1 + views_below(4);
    int left = smaller_shape(ndim, batch, shape);
    shape[left] = m;
    shape[left + 1] = k;
    in->left = views_chance(10) ? view(ND_SHAPE(k), dtype) : view(left + 2, shape, dtype);
    int right = smaller_shape(ndim, batch, shape);
    shape[right] = k;
    shape[right + 1] = n;
    in->right = views_chance(10) ? view(ND_SHAPE(k), dtype) : view(right + 2, shape, dtype);
    for (int i = 0; i < ndim; i++)
        shape[i] = batch[i];
    shape[ndim] = m;
    shape[ndim + 1] = k;
    int at = (int)views_below(ndim + 2);
    in->x = view(ndim + 2 - at, shape + at, dtype);
    in->weight = view(ND_SHAPE(n, k), dtype);
    in->bias = view(ND_SHAPE(n), dtype);
    in->pairs = view(ND_SHAPE(m, k, 2), dtype);
    in->few = as_indices(view(ND_SHAPE(n), index_dtype()), n < k ? n : k);
}

static inline void choose_images(operands *in, nd_dtype dtype) {
    int64_t groups = 1 + views_below(2), channels = 1 + views_below(3);
    int64_t out = groups * (1 + views_below(4)), span[2];
    given.windows = (nd_conv2d_options)ND_CONV2D_OPTIONS_INIT;
    given.pooling = (nd_max_pool2d_options)ND_MAX_POOL2D_OPTIONS_INIT;
    given.windows.groups = groups;
    for (int i = 0; i < 2; i++) {
        int64_t kernel = 1 + views_below(3), dilation = 1 + views_below(2);
        given.windows.stride[i] = 1 + views_below(2);
        given.windows.padding[i] = views_below(2);
        given.windows.dilation[i] = given.pooling.dilation[i] = dilation;
        given.pooling.kernel[i] = kernel;
        given.pooling.stride[i] = views_below(3);
        given.pooling.padding[i] = views_below(kernel / 2 + 1);
        span[i] = dilation * (kernel - 1) + 1;
    }
    int64_t high = span[0] + views_below(5), wide = span[1] + views_below(9);
    in->image = view(ND_SHAPE(1 + views_below(3), groups * channels, high, wide), dtype);
    in->filter =
        view(ND_SHAPE(out, channels, given.pooling.kernel[0], given.pooling.kernel[1]), dtype);
    in->tint = view(ND_SHAPE(out), dtype);
    int64_t n = 1 + views_below(5), classes = 1 + views_below(20);
    in->logits = view(ND_SHAPE(n, classes), dtype);
    in->targets = view(ND_SHAPE(n), index_dtype());
    for (int64_t i = 0; i < n; i++)
        set_element(nd_get_data(in->targets), nd_get_dtype(in->targets),
                    views_offset(in->targets, i), (double)views_below(classes));
    in->classes = view_like(in->targets, index_dtype());
    for (int64_t i = 0; i < n; i++)
        set_element(nd_get_data(in->classes), nd_get_dtype(in->classes),
                    views_offset(in->classes, i), (double)views_below(6));
}

/// Options of what moves windows over one and three axes, and of interpolation.
static inline void choose_windows(void) {
    given.signal = (nd_conv1d_options)ND_CONV1D_OPTIONS_INIT;
    given.signal.stride = 1 + views_below(3);
    given.signal.padding = given.signal.extra_padding = views_below(2);
    given.signal.groups = given.windows.groups;
    given.turned = (nd_conv_transpose2d_options)ND_CONV_TRANSPOSE2D_OPTIONS_INIT;
    given.turned.stride[0] = 2;
    given.turned.output_padding[0] = views_below(2);
    given.turned.groups = given.windows.groups;
    given.peaks = (nd_max_pool1d_options)ND_MAX_POOL1D_OPTIONS_INIT;
    given.peaks.kernel = 1 + views_below(3);
    given.peaks.ceil_mode = views_chance(50);
    given.means = (nd_avg_pool1d_options)ND_AVG_POOL1D_OPTIONS_INIT;
    given.means.kernel = 1 + views_below(3);
    given.averages = (nd_avg_pool2d_options)ND_AVG_POOL2D_OPTIONS_INIT;
    given.averages.count_include_pad = views_chance(50);
    given.volumes = (nd_max_pool3d_options)ND_MAX_POOL3D_OPTIONS_INIT;
    given.volume_means = (nd_avg_pool3d_options)ND_AVG_POOL3D_OPTIONS_INIT;
    given.sizes = (nd_interpolate_options)ND_INTERPOLATE_OPTIONS_INIT;
    given.sizes.mode = (nd_interpolation)views_below(4);
    given.sizes.scales[0] = 0.4 + (double)views_below(4);
    given.sizes.sizes[1] = 1 + views_below(9);
    given.lengths[0] = 1 + views_below(5), given.lengths[1] = 1 + views_below(9);
    given.turned_axes[0] = 1, given.turned_axes[1] = 0;
    given.side = 1 + views_below(3);
    given.columns = given.columns_of_four = (nd_unfold_options)ND_UNFOLD_OPTIONS_INIT;
    for (int i = 0; i < 3; i++) {
        given.volumes.kernel[i] = given.volume_means.kernel[i] = 1 + views_below(2);
        if (i == 2)
            continue;
        given.averages.kernel[i] = given.pooling.kernel[i];
        given.averages.stride[i] = given.pooling.stride[i];
        given.averages.padding[i] = given.pooling.padding[i];
        given.columns.kernel[i] = given.pooling.kernel[i];
        given.columns.dilation[i] = given.pooling.dilation[i];
        given.columns_of_four.kernel[i] = 2;
    }
}

/// Operands of those; choose_images goes before.
static inline void choose_volumes(operands *in, nd_dtype dtype) {
    int64_t channels = nd_get_size(in->image, 1), groups = given.windows.groups;
    int64_t out = nd_get_size(in->tint, 0), of_group = channels / groups;
    in->signal = view(ND_SHAPE(1 + views_below(2), channels, 3 + views_below(9)), dtype);
    in->band = view(ND_SHAPE(out, of_group, 1 + views_below(3)), dtype);
    in->turned_band = view(ND_SHAPE(channels, 1 + views_below(3), 1 + views_below(3)), dtype);
    in->turned = view(ND_SHAPE(channels, out / groups, 1 + views_below(3), 2), dtype);
    in->volume = view(ND_SHAPE(1, channels, 2 + views_below(3), 2 + views_below(3), 3), dtype);
    in->block = view(ND_SHAPE(out, channels, 1 + views_below(2), 1, 2), dtype);
    in->turned_block = view(ND_SHAPE(channels, 2, 1, 1 + views_below(2), 2), dtype);
    in->shuffled = view(ND_SHAPE(1, 4 * channels, 2, 1 + views_below(2)), dtype);
    in->pixels = view(ND_SHAPE(2, channels, 2 * (1 + views_below(2)), 4), dtype);
    in->matrix = view(ND_SHAPE(1 + views_below(2), 4 * channels, 12), dtype);
}

static inline void choose_numbers(const nd_tensor *a) {
    int ndim = nd_get_ndim(a);
    const int64_t *shape = nd_get_shape(a);
    given.axis = ndim ? (int)views_below(ndim) : 0;
    given.second_axis = ndim ? (int)views_below(ndim) : 0;
    given.naxes = 0;
    given.reduced_ndim = ndim;
    for (int i = 0; i < ndim; i++) {
        bool reduced = views_chance(40);
        if (reduced)
            given.axes[given.naxes++] = i;
        given.reduced[i] = reduced ? 1 : shape[i];
    }
    for (int i = 0; i < ndim; i++) {
        int at = (int)views_below(i + 1);
        given.order[i] = given.order[at];
        given.order[at] = i;
    }
    int64_t size = ndim ? shape[given.axis] : 1;
    given.keepdims = views_chance(50);
    given.number = (double)(1 + views_below(4));
    given.start = views_below(size + 1);
    given.stop = views_chance(30) ? INT64_MAX : given.start + views_below(size + 1);
    given.step = views_chance(10) ? INT64_MAX : 1 + views_below(3);
    given.at = size ? views_below(size) : 0;
    int extra = ndim < ND_MAX_DIMS ? (int)views_below(2) : 0;
    given.expanded_ndim = ndim + extra;
    for (int i = 0; i < given.expanded_ndim; i++) {
        int64_t old = i < extra ? 1 : shape[i - extra];
        given.expanded[i] = old == 1 ? 1 + views_below(3) : old;
    }
    // The same elements in other groups: axes cut in two where that goes, or joined.
    given.factored_ndim = 0;
    for (int i = 0; i < ndim; i++) {
        int64_t left = shape[i];
        if (i > 0 && views_chance(30)) {
            given.factored[given.factored_ndim - 1] *= left;
        } else if (left > 1 && left % 2 == 0 && given.factored_ndim + ndim - i < ND_MAX_DIMS) {
            given.factored[given.factored_ndim++] = 2;
            given.factored[given.factored_ndim++] = left / 2;
        } else {
            given.factored[given.factored_ndim++] = left;
        }
    }
}

static inline operands random_operands(nd_dtype dtype) {
    operands in;
    int64_t shape[ND_MAX_DIMS];
    int ndim = views_shape(0, views_chance(5) ? ND_MAX_DIMS : 4, shape);
    in.a = view(ndim, shape, dtype);
    choose_numbers(in.a);
    in.b = smaller_view(in.a, dtype);
    in.other = smaller_view(in.a, (nd_dtype)views_below(ND_DTYPE_COUNT));
    in.condition = smaller_view(in.a, ND_BOOL);
    in.mask = view_like(in.a, ND_BOOL);
    choose_along_axis(&in);
    nd_dtype real = dtype == ND_F64 ? ND_F64 : ND_F32;
    choose_products(&in, real);
    choose_images(&in, real);
    choose_windows();
    choose_volumes(&in, real);
    return in;
}

static inline operands compact_operands(const operands *in) {
    operands copies;
    for (int i = 0; i < OPERANDS; i++)
        slots(&copies)[i] = views_compact(((nd_tensor *const *)in)[i]);
    return copies;
}

/// The same windows onto storages copied to the first CUDA device.
static inline operands operands_on_device(const operands *in) {
    operands there;
    for (int i = 0; i < OPERANDS; i++)
        slots(&there)[i] = views_moved(((nd_tensor *const *)in)[i], (nd_device){ND_CUDA, 0});
    return there;
}

static inline void release_operands(operands *in) {
    for (int i = 0; i < OPERANDS; i++)
        nd_release(slots(in)[i]);
}
#endif
