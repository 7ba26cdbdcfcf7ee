// The CPU's kernels of attention on random shapes, layouts and masks: against the formula in double
// precision, and against blocks of products, also where there are NaN and infinities. What they give is
// the same to the bit for one thread and for several.
#include "lib/device/device.h"
#include "lib/ops/attention_blocks.h"
#include "lib/ops/attention_kernel.h"
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/values.h"
#include <nd/autograd.h>
#include <nd/neural.h>
#include <nd/threads.h>

enum { CASES = 60, POISONED = 60, THREADS = 3, LONGEST = 300, WIDEST = 70 };
enum { QUERY, KEY, VALUE, GRAD, GRADS = 3, OPERANDS = 4 };

typedef struct problem {
    int64_t batch, groups, share; ///< share: queries' heads of a group
    int64_t rows, keys, size, value_size;
    nd_dtype dtype;
    bool causal;
    double scale;
    nd_tensor *of[OPERANDS]; ///< [batch, heads, ...]
    nd_tensor *mask;         ///< or NULL
} problem;

static int64_t below(int64_t limit) {
    return rand() % limit;
}
/// From 1 on, often small.
static int64_t length(int64_t longest) {
    return 1 + below(below(3) ? 1 + longest / 8 : longest);
}

static int64_t heads_of(const problem *p) {
    return p->groups * p->share;
}

/// [batch, heads, length, size] in one of the ways in which programs have it: dense, cut out of
/// queries, keys and values side by side, every second element, or one for all entries of the batch.
static nd_tensor *operand(const problem *p, int64_t heads, int64_t rows, int64_t size) {
    const int64_t shape[] = {p->batch, heads, rows, size};
    if (below(3))
        return random_tensor((layout)below(LAYOUTS), 4, shape, p->dtype, -2, 2);
    const int64_t fused[] = {p->batch, rows, 3 * heads, size};
    nd_auto nd_tensor *all = random_tensor(DENSE, 4, fused, p->dtype, -2, 2);
    nd_auto nd_tensor *part = nd_slice(all, heads, 2 * heads, 1, 2);
    return nd_permute(part, 4, (const int[]){0, 2, 1, 3});
}

static nd_tensor *random_mask(const problem *p) {
    const int64_t shape[] = {below(2) ? 1 : p->batch, below(2) ? 1 : heads_of(p),
                             below(3) ? p->rows : 1, below(3) ? p->keys : 1};
    const int missing = (int)below(3);
    const bool is_bool = below(2);
    nd_tensor *mask = random_tensor((layout)below(LAYOUTS), 4 - missing, shape + missing,
                                    is_bool ? ND_BOOL : p->dtype, -3, 3);
    if (is_bool || below(2))
        return mask;
    // Some are hidden.
    nd_tensor *dense = nd_contiguous(mask);
    nd_release(mask);
    for (int64_t i = 0; i < nd_get_numel(dense); i++)
        if (!below(3))
            set_element(nd_get_data(dense), p->dtype, i, -INFINITY);
    return dense;
}

static problem random_problem(int64_t longest) {
    problem p = {.batch = 1 + below(2),
                 .groups = 1 + below(3),
                 .share = below(3) ? 1 : 1 + below(3),
                 .rows = length(longest),
                 .keys = length(longest),
                 .size = length(WIDEST),
                 .value_size = length(WIDEST),
                 .dtype = below(3) ? ND_F32 : ND_F64,
                 .causal = below(3) == 0,
                 .scale = below(2) ? 0.25 : 0};
    p.of[QUERY] = operand(&p, heads_of(&p), p.rows, p.size);
    p.of[KEY] = operand(&p, p.groups, p.keys, p.size);
    p.of[VALUE] = operand(&p, p.groups, p.keys, p.value_size);
    p.of[GRAD] = operand(&p, heads_of(&p), p.rows, p.value_size);
    p.mask = below(2) ? random_mask(&p) : NULL;
    for (int i = 0; i < OPERANDS; i++)
        assert_handle(p.of[i]);
    return p;
}

static void release_problem(problem *p) {
    for (int i = 0; i < OPERANDS; i++)
        nd_release(p->of[i]);
    nd_release(p->mask);
}

// ----------------------------------------------------------------------------------- the formula

static double *numbers_of(const nd_tensor *x) {
    double *numbers = malloc((size_t)nd_get_numel(x) * sizeof *numbers);
    assert_non_null(numbers);
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        numbers[i] = at_flat(x, i);
    return numbers;
}

