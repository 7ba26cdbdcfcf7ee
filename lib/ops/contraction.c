// Products of labelled terms, two at a time, and the functions that name their axes by number.
//
// A product of two becomes one of matrices: labels of both that are still needed are its batch,
// those of both that nobody else needs are summed, and each term's others are its rows or columns.
// Everything is views, sums and products that are recorded, so nothing here has a gradient of its
// own.
#include "lib/ops/contraction.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/shape.h"
#include <nd/contraction.h>
#include <nd/manipulation.h>

typedef uint64_t label_set;

static label_set labels_of(const nd__term *term) {
    label_set set = 0;
    for (int i = 0; i < term->ndim; i++)
        set |= (label_set)1 << term->labels[i];
    return set;
}

static void replace(nd__term *term, nd_tensor *x) {
    nd_release(term->x);
    term->x = x;
}

static void drop_label(nd__term *term, int axis) {
    for (int i = axis; i + 1 < term->ndim; i++)
        term->labels[i] = term->labels[i + 1];
    term->ndim--;
}

// ------------------------------------------------------------------------------------------ one term

/// Makes the labels distinct: two axes of one label become their diagonal, behind the others.
static void take_diagonals(nd__term *term) {
    for (int i = 0; i < term->ndim && term->x; i++)
        for (int j = i + 1; j < term->ndim && term->x; j++)
            if (term->labels[i] == term->labels[j]) {
                int label = term->labels[i];
                replace(term, nd_diagonal(term->x, 0, i, j));
                drop_label(term, j);
                drop_label(term, i);
                term->labels[term->ndim++] = label;
                i = 0;
                j = 0;
            }
}

/// Takes away axes of size 1 whose label is longer elsewhere: they repeat.
static void drop_repeated(nd__term *term, const int64_t *sizes) {
    for (int i = term->ndim - 1; i >= 0 && term->x; i--)
        if (term->x->shape[i] == 1 && sizes[term->labels[i]] != 1) {
            replace(term, nd_select(term->x, 0, i));
            drop_label(term, i);
        }
}

/// Sums over labels that are not needed, in the term's dtype; of 16-bit floats in f32, which the
/// term then has.
static void sum_unneeded(nd__term *term, label_set needed) {
    int axes[ND_MAX_DIMS], naxes = 0;
    for (int i = 0; i < term->ndim; i++)
        if (!(needed >> term->labels[i] & 1))
            axes[naxes++] = i;
    if (naxes == 0 || !term->x)
        return;
    nd_dtype dtype = nd__dtype_is_half(term->x->dtype) ? ND_F32 : term->x->dtype;
    nd_auto nd_tensor *wide = nd__operands_as_dtype(term->x, dtype);
    nd_auto nd_tensor *sum = wide ? nd_sum(wide, naxes, axes, false) : NULL;
    replace(term, sum ? nd__operands_as_dtype(sum, dtype) : NULL);
    for (int i = naxes - 1; i >= 0; i--)
        drop_label(term, axes[i]);
}

// ----------------------------------------------------------------------------------------- two terms

/// The term's axes with labels of three sets, in that order, each set as one axis.
static nd_tensor *as_matrix(const nd__term *term, const label_set *sets) {
    int order[ND_MAX_DIMS], at = 0;
    int64_t shape[3] = {1, 1, 1};
    for (int set = 0; set < 3; set++)
        for (int label = 0; label < ND__CONTRACTION_LABELS; label++)
            for (int i = 0; i < term->ndim; i++)
                if (term->labels[i] == label && sets[set] >> label & 1) {
                    order[at++] = i;
                    shape[set] *= term->x->shape[i];
                }
    nd_auto nd_tensor *turned = nd_permute(term->x, term->ndim, order);
    return nd_reshape(turned, 3, shape);
}

