// Images of other sizes: interpolation as one map along each axis after the other
// (lib/ops/resample.h), and shuffling of pixels as a permutation of axes.
#include "lib/ops/interpolate.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/operands.h"
#include "lib/ops/resample.h"
#include "lib/tensor/shape.h"

#include <math.h>

enum { MAX_NDIM = 2 + ND_WINDOW_AXES };

nd_status nd__interpolate_options_read(const char *name, const nd_interpolate_options *options,
                                       nd_interpolate_options *ret_options) {
    nd_interpolate_options read = ND_INTERPOLATE_OPTIONS_INIT;
    nd_status status =
        nd__versioned_read(name, "ND_INTERPOLATE_OPTIONS_INIT", options, &read, sizeof read);
    if (status != ND_OK)
        return status;
    if ((unsigned)read.mode > ND_INTERPOLATION_CUBIC)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: there is no mode %d", name,
                         (int)read.mode);
    bool smooth = read.mode == ND_INTERPOLATION_LINEAR || read.mode == ND_INTERPOLATION_CUBIC;
    if (read.align_corners && !smooth)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: align_corners is for linear and cubic interpolation", name);
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        bool by_size = read.sizes[axis] != 0, by_scale = read.scales[axis] != 0;
        bool fine = !(by_size && by_scale) && read.sizes[axis] >= 0 &&
                    isfinite(read.scales[axis]) && read.scales[axis] >= 0;
        if (!fine)
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "%s: sizes[%d] is %lld and scales[%d] %g; one must be 0 and the other "
                             "above 0",
                             name, axis, (long long)read.sizes[axis], axis, read.scales[axis]);
    }
    *ret_options = read;
    return ND_OK;
}

/// The map along axis `axis` of the user's.
static nd_status make_map(const char *name, const nd_interpolate_options *o, int axis, int64_t in,
                          nd__resample_axis *ret_map) {
    static const nd__resample_mode modes[] = {
        [ND_INTERPOLATION_NEAREST] = ND__RESAMPLE_NEAREST,
        [ND_INTERPOLATION_NEAREST_EXACT] = ND__RESAMPLE_NEAREST_EXACT,
        [ND_INTERPOLATION_LINEAR] = ND__RESAMPLE_LINEAR,
        [ND_INTERPOLATION_CUBIC] = ND__RESAMPLE_CUBIC,
    };
    double scale = o->scales[axis];
    double size = scale > 0 ? floor((double)in * scale) : (double)o->sizes[axis];
    if (scale == 0 && o->sizes[axis] == 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: neither sizes[%d] nor scales[%d] is set",
                         name, axis, axis);
    if (!(size >= 1 && size <= INT32_MAX) || in < 1 || in > INT32_MAX)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: an axis of size %lld cannot become one of size %.0f; both must be at "
                         "least 1 and below 2^31",
                         name, (long long)in, size);
    *ret_map = (nd__resample_axis){.mode = modes[o->mode],
                                   .out = (int64_t)size,
                                   .flags = o->align_corners ? ND__RESAMPLE_ALIGN_CORNERS : 0,
                                   .step = scale > 0 ? 1 / scale : 0};
    return ND_OK;
}

static nd_status check_images(const nd_tensor *x) {
    nd_status status = nd__tensor_check_operand("interpolate", "x", x);
    if (status != ND_OK)
        return status;
    char text[ND__SHAPE_TEXT];
    if (!nd__dtype_is_float(x->dtype))
        return nd__error(ND_ERROR_DTYPE, "interpolate: x is %s and must be of a float dtype",
                         nd_dtype_get_name(x->dtype));
    if (x->ndim < 3 || x->ndim > MAX_NDIM)
        return nd__error(ND_ERROR_SHAPE,
                         "interpolate: x has shape %s and must have 3, 4 or 5 dimensions",
                         nd__shape_text(text, x->ndim, x->shape));
    return ND_OK;
}

/// The axes in an order in which little is made in between: those that shrink first, from the
/// outermost, whose rows are long; then those that grow, from the innermost.
static nd_tensor *map_axes(const nd_tensor *x, const nd__resample_axis *maps) {
    nd_auto nd_tensor *y =
        nd__operands_as_dtype(x, nd__dtype_is_half(x->dtype) ? ND_F32 : x->dtype);
    int axes = x->ndim - 2;
    for (int step = 0; step < 2 * axes && y; step++) {
        bool growing = step >= axes;
        int axis = growing ? 2 * axes - 1 - step : step;
        if ((maps[axis].out > x->shape[2 + axis]) != growing)
            continue;
        nd_tensor *next = nd__resample_along("interpolate", y, 2 + axis, &maps[axis]);
        nd_release(y);
        y = next;
    }
    return y ? nd__operands_as_dtype(y, x->dtype) : NULL;
}