/// The result and the gradients of query, key and value, in double precision.
typedef struct answer {
    double *result, *grads[GRADS];
} answer;

typedef struct head {
    const double *q, *k, *v, *g;
    double *out, *of_q, *of_k, *of_v;
} head;

/// The score of a key, or -infinity.
static double score(const problem *p, const head *h, int64_t entry, int64_t which, int64_t row,
                    int64_t key) {
    double dot = 0;
    for (int64_t i = 0; i < p->size; i++)
        dot += h->q[row * p->size + i] * h->k[key * p->size + i];
    dot *= p->scale != 0 ? p->scale : 1 / sqrt((double)p->size);
    if (p->causal && key > row)
        return -INFINITY;
    if (!p->mask)
        return dot;
    const double mask = at(p->mask, 4, (const int64_t[]){entry, which, row, key});
    return nd_get_dtype(p->mask) != ND_BOOL ? dot + mask : mask != 0 ? dot : -INFINITY;
}

static void attend_row(const problem *p, const head *h, int64_t entry, int64_t which, int64_t row) {
    double weight[LONGEST], slope[LONGEST], largest = -INFINITY, sum = 0, delta = 0;
    const double scale = p->scale != 0 ? p->scale : 1 / sqrt((double)p->size);
    for (int64_t key = 0; key < p->keys; key++) {
        weight[key] = score(p, h, entry, which, row, key);
        largest = fmax(largest, weight[key]);
    }
    for (int64_t key = 0; key < p->keys; key++)
        sum += weight[key] = largest == -INFINITY ? 0 : exp(weight[key] - largest);
    for (int64_t key = 0; key < p->keys; key++) {
        weight[key] /= sum == 0 ? 1 : sum;
        slope[key] = 0;
        for (int64_t i = 0; i < p->value_size; i++) {
            const double g = h->g[row * p->value_size + i], v = h->v[key * p->value_size + i];
            h->out[row * p->value_size + i] += weight[key] * v;
            h->of_v[key * p->value_size + i] += weight[key] * g;
            slope[key] += g * v;
        }
        delta += slope[key] * weight[key];
    }
    for (int64_t key = 0; key < p->keys; key++)
        for (int64_t i = 0; i < p->size; i++) {
            const double by = weight[key] * (slope[key] - delta) * scale;
            h->of_q[row * p->size + i] += by * h->k[key * p->size + i];
            h->of_k[key * p->size + i] += by * h->q[row * p->size + i];
        }
}

static answer answer_of(const problem *p) {
    double *of[OPERANDS];
    answer a;
    for (int i = 0; i < OPERANDS; i++)
        of[i] = numbers_of(p->of[i]);
    for (int i = 0; i < GRADS; i++)
        assert_non_null(a.grads[i] = calloc((size_t)nd_get_numel(p->of[i]), sizeof(double)));
    assert_non_null(a.result = calloc((size_t)nd_get_numel(p->of[GRAD]), sizeof(double)));
    for (int64_t entry = 0; entry < p->batch; entry++)
        for (int64_t which = 0; which < heads_of(p); which++) {
            const int64_t at = entry * heads_of(p) + which;
            const int64_t group = entry * p->groups + which / p->share;
            const int64_t q = at * p->rows * p->size, g = at * p->rows * p->value_size;
            const int64_t k = group * p->keys * p->size, v = group * p->keys * p->value_size;
            const head h = {of[QUERY] + q,    of[KEY] + k,       of[VALUE] + v,
                            of[GRAD] + g,     a.result + g,      a.grads[QUERY] + q,
                            a.grads[KEY] + k, a.grads[VALUE] + v};
            for (int64_t row = 0; row < p->rows; row++)
                attend_row(p, &h, entry, which, row);
        }
    for (int i = 0; i < OPERANDS; i++)
        free(of[i]);
    return a;
}

static void free_answer(answer *a) {
    free(a->result);
    for (int i = 0; i < GRADS; i++)
        free(a->grads[i]);
}

// ------------------------------------------------------------------------------------ nd_attention

typedef struct found {
    nd_tensor *result, *grads[GRADS];
} found;

static void release_found(found *f) {
    nd_release(f->result);
    for (int i = 0; i < GRADS; i++)
        nd_release(f->grads[i]);
}