/// The product of two terms replaces the first; the second is released.
static void multiply(const char *name, nd__term *a, nd__term *b, label_set needed,
                     const int64_t *sizes) {
    label_set in_a = labels_of(a), in_b = labels_of(b), both = in_a & in_b;
    label_set batch = both & needed, summed = both & ~needed;
    label_set rows = in_a & ~both, columns = in_b & ~both;
    nd_auto nd_tensor *left = as_matrix(a, (label_set[]){batch, rows, summed});
    nd_auto nd_tensor *right = as_matrix(b, (label_set[]){batch, summed, columns});
    nd_auto nd_tensor *product = summed ? nd_matmul(left, right) : nd_mul(left, right);
    int64_t shape[ND__CONTRACTION_LABELS];
    const label_set parts[] = {batch, rows, columns};
    int ndim = 0, labels[ND__CONTRACTION_LABELS];
    for (int part = 0; part < 3; part++)
        for (int label = 0; label < ND__CONTRACTION_LABELS; label++)
            if (parts[part] >> label & 1) {
                labels[ndim] = label;
                shape[ndim++] = sizes[label];
            }
    nd_release(nd_steal(&b->x));
    if (ndim > ND_MAX_DIMS) {
        nd__error(ND_ERROR_SHAPE,
                  "%s: a product of two operands has %d dimensions; %d are possible", name, ndim,
                  ND_MAX_DIMS);
        replace(a, NULL);
        return;
    }
    replace(a, nd_reshape(product, ndim, shape));
    a->ndim = ndim;
    for (int i = 0; i < ndim; i++)
        a->labels[i] = labels[i];
}

static double elements_of(label_set set, const int64_t *sizes) {
    double elements = 1;
    for (int label = 0; label < ND__CONTRACTION_LABELS; label++)
        if (set >> label & 1)
            elements *= (double)sizes[label];
    return elements;
}

/// Labels that the output has, or terms other than two.
static label_set needed_beside(const nd__term *terms, size_t count, size_t a, size_t b,
                               label_set output) {
    for (size_t i = 0; i < count; i++)
        if (i != a && i != b)
            output |= labels_of(&terms[i]);
    return output;
}

/// The pair whose product has the fewest elements more than its factors.
static void choose_pair(const nd__term *terms, size_t count, label_set output, const int64_t *sizes,
                        size_t *ret_a, size_t *ret_b) {
    double best = 0;
    *ret_a = 0;
    *ret_b = 1;
    for (size_t a = 0; a < count && count > 2; a++)
        for (size_t b = a + 1; b < count; b++) {
            label_set in_a = labels_of(&terms[a]), in_b = labels_of(&terms[b]);
            label_set kept = (in_a | in_b) & needed_beside(terms, count, a, b, output);
            double more =
                elements_of(kept, sizes) - elements_of(in_a, sizes) - elements_of(in_b, sizes);
            if ((a == 0 && b == 1) || more < best) {
                best = more;
                *ret_a = a;
                *ret_b = b;
            }
        }
}

/// The term's axes in the output's order.
static nd_tensor *in_order(const nd__term *term, const int *output, int noutput) {
    int order[ND_MAX_DIMS];
    for (int i = 0; i < noutput; i++)
        for (int axis = 0; axis < term->ndim; axis++)
            if (term->labels[axis] == output[i])
                order[i] = axis;
    return nd_permute(term->x, noutput, order);
}

/// All terms in one dtype, which the result has; ND_DTYPE_COUNT on error.
static nd_dtype promote(const char *name, nd__term *terms, size_t count) {
    nd_dtype dtype = terms[0].x->dtype;
    for (size_t i = 1; i < count; i++) {
        nd_dtype wider = nd_promote_dtypes(dtype, terms[i].x->dtype);
        if (wider == ND_DTYPE_COUNT) {
            nd__error(ND_ERROR_DTYPE, "%s: no dtype holds the numbers of %s and %s", name,
                      nd_dtype_get_name(dtype), nd_dtype_get_name(terms[i].x->dtype));
            return ND_DTYPE_COUNT;
        }
        dtype = wider;
    }
    for (size_t i = 0; i < count; i++) {
        if (terms[i].x->dtype != dtype)
            replace(&terms[i], nd_cast(terms[i].x, dtype));
        if (!terms[i].x)
            return ND_DTYPE_COUNT;
    }
    return dtype;
}

static void release_terms(nd__term *terms, size_t count) {
    for (size_t i = 0; i < count; i++)
        nd_release(terms[i].x);
}

