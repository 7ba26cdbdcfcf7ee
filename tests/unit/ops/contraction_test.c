// Contractions, diagonals and grids against PyTorch; random equations against sums of products made
// one by one; what is refused.
#include "tests/unit/ops/torch_case.h"
#include <nd/contraction.h>
#include <nd/manipulation.h>

#define AXES(...)   \
    (const int[]) { \
        __VA_ARGS__ \
    }
#define CONTRACTION(name, expression) \
    TORCH_FUNCTION(name) {            \
        (void)count, (void)data;      \
        return expression;            \
    }
CONTRACTION(diagonal, nd_diagonal(x[0], 1, 2, 0))
CONTRACTION(diagonal_below, nd_diagonal(x[0], -2, 0, 1))
CONTRACTION(trace, nd_trace(x[0], 1))
CONTRACTION(outer, nd_outer(x[0], x[1]))
CONTRACTION(tensordot, nd_tensordot(x[0], x[1], 2, AXES(2, 0), AXES(0, -2)))
CONTRACTION(tensordot_of_all, nd_tensordot(x[0], x[1], 0, NULL, NULL))
CONTRACTION(kron, nd_kron(x[0], x[1]))
CONTRACTION(einsum_batch, nd_einsum("bij,bjk->bki", count, x))
CONTRACTION(einsum_chain, nd_einsum("ij,jk,kl", count, x))
CONTRACTION(einsum_diagonal, nd_einsum("iij->ji", count, x))
CONTRACTION(einsum_trace, nd_einsum("ii", count, x))
CONTRACTION(einsum_ellipsis, nd_einsum("...ij,...ji->i...", count, x))
CONTRACTION(einsum_bilinear, nd_einsum("zB, zB, B, z -> B", count, x))

TORCH_FUNCTION(meshgrid) {
    (void)data;
    nd_tensor *grid[3] = {NULL};
    assert_ok(nd_meshgrid(count, x, ND_INDEXING_XY, grid));
    nd_auto nd_tensor *product = nd_mul(grid[0], grid[1]);
    nd_tensor *sum = nd_add(product, grid[2]);
    for (int i = 0; i < 3; i++)
        nd_release(grid[i]);
    return sum;
}