static found find(const problem *p) {
    found f = {0};
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.causal = p->causal;
    options.scale = p->scale;
    nd_tensor *leaves[GRADS];
    for (int i = 0; i < GRADS; i++) {
        leaves[i] = nd_detach(p->of[i]);
        assert_ok(nd_set_requires_grad(leaves[i], true));
    }
    f.result = nd_attention(leaves[QUERY], leaves[KEY], leaves[VALUE], p->mask, &options);
    assert_handle(f.result);
    nd_backward_options backward = ND_BACKWARD_OPTIONS_INIT;
    backward.grad = p->of[GRAD];
    assert_ok(nd_grad(f.result, GRADS, (const nd_tensor *const *)leaves, &backward, f.grads));
    for (int i = 0; i < GRADS; i++)
        nd_release(leaves[i]);
    return f;
}

static void describe(const problem *p, char *text, size_t room) {
    snprintf(
        text, room,
        "%s, %lld entries, %lld groups of %lld, %lld queries, %lld keys, sizes %lld and %lld%s, "
        "mask of %s",
        nd_dtype_get_name(p->dtype), (long long)p->batch, (long long)p->groups, (long long)p->share,
        (long long)p->rows, (long long)p->keys, (long long)p->size, (long long)p->value_size,
        p->causal ? ", causal" : "",
        p->mask ? nd_dtype_get_name(nd_get_dtype(p->mask)) : "nothing");
}

static void assert_numbers(const problem *p, const char *what, const nd_tensor *x,
                           const double *expected) {
    // What is 0 may be the difference of two products of the operands.
    double largest = 1;
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        largest = fmax(largest, fabs(expected[i]));
    const double most = (p->dtype == ND_F32 ? 1e-5 : 1e-13) * largest;
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        if (!close_to(at_flat(x, i), expected[i], 0, most)) {
            char text[300];
            describe(p, text, sizeof text);
            fail_msg("%s, %s: element %lld is %.9g, not %.9g, within %.3g", text, what,
                     (long long)i, at_flat(x, i), expected[i], most);
        }
}

static void assert_same_bits(const problem *p, const char *what, const nd_tensor *a,
                             const nd_tensor *b) {
    nd_auto nd_tensor *x = nd_contiguous(a);
    nd_auto nd_tensor *y = nd_contiguous(b);
    const size_t bytes = (size_t)nd_get_numel(x) * (p->dtype == ND_F32 ? 4 : 8);
    if (memcmp(nd_get_data(x), nd_get_data(y), bytes) != 0) {
        char text[300];
        describe(p, text, sizeof text);
        fail_msg("%s, %s: other bits with another number of threads", text, what);
    }
}

/// Fewer queries are products' where there are many keys, and these are cut by the number of threads.
static bool is_of_one_kernel(const problem *p) {
    return p->rows >= 8 || p->dtype == ND_F64;
}

static void check_problem(const problem *p) {
    static const char *const names[] = {"gradient of the query", "of the key", "of the value"};
    assert_ok(nd_set_num_threads(1));
    found one = find(p);
    assert_ok(nd_set_num_threads(THREADS));
    found several = find(p);
    answer expected = answer_of(p);
    assert_numbers(p, "result", one.result, expected.result);
    for (int i = 0; i < GRADS; i++)
        assert_numbers(p, names[i], one.grads[i], expected.grads[i]);
    if (is_of_one_kernel(p)) {
        assert_same_bits(p, "result", one.result, several.result);
        for (int i = 0; i < GRADS; i++)
            assert_same_bits(p, names[i], one.grads[i], several.grads[i]);
    }
    free_answer(&expected);
    release_found(&one);
    release_found(&several);
}

static void check_random_problems(void) {
    for (int i = 0; i < CASES; i++) {
        problem p = random_problem(LONGEST);
        check_problem(&p);
        release_problem(&p);
    }
}

static void test_attention_is_the_formula(void **state) {
    (void)state;
    const int threads = nd_get_num_threads();
    srand(71);
    on_every_isa(check_random_problems);
    assert_ok(nd_set_num_threads(threads));
}

// ----------------------------------------------------------------------------------------- blocks

/// Puts NaN and infinities here and there into a dense copy.
static void poison(nd_tensor **x) {
    static const double poisons[] = {NAN, INFINITY, -INFINITY};
    nd_tensor *dense = nd_clone(*x);
    nd_release(*x);
    *x = dense;
    for (int64_t count = below(3); count > 0; count--)
        set_element(nd_get_data(dense), nd_get_dtype(dense), below(nd_get_numel(dense)),
                    poisons[below(3)]);
}