nd_tensor *nd__contraction_run(const char *name, nd__term *terms, size_t count, const int *output,
                               int noutput) {
    nd_dtype dtype = promote(name, terms, count);
    if (dtype == ND_DTYPE_COUNT) {
        release_terms(terms, count);
        return NULL;
    }
    nd_auto nd_tensor *first = nd_retain(terms[0].x);
    int64_t sizes[ND__CONTRACTION_LABELS];
    label_set wanted = 0;
    bool whole = true;
    for (int label = 0; label < ND__CONTRACTION_LABELS; label++)
        sizes[label] = 1;
    for (int i = 0; i < noutput; i++)
        wanted |= (label_set)1 << output[i];
    for (size_t i = 0; i < count; i++)
        for (int axis = 0; axis < terms[i].ndim; axis++)
            if (terms[i].x->shape[axis] != 1)
                sizes[terms[i].labels[axis]] = terms[i].x->shape[axis];
    for (size_t i = 0; i < count; i++) {
        take_diagonals(&terms[i]);
        drop_repeated(&terms[i], sizes);
    }
    for (size_t i = 0; i < count; i++) {
        sum_unneeded(&terms[i], needed_beside(terms, count, i, i, wanted));
        whole = whole && terms[i].x;
    }
    for (size_t left = count; left > 1 && whole; left--) {
        size_t a, b;
        choose_pair(terms, left, wanted, sizes, &a, &b);
        multiply(name, &terms[a], &terms[b], needed_beside(terms, left, a, b, wanted), sizes);
        whole = terms[a].x != NULL;
        terms[b] = terms[left - 1];
        terms[left - 1] = (nd__term){.x = NULL};
    }
    nd_auto nd_tensor *laid = whole ? in_order(&terms[0], output, noutput) : NULL;
    release_terms(terms, count);
    return laid ? nd__operands_own(nd__operands_as_dtype(laid, dtype), first) : NULL;
}

// -------------------------------------------------------------------------------------------------

nd_tensor *nd_outer(const nd_tensor *a, const nd_tensor *b) {
    ND__ERROR_NAMED("outer");
    if (nd__operands_check_pair("outer", "a", a, "b", b) != ND_OK)
        return NULL;
    if (a->ndim != 1 || b->ndim != 1) {
        char a_text[ND__SHAPE_TEXT], b_text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "outer: a has shape %s and b %s; both must have one axis",
                  nd__shape_text(a_text, a->ndim, a->shape),
                  nd__shape_text(b_text, b->ndim, b->shape));
        return NULL;
    }
    nd_auto nd_tensor *column = nd_unsqueeze(a, 1);
    return nd_mul(column, b);
}

/// The axis counts from the end, because the operands may have different numbers of them.
static nd_status check_vectors(const char *name, const nd_tensor *a, const nd_tensor *b, int axis) {
    nd_status status = nd__operands_check_pair(name, "a", a, "b", b);
    if (status != ND_OK)
        return status;
    bool fits = axis < 0 && axis >= -a->ndim && axis >= -b->ndim;
    if (fits && a->shape[a->ndim + axis] == b->shape[b->ndim + axis])
        return ND_OK;
    char a_text[ND__SHAPE_TEXT], b_text[ND__SHAPE_TEXT];
    return nd__error(
        fits ? ND_ERROR_SHAPE : ND_ERROR_INVALID_ARGUMENT,
        "%s: axis %d of a of shape %s and b of shape %s; it must be negative, of both, and "
        "of one size",
        name, axis, nd__shape_text(a_text, a->ndim, a->shape),
        nd__shape_text(b_text, b->ndim, b->shape));
}

nd_tensor *nd_vecdot(const nd_tensor *a, const nd_tensor *b, int axis) {
    ND__ERROR_NAMED("vecdot");
    if (check_vectors("vecdot", a, b, axis) != ND_OK)
        return NULL;
    nd_auto nd_tensor *a_last = nd_moveaxis(a, axis, -1);
    nd_auto nd_tensor *b_last = nd_moveaxis(b, axis, -1);
    nd_auto nd_tensor *row = nd_unsqueeze(a_last, -2);
    nd_auto nd_tensor *column = nd_unsqueeze(b_last, -1);
    nd_auto nd_tensor *product = nd_matmul(row, column);
    nd_auto nd_tensor *line = nd_squeeze(product, -1);
    return nd_squeeze(line, -1);
}

