// Calls of contractions, linear algebra and products with quantized weights.
#include "tests/fuzz/tensors.h"

static nd_tensor *sum_of_products(const nd_tensor *const *in, const fuzz_step *s) {
    static const char *const equations[] = {
        "ij,jk->ik",
        "ij,jk,kl->il",
        "ij->ji",
        "ii",
        "ii->i",
        "i,i",
        "i,j->ij",
        "ij,ij->",
        "...",
        "...i,...i->...",
        "...ij,...jk",
        "ijk,k->ij",
        "bij,bjk->bik",
        "ij->",
        "i->ii",
        "->",
        "a,a,a->a",
        "ij,j,i",
        "ij,k->",
        "i.j",
        "",
        "ab...,b...->a...",
    };
    size_t count = s->a / 16 % 3 + 1;
    return nd_einsum(equations[(s->c ^ s->d) % (sizeof equations / sizeof *equations)], count, in);
}

static nd_tensor *contract(const nd_tensor *a, const nd_tensor *b, const fuzz_step *s) {
    const int a_axes[] = {fuzz_axis(s->d), fuzz_axis(s->d / 10)};
    const int b_axes[] = {fuzz_axis((uint8_t)(s->d + s->a)), fuzz_axis(s->a)};
    return nd_tensordot(a, b, s->a / 8 % 3, a_axes, b_axes);
}

/// One of the results of a decomposition; the others are released.
static nd_tensor *decompose(const nd_tensor *x, const fuzz_step *s) {
    nd_tensor *results[3] = {NULL, NULL, NULL};
    nd_status status;
    switch (s->c % 4) {
    case 0:
        status = nd_qr(x, &results[0], &results[1]);
        break;
    case 1:
        status = nd_svd(x, &results[0], &results[1], &results[2]);
        break;
    case 2:
        status = nd_eigh(x, &results[0], &results[1]);
        break;
    default:
        status = nd_slogdet(x, &results[0], &results[1]);
    }
    int kept = s->d % (s->c % 4 == 1 ? 3 : 2);
    for (int i = 0; i < 3; i++)
        if (i != kept)
            nd_release(results[i]);
    return status == ND_OK ? results[kept] : NULL;
}

typedef struct quantized {
    nd_tensor *values, *scales, *zeros;
} quantized;

static nd_status quantize(const nd_tensor *weight, const fuzz_step *s, quantized *ret) {
    static const int bits[] = {8, 4, 8, 4, 3};
    static const int64_t groups[] = {0, 2, 4, 1, -1, 3};
    return nd_quantize(weight, bits[s->d % 5], groups[s->d / 5 % 6], fuzz_dtype(s->a / 8),
                       &ret->values, &ret->scales, s->d / 30 % 2 ? &ret->zeros : NULL);
}

/// What x makes of a weight that was quantized, or that weight.
static nd_tensor *with_quantized(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                                 const fuzz_step *s) {
    quantized q = {NULL, NULL, NULL};
    nd_tensor *result = NULL;
    if (quantize(weight, s, &q) == ND_OK)
        result = x ? nd_quantized_linear(x, q.values, q.scales, q.zeros, bias)
                   : nd_dequantize(q.values, q.scales, q.zeros, fuzz_dtype(s->c));
    nd_release(q.values);
    nd_release(q.scales);
    nd_release(q.zeros);
    return result;
}

/// The product of bytes of x and y, in which z may be zero points. Without those that were asked for the
/// call would succeed, and the error of the conversion be left.
static nd_tensor *integer_product(const nd_tensor *const *in, const fuzz_step *s) {
    const nd_dtype a_dtype = s->d & 1 ? ND_U8 : ND_I8, b_dtype = s->d & 2 ? ND_U8 : ND_I8;
    nd_auto nd_tensor *a = nd_cast(in[0], a_dtype);
    nd_auto nd_tensor *b = nd_cast(in[1], b_dtype);
    nd_auto nd_tensor *a_zero = s->d & 4 ? nd_cast(in[2], a_dtype) : NULL;
    nd_auto nd_tensor *b_zero = s->d & 8 ? nd_cast(in[2], b_dtype) : NULL;
    if ((s->d & 4 && !a_zero) || (s->d & 8 && !b_zero))
        return NULL;
    return nd_matmul_integer(a, b, a_zero, b_zero);
}

static nd_tensor *numbers_of(const nd_tensor *x, const fuzz_step *s) {
    static nd_tensor *(*const functions[])(const nd_tensor *) = {nd_svdvals, nd_eigvalsh, nd_det};
    return functions[s->d % 3](x);
}

TWO(outer)
TWO(kron)
WITH(tensordot, 2, contract(in[0], in[1], s))
WITH(vecdot, 2, nd_vecdot(in[0], in[1], -1 - s->d % 4))
WITH(cross, 2, nd_cross(in[0], in[1], -1 - s->d % 3))
WITH(einsum, 3, sum_of_products(in, s))
TWO(solve)
WITH(solve_triangular, 2, nd_solve_triangular(in[0], in[1], s->d % 2, s->d / 2 % 2))
ONE(inv)
WITH(lstsq, 2, nd_lstsq(in[0], in[1], s->d % 2 ? -1 : 0.1))
WITH(pinv, 1, nd_pinv(in[0], s->d % 2 ? -1 : 0.1))
WITH(matrix_power, 1, nd_matrix_power(in[0], s->d % 9 - 3))
ONE(cholesky)
WITH(decompose, 1, decompose(in[0], s))
WITH(numbers_of, 1, numbers_of(in[0], s))
WITH(matrix_rank, 1, nd_matrix_rank(in[0], s->d % 2 ? -1 : 0.1))
WITH(matrix_norm, 1, nd_matrix_norm(in[0], (nd_matrix_norm_kind)(s->d % 8), s->d / 8 % 2))
WITH(dequantize, 1, with_quantized(NULL, in[0], NULL, s))
WITH(quantized_linear, 2, with_quantized(in[0], in[1], NULL, s))
WITH(quantized_linear_bias, 3, with_quantized(in[0], in[1], in[2], s))
WITH(int4, 1, (s->d % 2 ? nd_pack_int4 : nd_unpack_int4)(in[0]))
WITH(matmul_integer, 3, integer_product(in, s))
WITH(integers_given, 3, nd_matmul_integer(in[0], in[1], s->a & 16 ? in[2] : NULL, NULL))
WITH(quantized_given, 3, nd_quantized_linear(in[0], in[1], in[2], s->a & 16 ? in[2] : NULL, NULL))

const fuzz_call fuzz_linalg_calls[] = {
    // clang-format off
    ENTRY(outer) ENTRY(kron) ENTRY(tensordot) ENTRY(vecdot) ENTRY(cross) ENTRY(einsum) WAITING(solve) WAITING(solve_triangular)
    WAITING(inv) WAITING(lstsq) WAITING(pinv) WAITING(matrix_power) WAITING(cholesky) WAITING(decompose) WAITING(numbers_of)
    WAITING(matrix_rank) WAITING(matrix_norm) WAITING(dequantize) WAITING(quantized_linear) WAITING(quantized_linear_bias)
    WAITING(quantized_given) ENTRY(int4) ENTRY(matmul_integer) ENTRY(integers_given)
    // clang-format on
    {0},
};