static void test_contractions_as_in_pytorch(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(diagonal, 1, {3, {2, 4, 3}}),
        TORCH_CASE(diagonal_below, 1, {2, {4, 3}}),
        TORCH_CASE(trace, 1, {3, {2, 3, 4}}),
        TORCH_CASE(meshgrid, 3, {1, {3}}, {1, {2}}, {1, {2}}),
        TORCH_CASE(outer, 2, {1, {3}}, {1, {4}}),
        TORCH_CASE(tensordot, 2, {3, {2, 3, 4}}, {3, {4, 2, 2}}),
        TORCH_CASE(tensordot_of_all, 2, {2, {2, 2}}, {1, {3}}),
        TORCH_CASE(kron, 2, {2, {2, 3}}, {3, {2, 1, 2}}),
        TORCH_CASE(einsum_batch, 2, {3, {2, 3, 4}}, {3, {2, 4, 2}}),
        TORCH_CASE(einsum_chain, 3, {2, {2, 3}}, {2, {3, 4}}, {2, {4, 2}}),
        TORCH_CASE(einsum_diagonal, 1, {3, {3, 3, 2}}),
        TORCH_CASE(einsum_trace, 1, {2, {3, 3}}),
        TORCH_CASE(einsum_ellipsis, 2, {4, {2, 1, 3, 2}}, {3, {3, 2, 3}}),
        TORCH_CASE(einsum_bilinear, 4, {2, {2, 3}}, {2, {2, 3}}, {1, {3}}, {1, {2}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

enum { LETTERS = 5, TERMS = 4 };

typedef struct equation {
    char text[64];
    int64_t sizes[LETTERS];
    int count, ndim[TERMS], letters[TERMS][4];
    int noutput, output[LETTERS];
    nd_tensor *x[TERMS];
} equation;

static equation random_equation(nd_dtype dtype) {
    equation e = {.count = 1 + rand() % TERMS};
    char *at = e.text;
    bool used[LETTERS] = {false};
    for (int i = 0; i < LETTERS; i++)
        e.sizes[i] = rand() % 12 ? 1 + rand() % 3 : 0;
    for (int i = 0; i < e.count; i++) {
        int64_t shape[4] = {0};
        e.ndim[i] = rand() % 4;
        if (i > 0)
            *at++ = ',';
        for (int axis = 0; axis < e.ndim[i]; axis++) {
            int letter = rand() % LETTERS;
            bool twice = false;
            for (int other = 0; other < axis; other++)
                twice = twice || e.letters[i][other] == letter;
            e.letters[i][axis] = letter;
            used[letter] = true;
            // An axis of size 1 repeats, where its letter stands once.
            shape[axis] = !twice && rand() % 6 == 0 ? 1 : e.sizes[letter];
            for (int other = 0; other < axis; other++)
                if (e.letters[i][other] == letter)
                    shape[axis] = shape[other];
            *at++ = (char)('v' + letter);
        }
        e.x[i] = random_tensor((layout)(rand() % LAYOUTS), e.ndim[i], shape, dtype, -3, 3);
    }
    *at++ = '-';
    *at++ = '>';
    for (int i = 0; i < LETTERS; i++) {
        int letter = (3 * i + 2) % LETTERS;
        if (used[letter] && rand() % 2) {
            e.output[e.noutput++] = letter;
            *at++ = (char)('v' + letter);
        }
    }
    // The size of a letter is that of its axes, 1 if all are.
    for (int letter = 0; letter < LETTERS; letter++) {
        int64_t size = 1;
        for (int i = 0; i < e.count; i++)
            for (int axis = 0; axis < e.ndim[i]; axis++)
                if (e.letters[i][axis] == letter && nd_get_shape(e.x[i])[axis] != 1)
                    size = nd_get_shape(e.x[i])[axis];
        e.sizes[letter] = size;
    }
    return e;
}

/// The product of the operands' elements at an index of the letters.
static double product_at(const equation *e, const int64_t *index) {
    double product = 1;
    for (int i = 0; i < e->count; i++) {
        int64_t own[4];
        for (int axis = 0; axis < e->ndim[i]; axis++)
            own[axis] = nd_get_shape(e->x[i])[axis] == 1 ? 0 : index[e->letters[i][axis]];
        product *= at(e->x[i], e->ndim[i], own);
    }
    return product;
}

static void check_equation(const equation *e, const nd_tensor *result) {
    assert_int_equal(nd_get_ndim(result), e->noutput);
    double sums[243] = {0}, magnitudes[243] = {0};
    int64_t total = 1;
    for (int i = 0; i < LETTERS; i++)
        total *= e->sizes[i];
    for (int64_t flat = 0; flat < total; flat++) {
        int64_t index[LETTERS], place = 0;
        coordinates_of(LETTERS, e->sizes, flat, index);
        for (int i = 0; i < e->noutput; i++)
            place = place * e->sizes[e->output[i]] + index[e->output[i]];
        sums[place] += product_at(e, index);
        magnitudes[place] += fabs(product_at(e, index));
    }
    for (int i = 0; i < e->noutput; i++)
        assert_int_equal(nd_get_shape(result)[i], e->sizes[e->output[i]]);
    for (int64_t flat = 0; flat < nd_get_numel(result); flat++)
        if (!(fabs(at_flat(result, flat) - sums[flat]) <= 1e-12 * magnitudes[flat]))
            fail_msg("%s: got %g, expected %g", e->text, at_flat(result, flat), sums[flat]);
}

static void test_random_equations(void **state) {
    (void)state;
    for (int round = 0; round < 3000; round++) {
        nd_dtype dtype = round % 2 ? ND_F64 : ND_I64;
        equation e = random_equation(dtype);
        nd_auto nd_tensor *result =
            nd_einsum(e.text, (size_t)e.count, (const nd_tensor *const *)e.x);
        if (!result)
            fail_msg("%s: %s", e.text, nd_error_get_message());
        assert_true(nd_get_dtype(result) == dtype);
        check_equation(&e, result);
        for (int i = 0; i < e.count; i++)
            nd_release(e.x[i]);
    }
}

static void test_contractions_of_every_number(void **state) {
    (void)state;
    for (int dtype = ND_U8; dtype < ND_DTYPE_COUNT; dtype++) {
        nd_auto nd_tensor *two = nd_full(ND_SHAPE(2, 3), 2, (nd_dtype)dtype);
        nd_auto nd_tensor *three = nd_full(ND_SHAPE(3), 3, (nd_dtype)dtype);
        const nd_tensor *both[] = {two, three};
        nd_auto nd_tensor *product = nd_einsum("ij,j->i", 2, both);
        nd_auto nd_tensor *sum = nd_einsum("ij->j", 1, both);
        nd_auto nd_tensor *row = nd_outer(three, three);
        nd_auto nd_tensor *blocks = nd_kron(three, two);
        nd_auto nd_tensor *dots = nd_tensordot(two, three, 1, AXES(1), AXES(0));
        assert_true(at_flat(product, 1) == 18 && at_flat(sum, 2) == 4 && at_flat(row, 8) == 9);
        assert_true(at_flat(blocks, 17) == 6 && at_flat(dots, 0) == 18);
        assert_shape(blocks, ND_SHAPE(2, 9));
        const nd_tensor *all[] = {product, sum, row, blocks, dots};
        for (int i = 0; i < 5; i++)
            assert_true(nd_get_dtype(all[i]) == (nd_dtype)dtype);
    }
}

/// "i,k->i" of one element and k equal ones; consumes both.
static double summed_product(nd_tensor *one, nd_tensor *many, nd_dtype expected) {
    const nd_tensor *operands[] = {one, many};
    nd_auto nd_tensor *result = nd_einsum("i,k->i", 2, operands);
    assert_handle(result);
    assert_int_equal(nd_get_dtype(result), expected);
    nd_release(one);
    nd_release(many);
    return at_flat(result, 0);
}

/// Sums of one operand's letters are made in the dtype of the result, 16-bit floats in f32.
static void test_sums_before_products_do_not_overflow(void **state) {
    (void)state;
    nd_tensor *halves[] = {nd_full(ND_SHAPE(2), 60000, ND_F16),
                           nd_full(ND_SHAPE(2), 60000, ND_F16)};
    assert_true(summed_product(nd_full(ND_SHAPE(1), 0.03125, ND_F32), halves[0], ND_F32) == 3750);
    assert_true(summed_product(nd_full(ND_SHAPE(1), 0.03125, ND_F16), halves[1], ND_F16) == 3750);
    assert_true(summed_product(nd_ones(ND_SHAPE(1), ND_I32), nd_full(ND_SHAPE(2), 65535, ND_U16),
                               ND_I32) == 131070);
    assert_true(summed_product(nd_ones(ND_SHAPE(1), ND_F64),
                               nd_full(ND_SHAPE(2), UINT64_MAX, ND_U64), ND_F64) == 0x1p65);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2), ND_U64), *y = nd_ones(ND_SHAPE(2), ND_I8);
    const nd_tensor *apart[] = {x, y};
    assert_refused(nd_einsum("i,i->", 2, apart), ND_ERROR_DTYPE, "einsum: no dtype holds");
}

static void test_diagonals_and_grids_of_other_shapes(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3, 4), ND_BOOL);
    for (int64_t offset = -5; offset <= 6; offset++) {
        nd_auto nd_tensor *diagonal = nd_diagonal(x, offset, 0, 1);
        int64_t size = 0;
        for (int64_t row = 0; row < 3; row++)
            size += row + offset >= 0 && row + offset < 4;
        assert_shape(diagonal, ND_SHAPE(size));
    }
    nd_auto nd_tensor *far = nd_diagonal(x, INT64_MIN, 1, 0);
    assert_shape(far, ND_SHAPE(0));
    nd_auto nd_tensor *line = nd_arange(0, 3, 1, ND_U8);
    nd_auto nd_tensor *column = nd_ones(ND_SHAPE(2, 1), ND_F16);
    const nd_tensor *inputs[] = {line, column, line};
    nd_tensor *results[3] = {NULL};
    assert_ok(nd_broadcast_arrays(3, inputs, results));
    for (int i = 0; i < 3; i++) {
        assert_shape(results[i], ND_SHAPE(2, 3));
        assert_true(at_flat(results[i], 5) == (i == 1 ? 1 : 2));
        nd_release(results[i]);
        results[i] = NULL;
    }
    const nd_tensor *lines[] = {line, line};
    assert_ok(nd_meshgrid(2, lines, ND_INDEXING_IJ, results));
    assert_true(at_flat(results[0], 3) == 1 && at_flat(results[1], 3) == 0);
    nd_release(results[0]);
    nd_release(results[1]);
    assert_status(nd_meshgrid(2, inputs, ND_INDEXING_IJ, results), ND_ERROR_SHAPE);
    assert_status(nd_meshgrid(2, lines, (nd_indexing)2, results), ND_ERROR_INVALID_ARGUMENT);
    nd_auto nd_tensor *four = nd_ones(ND_SHAPE(4), ND_U8);
    const nd_tensor *unlike[] = {line, four};
    nd_tensor *none[2] = {NULL};
    assert_status(nd_broadcast_arrays(2, unlike, none), ND_ERROR_SHAPE);
    assert_null(none[0]);
}

