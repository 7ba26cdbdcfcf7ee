// Calls that make tensors, look at them, view them and write them.
#include "lib/device/fake/fake.h"
#include "tests/fuzz/program.h"
#include "tests/fuzz/tensors.h"
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------------------------------- creation

static void make_with(fuzz_actor *me, const fuzz_step *s,
                      nd_tensor *(*make)(int, const int64_t *, nd_dtype)) {
    const int64_t *shape;
    int ndim = fuzz_shape(s->b, &shape);
    nd_tensor *made = make(ndim, shape, fuzz_dtype(s->c));
    fuzz_expect(me, made);
    fuzz_put_fresh(me, FUZZ_TENSOR, s->a, made);
}

static void zeros(fuzz_actor *me, const fuzz_step *s) {
    make_with(me, s, nd_zeros);
}

static void ones(fuzz_actor *me, const fuzz_step *s) {
    make_with(me, s, nd_ones);
}

/// Whatever was in the memory; but a bool that is neither 0 nor 1 would be the program's mistake.
static void empty(fuzz_actor *me, const fuzz_step *s) {
    make_with(me, s, fuzz_dtype(s->c) == ND_BOOL ? nd_zeros : nd_empty);
}

static void full(fuzz_actor *me, const fuzz_step *s) {
    const int64_t *shape;
    int ndim = fuzz_shape(s->b, &shape);
    nd_tensor *made = nd_full(ndim, shape, fuzz_value(s->d), fuzz_dtype(s->c));
    fuzz_expect(me, made);
    fuzz_put_fresh(me, FUZZ_TENSOR, s->a, made);
}

static void counting(fuzz_actor *me, const fuzz_step *s) {
    static const double steps[] = {1, 0.5, -1, 0};
    nd_tensor *made = s->d % 2 ? nd_linspace(fuzz_value(s->b), 3, s->c % 20, fuzz_dtype(s->c / 32))
                               : nd_arange(-2, s->b % 32, steps[s->d / 2 % 4], fuzz_dtype(s->c));
    fuzz_expect(me, made);
    fuzz_put_fresh(me, FUZZ_TENSOR, s->a, made);
}

static void eye(fuzz_actor *me, const fuzz_step *s) {
    nd_tensor *made = nd_eye(s->b % 6, fuzz_dtype(s->c));
    fuzz_expect(me, made);
    fuzz_put_fresh(me, FUZZ_TENSOR, s->a, made);
}

static void from_data(fuzz_actor *me, const fuzz_step *s) {
    static _Thread_local int64_t data[1600];
    const int64_t *shape;
    int ndim = fuzz_shape(s->b, &shape);
    if (s->b % 32 == 23)
        return; // larger than the data
    memset(data, s->d % 2, sizeof data);
    nd_tensor *made = nd_from_data(data, ndim, shape, fuzz_dtype(s->c));
    fuzz_expect(me, made);
    fuzz_put_fresh(me, FUZZ_TENSOR, s->a, made);
}

static void free_wrapped(void *pointer, size_t bytes) {
    memset(pointer, 0xEE, bytes);
    free(pointer);
    fuzz_nest();
}

static void wrap(fuzz_actor *me, const fuzz_step *s) {
    enum { COUNT = 6 };
    double *data = calloc(COUNT, sizeof *data);
    if (!data)
        fuzz_die("no memory");
    for (int i = 0; i < COUNT; i++)
        data[i] = i;
    nd_tensor *made = nd_wrap(data, ND_SHAPE(2, 3), ND_F64, free_wrapped);
    fuzz_expect(me, made);
    if (!made)
        free(data);
    fuzz_put_fresh(me, FUZZ_TENSOR, s->a, made);
}

static void like(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *x = fuzz_tensor(me, s->b);
    nd_tensor *made = s->c % 3 == 0   ? nd_zeros_like(x)
                      : s->c % 3 == 1 ? nd_ones_like(x)
                                      : nd_full_like(x, fuzz_value(s->d));
    fuzz_expect(me, made);
    fuzz_put_fresh(me, FUZZ_TENSOR, s->a, made);
}