nd_tensor *nd_cross(const nd_tensor *a, const nd_tensor *b, int axis) {
    ND__ERROR_NAMED("cross");
    if (check_vectors("cross", a, b, axis) != ND_OK)
        return NULL;
    char text[ND__SHAPE_TEXT];
    if (a->shape[a->ndim + axis] != 3 || a->dtype == ND_BOOL || b->dtype == ND_BOOL) {
        nd__error(a->dtype == ND_BOOL || b->dtype == ND_BOOL ? ND_ERROR_DTYPE : ND_ERROR_SHAPE,
                  "cross: a is %s of shape %s and b %s; both must be numbers, three along axis %d",
                  nd_dtype_get_name(a->dtype), nd__shape_text(text, a->ndim, a->shape),
                  nd_dtype_get_name(b->dtype), axis);
        return NULL;
    }
    // With the elements behind each other in a circle: a[i + 1] b[i + 2] - a[i + 2] b[i + 1].
    nd_auto nd_tensor *a_next = nd_roll(a, -1, axis);
    nd_auto nd_tensor *b_next = nd_roll(b, -1, axis);
    nd_auto nd_tensor *a_last = nd_roll(a, 1, axis);
    nd_auto nd_tensor *b_last = nd_roll(b, 1, axis);
    nd_auto nd_tensor *plus = nd_mul(a_next, b_last);
    nd_auto nd_tensor *minus = nd_mul(a_last, b_next);
    return nd_sub(plus, minus);
}

static nd_status check_tensordot(const nd_tensor *a, const nd_tensor *b, int naxes,
                                 const int *a_axes, const int *b_axes) {
    nd_status status = nd__operands_check_pair("tensordot", "a", a, "b", b);
    if (status != ND_OK)
        return status;
    if (naxes < 0 || naxes > a->ndim || naxes > b->ndim || (naxes > 0 && (!a_axes || !b_axes)))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "tensordot: %d axes, of %d of a and %d of b, at %s", naxes, a->ndim,
                         b->ndim, a_axes && b_axes ? "addresses" : "NULL");
    return ND_OK;
}

nd_tensor *nd_tensordot(const nd_tensor *a, const nd_tensor *b, int naxes, const int *a_axes,
                        const int *b_axes) {
    ND__ERROR_NAMED("tensordot");
    if (check_tensordot(a, b, naxes, a_axes, b_axes) != ND_OK)
        return NULL;
    nd__term terms[2] = {{.ndim = a->ndim}, {.ndim = b->ndim}};
    for (int i = 0; i < a->ndim; i++)
        terms[0].labels[i] = i;
    for (int i = 0; i < b->ndim; i++)
        terms[1].labels[i] = ND_MAX_DIMS + i;
    label_set summed = 0;
    for (int i = 0; i < naxes; i++) {
        int of_a = nd__shape_resolve_axis("tensordot", a_axes[i], a->ndim);
        int of_b = of_a < 0 ? -1 : nd__shape_resolve_axis("tensordot", b_axes[i], b->ndim);
        if (of_b < 0)
            return NULL;
        if (summed >> of_a & 1 || terms[1].labels[of_b] < ND_MAX_DIMS ||
            a->shape[of_a] != b->shape[of_b]) {
            nd__error(ND_ERROR_SHAPE,
                      "tensordot: axis %d of a (%lld elements) and axis %d of b (%lld) must be as "
                      "long, and named once",
                      a_axes[i], (long long)a->shape[of_a], b_axes[i], (long long)b->shape[of_b]);
            return NULL;
        }
        summed |= (label_set)1 << of_a;
        terms[1].labels[of_b] = of_a;
    }
    int output[2 * ND_MAX_DIMS], noutput = 0;
    for (int i = 0; i < a->ndim; i++)
        if (!(summed >> i & 1))
            output[noutput++] = i;
    for (int i = 0; i < b->ndim; i++)
        if (terms[1].labels[i] >= ND_MAX_DIMS)
            output[noutput++] = terms[1].labels[i];
    terms[0].x = nd_retain(a);
    terms[1].x = nd_retain(b);
    return nd__contraction_run("tensordot", terms, 2, output, noutput);
}