nd_tensor *nd_interpolate(const nd_tensor *x, const nd_interpolate_options *options) {
    ND__ERROR_NAMED("interpolate");
    nd_interpolate_options o;
    nd__resample_axis maps[ND_WINDOW_AXES];
    if (check_images(x) != ND_OK ||
        nd__interpolate_options_read("interpolate", options, &o) != ND_OK)
        return NULL;
    for (int axis = 0; axis < x->ndim - 2; axis++)
        if (make_map("interpolate", &o, axis, x->shape[2 + axis], &maps[axis]) != ND_OK)
            return NULL;
    return map_axes(x, maps);
}

// --------------------------------------------------------------------------------- pixel shuffling

/// x: at least [c, h, w], and of what kind its factor is.
static nd_status check_shuffle(const char *name, const nd_tensor *x, int64_t factor) {
    nd_status status = nd__tensor_check_operand(name, "x", x);
    if (status != ND_OK)
        return status;
    char text[ND__SHAPE_TEXT];
    if (x->ndim < 3 || x->ndim > ND_MAX_DIMS - 2)
        return nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and must have 3 to %d dimensions",
                         name, nd__shape_text(text, x->ndim, x->shape), ND_MAX_DIMS - 2);
    if (factor < 1 || factor > INT32_MAX)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: factor is %lld and must be at least 1 and below 2^31", name,
                         (long long)factor);
    return ND_OK;
}

/// Splits x's last three axes into five (`split`), puts them in another order, and joins them to
/// three.
static nd_tensor *rearrange(const nd_tensor *x, const int64_t *split, const int *order,
                            const int64_t *joined) {
    int before = x->ndim - 3, axes[ND_MAX_DIMS];
    int64_t shape[ND_MAX_DIMS], result[ND_MAX_DIMS];
    for (int i = 0; i < before; i++) {
        shape[i] = result[i] = x->shape[i];
        axes[i] = i;
    }
    for (int i = 0; i < 5; i++) {
        shape[before + i] = split[i];
        axes[before + i] = before + order[i];
    }
    for (int i = 0; i < 3; i++)
        result[before + i] = joined[i];
    nd_auto nd_tensor *parts = nd_reshape(x, before + 5, shape);
    nd_auto nd_tensor *turned = nd_permute(parts, before + 5, axes);
    return nd__operands_own(nd_reshape(turned, before + 3, result), x);
}

nd_tensor *nd_pixel_shuffle(const nd_tensor *x, int64_t factor) {
    ND__ERROR_NAMED("pixel_shuffle");
    if (check_shuffle("pixel_shuffle", x, factor) != ND_OK)
        return NULL;
    const int64_t *last = x->shape + x->ndim - 3;
    int64_t h, w;
    if (last[0] % (factor * factor) != 0 || __builtin_mul_overflow(last[1], factor, &h) ||
        __builtin_mul_overflow(last[2], factor, &w)) {
        nd__error(
            ND_ERROR_SHAPE,
            "pixel_shuffle: %lld channels are no multiple of factor * factor, which is %lld, or "
            "%lld x %lld pixels are too many",
            (long long)last[0], (long long)(factor * factor), (long long)last[1],
            (long long)last[2]);
        return NULL;
    }
    int64_t c = last[0] / (factor * factor);
    const int64_t split[] = {c, factor, factor, last[1], last[2]}, joined[] = {c, h, w};
    const int order[] = {0, 3, 1, 4, 2};
    return rearrange(x, split, order, joined);
}

nd_tensor *nd_pixel_unshuffle(const nd_tensor *x, int64_t factor) {
    ND__ERROR_NAMED("pixel_unshuffle");
    if (check_shuffle("pixel_unshuffle", x, factor) != ND_OK)
        return NULL;
    const int64_t *last = x->shape + x->ndim - 3;
    int64_t c;
    if (last[1] % factor != 0 || last[2] % factor != 0 ||
        __builtin_mul_overflow(last[0], factor * factor, &c)) {
        nd__error(
            ND_ERROR_SHAPE,
            "pixel_unshuffle: %lld x %lld pixels are no multiples of factor, which is %lld, or "
            "%lld channels are too many",
            (long long)last[1], (long long)last[2], (long long)factor, (long long)last[0]);
        return NULL;
    }
    int64_t h = last[1] / factor, w = last[2] / factor;
    const int64_t split[] = {last[0], h, factor, w, factor}, joined[] = {c, h, w};
    const int order[] = {0, 2, 4, 1, 3};
    return rearrange(x, split, order, joined);
}