static nd_tensor *einsum_of(const char *equation, const nd_tensor *a, const nd_tensor *b) {
    const nd_tensor *both[] = {a, b};
    return nd_einsum(equation, b ? 2 : 1, both);
}

/// The axes of an ellipsis that the result lacks.
static void test_einsum_sums_over_an_ellipsis(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 4, 3), ND_F32);
    nd_auto nd_tensor *sums = einsum_of("...i->i", x, NULL);
    assert_shape(sums, ND_SHAPE(3));
    assert_true(at_flat(sums, 2) == 8);
}

/// A tensor of random sizes and small whole numbers, which every dtype holds.
static nd_tensor *small_numbers(int ndim, const int64_t *shape, nd_dtype dtype) {
    float numbers[4096];
    int64_t total = 1;
    for (int i = 0; i < ndim; i++)
        total *= shape[i];
    assert_true(total <= 4096);
    for (int64_t i = 0; i < total; i++)
        numbers[i] = (float)(rand() % 11);
    nd_auto nd_tensor *x = nd_from_data(numbers, ndim, shape, ND_F32);
    return nd_cast(x, dtype);
}

/// Each element of a Kronecker product is that of a block of b times that of a.
static void check_kron(const nd_tensor *a, int a_ndim, const int64_t *a_shape, const nd_tensor *b,
                       int b_ndim, const int64_t *b_shape) {
    const int ndim = a_ndim > b_ndim ? a_ndim : b_ndim;
    nd_auto nd_tensor *product = nd_kron(a, b);
    assert_handle(product);
    assert_int_equal(nd_get_ndim(product), ndim);
    for (int64_t flat = 0; flat < nd_get_numel(product); flat++) {
        int64_t rest = flat, of_a = 0, of_b = 0, a_step = 1, b_step = 1;
        for (int i = 0; i < ndim; i++) {
            const int64_t rows = i < a_ndim ? a_shape[a_ndim - 1 - i] : 1;
            const int64_t block = i < b_ndim ? b_shape[b_ndim - 1 - i] : 1, size = rows * block;
            assert_int_equal(nd_get_shape(product)[ndim - 1 - i], size);
            of_a += rest % size / block * a_step;
            of_b += rest % size % block * b_step;
            a_step *= rows;
            b_step *= block;
            rest /= size;
        }
        assert_true(at_flat(product, flat) == at_flat(a, of_a) * at_flat(b, of_b));
    }
}