static void randoms(fuzz_actor *me, const fuzz_step *s) {
    const int64_t *shape;
    int ndim = fuzz_shape(s->b, &shape);
    nd_key key = nd_key_fold(nd_key_new(s->d), s->c);
    nd_tensor *made = NULL;
    switch (s->d % 4) {
    case 0:
        made = nd_rand(key, ndim, shape, fuzz_dtype(s->c));
        break;
    case 1:
        made = nd_randn(key, ndim, shape, fuzz_dtype(s->c));
        break;
    case 2:
        made = nd_randint(key, -1, s->c / 8 % 8, ndim, shape, fuzz_dtype(s->c));
        break;
    default:
        made = nd_randperm(key, s->b % 16);
    }
    fuzz_expect(me, made);
    fuzz_put_fresh(me, FUZZ_TENSOR, s->a, made);
}

// -------------------------------------------------------------------------------------- properties

/// What a tensor says of itself must fit itself.
static void tensor_look(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *x = fuzz_tensor(me, s->a);
    int64_t numel = 1;
    if (!x || nd_is_closed(x))
        return;
    for (int axis = 0; axis < nd_get_ndim(x); axis++) {
        numel *= nd_get_size(x, axis);
        if (nd_get_size(x, axis) != nd_get_size(x, axis - nd_get_ndim(x)))
            fuzz_die("an axis has another size when counted from the end");
    }
    if (numel != nd_get_numel(x))
        fuzz_die("a tensor has another number of elements than its shape");
    if (numel > 0 && nd_get_storage_bytes(x) < nd_dtype_get_size(nd_get_dtype(x)))
        fuzz_die("a storage is smaller than an element");
    nd_is_view_of(x, fuzz_tensor(me, s->b));
    if (nd_get_ndim(x) > 0 && !nd_get_strides(x))
        fuzz_die("a tensor without strides");
    if (nd_is_leaf(x) && nd_get_node(x))
        fuzz_die("a leaf that was computed");
    if (nd_get_node(x) && !nd_requires_grad(x))
        fuzz_die("a tensor has a node and wants no gradient");
    nd_is_contiguous(x);
    nd_get_version(x);
    nd_is_leaf(x);
    if (nd_get_node(x) && !nd_node_get_name(nd_get_node(x))[0])
        fuzz_die("a node without a name");
}

/// Every element, as the program would read it.
static void read_out(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *x = fuzz_tensor(me, s->a);
    size_t bytes = x ? (size_t)nd_get_numel(x) * nd_dtype_get_size(nd_get_dtype(x)) : 0;
    void *copy = malloc(bytes ? bytes : 1);
    if (!copy)
        fuzz_die("no memory");
    nd_status status = nd_copy_to_host(x, copy, bytes);
    fuzz_expect(me, status == ND_OK);
    free(copy);
}

static void item(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *x = fuzz_tensor(me, s->a);
    int64_t value = 0;
    if (s->b % 2)
        fuzz_expect(me, nd_get_item_i64(x, &value) == ND_OK);
    else
        nd_get_item(x);
}

static void print(fuzz_actor *me, const fuzz_step *s) {
    char text[200];
    const nd_tensor *x = fuzz_tensor(me, s->a);
    int64_t length = nd_format(x, text, s->b % sizeof text);
    fuzz_expect(me, length >= 0);
}

/// To a stream that takes everything, or to one that is always full.
static void print_to(fuzz_actor *me, const fuzz_step *s) {
    FILE *stream = fopen(s->b % 4 == 3 ? "/dev/full" : "/dev/null", "w");
    if (!stream)
        fuzz_die("there is no stream");
    setvbuf(stream, NULL, _IONBF, 0);
    fuzz_expect(me, nd_print(fuzz_tensor(me, s->a), stream) == ND_OK);
    fclose(stream);
}

/// What dtypes say of each other fits together.
static void dtypes(fuzz_actor *me, const fuzz_step *s) {
    const nd_dtype a = (nd_dtype)(s->a % ND_DTYPE_COUNT), b = (nd_dtype)(s->b % ND_DTYPE_COUNT);
    const nd_dtype both = nd_promote_dtypes(a, b);
    if (both != nd_promote_dtypes(b, a))
        fuzz_die("two dtypes become another one in the other order");
    if (!nd_can_cast(a, a) || nd_promote_dtypes(a, a) != a)
        fuzz_die("a dtype does not go into itself");
    if (both != ND_DTYPE_COUNT && nd_promote_dtypes(both, a) != both)
        fuzz_die("what two dtypes become does not hold one of them");
    if (!nd_dtype_get_name(a)[0] || nd_dtype_get_size(a) == 0)
        fuzz_die("a dtype without a name or a size");
    nd_dtype_get_kind(a);
    nd_dtype_get_min(a);
    nd_dtype_get_max(a);
    nd_dtype_get_epsilon(a);
    nd_dtype_get_smallest_normal(a);
    nd_error_clear();
    fuzz_expect(me, true);
}