static void assert_as_blocks(const problem *p, const char *what, const nd_tensor *x,
                             const nd_tensor *blocks) {
    double largest = 1;
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        if (isfinite(at_flat(blocks, i)))
            largest = fmax(largest, fabs(at_flat(blocks, i)));
    const double most = (p->dtype == ND_F32 ? 1e-5 : 1e-13) * largest;
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        if (!close_to(at_flat(x, i), at_flat(blocks, i), 0, most)) {
            char text[300];
            describe(p, text, sizeof text);
            fail_msg("%s, %s: element %lld is %.9g, by blocks %.9g", text, what, (long long)i,
                     at_flat(x, i), at_flat(blocks, i));
        }
}

static void compare_with_blocks(const problem *p) {
    const nd__attention a = {.query = p->of[QUERY],
                             .key = p->of[KEY],
                             .value = p->of[VALUE],
                             .mask = p->mask,
                             .scale = p->scale != 0 ? p->scale : 1 / sqrt((double)p->size),
                             .causal = p->causal};
    const bool wanted[4] = {true, true, true, false};
    nd_auto nd_tensor *result = NULL;
    nd_auto nd_tensor *log_sums = NULL;
    nd_auto nd_tensor *by_blocks = NULL;
    nd_auto nd_tensor *sums_by_blocks = NULL;
    nd_tensor *grads[4] = {0}, *grads_by_blocks[4] = {0};
    nd_status status = nd__attention_kernel_forward(&a, &result, &log_sums);
    if (status == ND_ERROR_UNSUPPORTED)
        return;
    assert_ok(status);
    assert_ok(nd__attention_blocks_forward(&a, &by_blocks, &sums_by_blocks));
    assert_as_blocks(p, "result", result, by_blocks);
    assert_as_blocks(p, "logarithms of sums", log_sums, sums_by_blocks);
    const nd_tensor *grad = p->of[GRAD];
    assert_ok(nd__attention_blocks_backward(&a, grad, by_blocks, sums_by_blocks, wanted,
                                            grads_by_blocks));
    status = nd__attention_kernel_backward(&a, grad, by_blocks, sums_by_blocks, wanted, grads);
    if (status != ND_ERROR_UNSUPPORTED)
        assert_ok(status);
    for (int i = 0; i < GRADS; i++) {
        if (status == ND_OK)
            assert_as_blocks(p, "a gradient", grads[i], grads_by_blocks[i]);
        nd_release(grads[i]);
        nd_release(grads_by_blocks[i]);
    }
}

static void check_poisoned_problems(void) {
    for (int i = 0; i < POISONED; i++) {
        problem p = random_problem(LONGEST);
        p.share = 1;
        // Which keys are never looked at because of their time is another for each.
        p.causal = false;
        for (int k = 0; k < OPERANDS; k++) {
            if (k == QUERY || k == GRAD) {
                nd_release(p.of[k]);
                p.of[k] = operand(&p, p.groups, p.rows, k == QUERY ? p.size : p.value_size);
            }
            poison(&p.of[k]);
        }
        if (p.mask) {
            nd_release(p.mask);
            p.mask = random_mask(&p);
            if (nd_get_dtype(p.mask) != ND_BOOL)
                poison(&p.mask);
        }
        nd_no_grad compare_with_blocks(&p);
        release_problem(&p);
    }
}

static void test_attention_is_that_of_blocks(void **state) {
    (void)state;
    srand(73);
    on_every_isa(check_poisoned_problems);
}

// ----------------------------------------------------------------------------------------- memory

/// Working memory of both passes is as large as tiles, whatever the number of keys.
static void test_attention_working_memory(void **state) {
    (void)state;
    const int64_t shape[] = {64, 4}, many[] = {1 << 16, 4};
    nd_auto nd_tensor *q = random_tensor(DENSE, 2, shape, ND_F32, -1, 1);
    nd_auto nd_tensor *k = random_tensor(DENSE, 2, many, ND_F32, -1, 1);
    assert_ok(nd_set_requires_grad(q, true));
    nd__cpu_trim();
    nd_auto nd_tensor *y = nd_attention(q, k, k, NULL, NULL);
    nd_auto nd_tensor *sum = nd_sum(y, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    const uint64_t bytes = nd__cpu_workspace_bytes();
    if (bytes > (uint64_t)1 << 20)
        fail_msg("%llu bytes of working memory", (unsigned long long)bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_attention_is_the_formula),
        ND_TEST(test_attention_is_that_of_blocks),
        ND_TEST(test_attention_working_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