static void test_kronecker_products_of_any_sizes(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_BF16, ND_I8, ND_I64};
    for (int round = 0; round < 300; round++) {
        int64_t shapes[2][ND_MAX_DIMS];
        const nd_dtype dtype = dtypes[round % 5];
        int ndim[2];
        // Up to as many axes as there are; one of the last rows is long.
        for (int k = 0; k < 2; k++) {
            ndim[k] = rand() % (ND_MAX_DIMS + 1);
            for (int i = 0; i < ndim[k]; i++)
                shapes[k][i] = 1 + (ndim[k] < 4 ? rand() % 4 : rand() % 2);
            if (ndim[k] > 0 && round % 7 == k)
                shapes[k][ndim[k] - 1] = rand() % 2 ? 0 : 1 + rand() % 100;
            if (ndim[k] > 5)
                shapes[k][0] = 1;
        }
        nd_auto nd_tensor *a = small_numbers(ndim[0], shapes[0], dtype);
        nd_auto nd_tensor *b = small_numbers(ndim[1], shapes[1], dtype);
        check_kron(a, ndim[0], shapes[0], b, ndim[1], shapes[1]);
    }
}

static void test_contractions_refuse(void **state) {
    (void)state;
    nd_auto nd_tensor *a = nd_ones(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *b = nd_ones(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *flags = nd_ones(ND_SHAPE(2, 3), ND_BOOL);
    nd_auto nd_tensor *deep = nd_ones(8, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1}, ND_F32);
    assert_refused(einsum_of("ij,j", a, b), ND_ERROR_SHAPE, "einsum: \"ij,j\" gives axis 0");
    assert_refused(einsum_of("ii", a, NULL), ND_ERROR_SHAPE, "einsum: \"ii\" gives axis 1");
    assert_refused(einsum_of("ijk", a, NULL), ND_ERROR_SHAPE, "einsum: \"ijk\" gives operand 0");
    assert_refused(einsum_of("ij", a, b), ND_ERROR_INVALID_ARGUMENT, "einsum: \"ij\" does not");
    assert_refused(einsum_of("ij,j", a, NULL), ND_ERROR_INVALID_ARGUMENT, "einsum: \"ij,j\" does");
    assert_refused(einsum_of("ij->ik", a, NULL), ND_ERROR_INVALID_ARGUMENT, "einsum: \"ij->ik\"");
    assert_refused(einsum_of("ij->ii", a, NULL), ND_ERROR_INVALID_ARGUMENT, "einsum: \"ij->ii\"");
    assert_refused(einsum_of("ij-i", a, NULL), ND_ERROR_INVALID_ARGUMENT, "einsum: \"ij-i\"");
    assert_refused(einsum_of("ij->i->", a, NULL), ND_ERROR_INVALID_ARGUMENT, "einsum: \"ij->i->\"");
    assert_refused(einsum_of("i1", a, NULL), ND_ERROR_INVALID_ARGUMENT, "einsum: \"i1\"");
    assert_refused(einsum_of("......", a, NULL), ND_ERROR_INVALID_ARGUMENT, "einsum: \"......\"");
    assert_refused(einsum_of("ijk...", a, NULL), ND_ERROR_INVALID_ARGUMENT, "einsum: \"ijk...\"");
    assert_refused(einsum_of("ij", flags, NULL), ND_ERROR_DTYPE, "einsum: does not take bool");
    assert_refused(einsum_of("abcdefgh,ij", deep, a), ND_ERROR_SHAPE, "einsum: the result of");
    assert_refused(
        einsum_of("abcdefgh,ij->abcdefghi", deep, a), ND_ERROR_SHAPE,
        "einsum: the result of \"abcdefgh,ij->abcdefghi\" has 9 dimensions; 8 are possible");
    assert_refused(einsum_of("...,ij->...i", deep, a), ND_ERROR_SHAPE,
                   "einsum: the result of \"...,ij->...i\" has 9");
    assert_refused(einsum_of("...,ij->i...j", deep, a), ND_ERROR_SHAPE,
                   "einsum: the result of \"...,ij->i...j\" has 10");
    assert_refused(einsum_of("...,ij->i...j1", deep, a), ND_ERROR_INVALID_ARGUMENT,
                   "einsum: \"...,ij->i...j1\" has letters");
    assert_refused(einsum_of("...,ij->......", deep, a), ND_ERROR_INVALID_ARGUMENT,
                   "einsum: \"...,ij->......\" has letters");
    assert_refused(einsum_of("abcdefghi,ij", deep, a), ND_ERROR_SHAPE,
                   "einsum: \"abcdefghi,ij\" gives operand 0 9 axes");
    assert_refused(nd_einsum(NULL, 1, NULL), ND_ERROR_INVALID_ARGUMENT, "einsum: 1 operands");
    assert_refused(nd_tensordot(deep, a, 0, NULL, NULL), ND_ERROR_SHAPE, "tensordot: a product");
    assert_refused(nd_tensordot(a, b, 1, AXES(0), AXES(0)), ND_ERROR_SHAPE, "tensordot: axis 0");
    assert_refused(nd_tensordot(a, a, 2, AXES(0, 0), AXES(0, 0)), ND_ERROR_SHAPE, "tensordot: ");
    assert_refused(nd_tensordot(a, b, 2, AXES(0, 1), NULL), ND_ERROR_INVALID_ARGUMENT,
                   "tensordot: 2 axes");
    assert_refused(nd_outer(a, b), ND_ERROR_SHAPE, "outer: a has shape [2, 3]");
    assert_refused(nd_kron(flags, flags), ND_ERROR_DTYPE, "kron: does not take bool");
    assert_refused(nd_diagonal(a, 0, 1, -1), ND_ERROR_INVALID_ARGUMENT, "diagonal: axis -1 is");
    assert_refused(nd_trace(b, 0), ND_ERROR_SHAPE, "trace: x has shape [4]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_contractions_as_in_pytorch),
        ND_TEST(test_random_equations),
        ND_TEST(test_contractions_of_every_number),
        ND_TEST(test_sums_before_products_do_not_overflow),
        ND_TEST(test_diagonals_and_grids_of_other_shapes),
        ND_TEST(test_einsum_sums_over_an_ellipsis),
        ND_TEST(test_kronecker_products_of_any_sizes),
        ND_TEST(test_contractions_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