static void get_data(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *x = fuzz_tensor(me, s->a);
    void *data = nd_get_data(x);
    if (!data && x && nd_get_numel(x) > 0)
        fuzz_expect(me, false);
}

// ------------------------------------------------------------------------------------------- views

static nd_tensor *f_reshape(const nd_tensor *const *in, const fuzz_step *s) {
    const int64_t *shape;
    int ndim = fuzz_shape(s->c, &shape);
    return nd_reshape(in[0], ndim, shape);
}

static nd_tensor *f_expand(const nd_tensor *const *in, const fuzz_step *s) {
    const int64_t *shape;
    int ndim = fuzz_shape(s->c, &shape);
    return nd_expand(in[0], ndim, shape);
}

static nd_tensor *f_sum_to(const nd_tensor *const *in, const fuzz_step *s) {
    const int64_t *shape;
    int ndim = fuzz_shape(s->c, &shape);
    return nd_sum_to(in[0], ndim, shape);
}

static nd_tensor *f_permute(const nd_tensor *const *in, const fuzz_step *s) {
    int axes[ND_MAX_DIMS], ndim = nd_get_ndim(in[0]);
    for (int i = 0; i < ndim; i++)
        axes[i] = s->c % 2 ? ndim - 1 - i : (i + s->c / 2) % ndim;
    if (s->c == 255 && ndim)
        axes[0] = ndim;
    return nd_permute(in[0], ndim, axes);
}

static nd_tensor *f_transpose(const nd_tensor *const *in, const fuzz_step *s) {
    return nd_transpose(in[0], fuzz_axis(s->c), fuzz_axis(s->c / 10));
}

static nd_tensor *f_slice(const nd_tensor *const *in, const fuzz_step *s) {
    static const int64_t ends[] = {0, 1, -1, 2, INT64_MAX, -2, INT64_MIN, 3};
    static const int64_t steps[] = {0, 1, 2, 3, -1, -2, -3, INT64_MIN};
    return nd_slice(in[0], ends[s->d % 4], ends[s->d / 4 % 8], steps[s->d / 32], fuzz_axis(s->c));
}

static nd_tensor *f_select(const nd_tensor *const *in, const fuzz_step *s) {
    return nd_select(in[0], s->c / 10 % 6 - 3, fuzz_axis(s->c));
}

static nd_tensor *f_squeeze(const nd_tensor *const *in, const fuzz_step *s) {
    return nd_squeeze(in[0], fuzz_axis(s->c));
}

static nd_tensor *f_unsqueeze(const nd_tensor *const *in, const fuzz_step *s) {
    return nd_unsqueeze(in[0], fuzz_axis(s->c));
}

static nd_tensor *f_flatten(const nd_tensor *const *in, const fuzz_step *s) {
    return nd_flatten(in[0], fuzz_axis(s->c));
}