/// Shorter rows of b are repeated rather than multiplied by one element of a each.
#define KRON_ROW 64

/// Axes of a Kronecker product that a and b are brought to first, bit i for axis i: the last ones while
/// rows are short, and others where there would be too many axes in turns.
static unsigned kron_joint_axes(int ndim, const int64_t *a_shape, const int64_t *b_shape) {
    unsigned joint = 0;
    int64_t row = 1; // of what is joint so far
    int count = 0;
    for (int i = 0; i < ndim; i++)
        count += (a_shape[i] != 1) + (b_shape[i] != 1);
    for (int i = ndim - 1; i >= 0; i--) {
        const bool is_short = (row > 1 ? row : b_shape[i]) < KRON_ROW;
        if (a_shape[i] == 1 || b_shape[i] == 1 || (!is_short && count <= ND_MAX_DIMS))
            continue;
        joint |= 1u << i;
        count--;
        row = is_short ? row * a_shape[i] * b_shape[i] : KRON_ROW;
    }
    return joint;
}

/// a and b with axes in turns, [a0, 1, a1, 1 ...] and [1, b0, 1, b1 ...], are broadcast.
static nd_tensor *kron(const nd_tensor *a, const nd_tensor *b, int ndim, const int64_t *a_shape,
                       const int64_t *b_shape, const int64_t *shape) {
    const unsigned joint = kron_joint_axes(ndim, a_shape, b_shape);
    int64_t of_a[2 * ND_MAX_DIMS], of_b[2 * ND_MAX_DIMS], tiles[ND_MAX_DIMS];
    int count = 0;
    nd_auto nd_tensor *wide = nd_reshape(a, ndim, a_shape);
    for (int i = 0; i < ndim && wide; i++) {
        const bool is_joint = joint >> i & 1;
        tiles[i] = is_joint ? a_shape[i] : 1;
        of_a[count] = is_joint ? shape[i] : a_shape[i];
        of_b[count] = is_joint ? shape[i] : 1;
        count += is_joint || a_shape[i] != 1;
        if (!is_joint) {
            of_a[count] = 1, of_b[count] = b_shape[i];
            count += b_shape[i] != 1;
            continue;
        }
        nd_tensor *next = nd_repeat(wide, b_shape[i], i);
        nd_release(wide);
        wide = next;
    }
    nd_auto nd_tensor *tiled = wide ? nd_tile(b, ndim, tiles) : NULL;
    nd_auto nd_tensor *left = tiled ? nd_reshape(wide, count, of_a) : NULL;
    nd_auto nd_tensor *right = left ? nd_reshape(tiled, count, of_b) : NULL;
    nd_auto nd_tensor *product = right ? nd_mul(left, right) : NULL;
    return product ? nd_reshape(product, ndim, shape) : NULL;
}

nd_tensor *nd_kron(const nd_tensor *a, const nd_tensor *b) {
    ND__ERROR_NAMED("kron");
    if (nd__operands_check_pair("kron", "a", a, "b", b) != ND_OK)
        return NULL;
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    int64_t a_shape[ND_MAX_DIMS], b_shape[ND_MAX_DIMS], shape[ND_MAX_DIMS];
    for (int i = 0; i < ndim; i++) {
        int of_a = i - (ndim - a->ndim), of_b = i - (ndim - b->ndim);
        a_shape[i] = of_a < 0 ? 1 : a->shape[of_a];
        b_shape[i] = of_b < 0 ? 1 : b->shape[of_b];
        if (!__builtin_mul_overflow(a_shape[i], b_shape[i], &shape[i]))
            continue;
        nd__error(ND_ERROR_SHAPE, "kron: %lld times %lld elements are too many",
                  (long long)a_shape[i], (long long)b_shape[i]);
        return NULL;
    }
    return kron(a, b, ndim, a_shape, b_shape, shape);
}