static nd_tensor *f_as_strided(const nd_tensor *const *in, const fuzz_step *s) {
    static const int64_t all_strides[] = {0, 1, 2, 3, -1, 8, 4, INT64_MAX / 2};
    const int64_t *shape;
    int ndim = fuzz_shape(s->c, &shape);
    int64_t strides[ND_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        strides[i] = all_strides[(s->d + i) % 8];
    return nd_as_strided(in[0], ndim, shape, strides, s->d / 8 % 4);
}

static nd_tensor *f_detach(const nd_tensor *const *in, const fuzz_step *s) {
    (void)s;
    return nd_detach(in[0]);
}

static nd_tensor *f_contiguous(const nd_tensor *const *in, const fuzz_step *s) {
    (void)s;
    return nd_contiguous(in[0]);
}

static nd_tensor *f_clone(const nd_tensor *const *in, const fuzz_step *s) {
    (void)s;
    return nd_clone(in[0]);
}

static nd_tensor *f_cast(const nd_tensor *const *in, const fuzz_step *s) {
    return nd_cast(in[0], fuzz_dtype(s->c));
}

static void to(fuzz_actor *me, const fuzz_step *s) {
    const nd_device devices[] = {{ND_CPU, 0}, {ND_FAKE, 0}, {ND_FAKE, 1}, {ND_FAKE, 7}};
    nd_tensor *moved = nd_to(fuzz_tensor(me, s->b), devices[s->c % 4]);
    fuzz_expect(me, moved);
    fuzz_put(me, FUZZ_TENSOR, s->a, moved);
}

#define VIEW(name)                                                \
    static void call_##name(fuzz_actor *me, const fuzz_step *s) { \
        fuzz_operation(me, s, 1, f_##name);                       \
    }
VIEW(reshape)
VIEW(expand)
VIEW(sum_to)
VIEW(permute)
VIEW(transpose)
VIEW(slice)
VIEW(select)
VIEW(squeeze)
VIEW(unsqueeze)
VIEW(flatten)
VIEW(detach)
VIEW(contiguous)
VIEW(clone)
VIEW(cast)

/// Depends on the layout by its purpose, so that no copy can be asked.
static void as_strided(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *x = fuzz_tensor(me, s->b);
    nd_tensor *view = f_as_strided(&x, s);
    fuzz_expect(me, view);
    fuzz_put(me, FUZZ_TENSOR, s->a, view);
}

static void join(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *inputs[3];
    size_t count = s->d % 4;
    for (uint8_t i = 0; i < 3; i++) {
        inputs[i] = fuzz_tensor(me, (uint8_t)(s->b + i));
        if (fuzz_is_large(inputs[i]))
            return;
    }
    nd_tensor *joined = s->d / 4 % 2 ? nd_stack(count, inputs, fuzz_axis(s->c))
                                     : nd_concat(count, inputs, fuzz_axis(s->c));
    fuzz_expect(me, joined);
    fuzz_put(me, FUZZ_TENSOR, s->a, joined);
}

// ---------------------------------------------------------------------------------------- in place

static void in_place(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *y = fuzz_tensor(me, s->b);
    nd_tensor *x = fuzz_pick_to_write(me, FUZZ_TENSOR, s->a);
    nd_status status;
    if (!x && fuzz_threaded)
        return;
    switch (s->c % 9) {
    case 0:
        status = nd_add_(x, y);
        break;
    case 1:
        status = nd_sub_(x, y);
        break;
    case 2:
        status = nd_mul_(x, y);
        break;
    case 3:
        status = nd_div_(x, y);
        break;
    case 4:
        status = nd_add_scaled_(x, y, fuzz_value(s->d));
        break;
    case 5:
        status = nd_mul_scalar_(x, fuzz_value(s->d));
        break;
    case 6:
        status = nd_fill_(x, fuzz_value(s->d));
        break;
    case 7:
        status = nd_copy_(x, y);
        break;
    default:
        status = nd_masked_fill_(x, y, fuzz_value(s->d));
    }
    fuzz_expect(me, status == ND_OK);
}

/// The result of a form in a tensor that is there; `axis` and `keepdims` from c, a number from d.
static nd_status write_to(nd_tensor *out, const nd_tensor *const *in, const fuzz_step *s) {
    int axis = fuzz_axis(s->c / 24);
    bool keepdims = s->d % 2;
    switch (s->c % 24) {
    case 0:
        return nd_add_out(in[0], in[1], out);
    case 1:
        return nd_mul_out(in[0], in[1], out);
    case 2:
        return nd_div_out(in[0], in[1], out);
    case 3:
        return nd_less_out(in[0], in[1], out);
    case 4:
        return nd_bitwise_and_out(in[0], in[1], out);
    case 5:
        return nd_bitwise_invert_out(in[0], out);
    case 6:
        return nd_exp_out(in[0], out);
    case 7:
        return nd_neg_out(in[0], out);
    case 8:
        return nd_mul_scalar_out(in[0], fuzz_value(s->d), out);
    case 9:
        return nd_clip_out(in[0], fuzz_value(s->d), 3, out);
    case 10:
        return nd_where_out(in[2], in[0], in[1], out);
    case 11:
        return nd_sum_out(in[0], s->d % 3, (const int[]){axis, axis + 1}, keepdims, out);
    case 12:
        return nd_max_out(in[0], 1, &axis, keepdims, out);
    case 13:
        return nd_std_out(in[0], 1, &axis, 1, keepdims, out);
    case 14:
        return nd_argmin_out(in[0], axis, keepdims, out);
    case 15:
        return nd_cumsum_out(in[0], axis, out);
    case 16:
        return nd_matmul_out(in[0], in[1], out);
    case 17:
        return nd_linear_out(in[0], in[1], in[2], out);
    case 18:
        return nd_softmax_out(in[0], axis, out);
    case 19:
        return nd_take_out(in[0], in[1], axis, out);
    case 20:
        return nd_gather_out(in[0], in[1], axis, out);
    case 21:
        return nd_embedding_out(in[0], in[1], ND_NO_PADDING, out);
    case 22:
        return nd_concat_out(2, in, axis, out);
    default:
        return nd_stack_out(2, in, axis, out);
    }
}

static void out(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *operands[3];
    for (uint8_t i = 0; i < 3; i++) {
        operands[i] = fuzz_tensor(me, (uint8_t)(s->b + i));
        if (fuzz_is_large(operands[i]))
            return;
    }
    nd_tensor *to = fuzz_pick_to_write(me, FUZZ_TENSOR, s->a);
    if (!to && fuzz_threaded)
        return;
    fuzz_expect(me, write_to(to, operands, s) == ND_OK);
}

/// The same to a tensor of the result's form, so that it is written more often than refused.
static void out_fitting(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *x = fuzz_tensor(me, s->b), *y = fuzz_tensor(me, s->d);
    if (fuzz_is_large(x) || fuzz_is_large(y))
        return;
    nd_auto nd_tensor *model = s->c % 2 ? nd_mul(x, y) : nd_sum(x, 1, &(int){s->c / 16 - 4}, true);
    nd_auto nd_tensor *plain = nd_detach(model);
    nd_tensor *made = plain ? nd_clone(plain) : NULL;
    nd_status status = ND_OK;
    nd_no_grad {
        status = !made      ? nd_error_get_status()
                 : s->c % 2 ? nd_mul_out(x, y, made)
                            : nd_sum_out(x, 1, &(int){s->c / 16 - 4}, true, made);
    }
    fuzz_expect(me, status == ND_OK);
    fuzz_put_fresh(me, FUZZ_TENSOR, s->a, made);
}

const fuzz_call fuzz_tensor_calls[] = {
    {"zeros", zeros, FUZZ_QUEUES},
    {"ones", ones, FUZZ_QUEUES},
    {"empty", empty, FUZZ_QUEUES},
    {"full", full, FUZZ_QUEUES},
    {"counting", counting, FUZZ_QUEUES},
    {"eye", eye, FUZZ_QUEUES},
    {"from_data", from_data, FUZZ_QUEUES},
    {"wrap", wrap, 0},
    {"like", like, FUZZ_QUEUES},
    {"random", randoms, FUZZ_QUEUES},
    {"tensor_look", tensor_look, FUZZ_QUEUES},
    {"read_out", read_out, 0},
    {"item", item, 0},
    {"print", print, 0},
    {"print_to", print_to, 0},
    {"dtypes", dtypes, FUZZ_QUEUES},
    {"get_data", get_data, 0},
    {"reshape", call_reshape, FUZZ_QUEUES},
    {"expand", call_expand, FUZZ_QUEUES},
    {"sum_to", call_sum_to, FUZZ_QUEUES},
    {"permute", call_permute, FUZZ_QUEUES},
    {"transpose", call_transpose, FUZZ_QUEUES},
    {"slice", call_slice, FUZZ_QUEUES},
    {"select", call_select, FUZZ_QUEUES},
    {"squeeze", call_squeeze, FUZZ_QUEUES},
    {"unsqueeze", call_unsqueeze, FUZZ_QUEUES},
    {"flatten", call_flatten, FUZZ_QUEUES},
    {"as_strided", as_strided, FUZZ_QUEUES},
    {"detach", call_detach, FUZZ_QUEUES},
    {"contiguous", call_contiguous, FUZZ_QUEUES},
    {"clone", call_clone, FUZZ_QUEUES},
    {"cast", call_cast, FUZZ_QUEUES},
    {"to", to, 0},
    {"join", join, FUZZ_QUEUES},
    {"in_place", in_place, FUZZ_QUEUES},
    {"out", out, 0},
    {"out_fitting", out_fitting, FUZZ_QUEUES},
    {0},
};
