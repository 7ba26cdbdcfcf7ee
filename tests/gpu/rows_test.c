// Random programs of what works row by row: softmax, with a mask and without, layer, RMS and group norm; of
// every float, under autocast and not, of views, along any axis, of rows that are empty, masked whole, or
// longer than a block keeps; their gradients of first and of second order, and the same work captured in a
// graph.
//
// On CUDA the result is what the CPU makes of the same numbers, within rounding, an error the same error, and
// a graph's result the same bits as without one.
#include "tests/elements.h"
#include "tests/gpu/gpu.h"
#include <math.h>
#include <nd/graph.h>

/// Large: where a set is of one number, or of equal ones, what is left of rounding is divided by its root.
#define EPSILON 0.01

enum { PROGRAMS = 250, MOST_AXES = 4, LEAVES = 3, LONG_ROW = 70001 };

typedef enum row_op { SOFTMAX, MASKED_SOFTMAX, LAYER_NORM, RMS_NORM, GROUP_NORM, ROW_OPS } row_op;
typedef enum view { WHOLE, TURNED, EVERY_SECOND, BEHIND_FIRST, REPEATED, VIEWS } view;

typedef struct program {
    row_op op;
    view view;
    nd_dtype dtype, autocast; ///< ND_F32: none
    int ndim, axis, naxes;
    int64_t shape[MOST_AXES], groups; ///< of the operand
    bool affine;
    nd_tensor *mask; ///< on the CPU
    uint64_t seed;
} program;

static uint64_t random_state;
static int64_t pick(int64_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

// -------------------------------------------------------------------------------------------------
// programs

/// Of x's shape, with axes of size 1 or none in the place of some; every fourth row or so is masked whole.
static nd_tensor *random_mask(const program *p) {
    int64_t shape[MOST_AXES], rows[MOST_AXES];
    int left_out = pick(3) ? 0 : (int)pick(p->ndim), ndim = p->ndim - left_out;
    for (int i = 0; i < ndim; i++) {
        shape[i] = pick(5) ? p->shape[left_out + i] : 1;
        rows[i] = left_out + i == p->axis ? 1 : shape[i];
    }
    nd_auto nd_tensor *numbers = nd_rand((nd_key){p->seed, 9}, ndim, shape, ND_F32);
    nd_auto nd_tensor *kept = nd_rand((nd_key){p->seed, 10}, ndim, rows, ND_F32);
    nd_auto nd_tensor *seen = nd_greater(numbers, nd_tmp(nd_scalar(0.3, ND_F32)));
    nd_auto nd_tensor *any = nd_greater(kept, nd_tmp(nd_scalar(0.25, ND_F32)));
    return nd_logical_and(seen, any);
}

static program random_program(void) {
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16, ND_F16, ND_BF16, ND_F32, ND_F64};
    static const int64_t lengths[] = {1, 2, 7, 8, 63, 64, 65, 128, 257, 1024, 1100, 3000};
    program p = {.op = (row_op)pick(ROW_OPS), .view = (view)pick(VIEWS), .dtype = dtypes[pick(6)]};
    p.autocast = pick(2) ? ND_F32 : pick(2) ? ND_F16 : ND_BF16;
    p.seed = (uint64_t)pick(1 << 30);
    p.ndim = p.op == GROUP_NORM ? 3 : 2 + (int)pick(MOST_AXES - 1);
    const bool far = pick(20) == 0;
    p.axis = far ? p.ndim - 1 : (int)pick(p.ndim);
    for (int i = 0; i < p.ndim; i++)
        p.shape[i] = pick(30) == 0 ? 0 : 1 + pick(4);
    p.shape[p.axis] = far ? LONG_ROW : pick(30) == 0 ? 0 : lengths[pick(12)];
    p.naxes = far ? 1 : 1 + (int)pick(p.ndim);
    p.groups = 1 + pick(2);
    if (p.op == GROUP_NORM)
        p.shape[1] *= p.groups;
    p.affine = pick(2);
    if (p.op == MASKED_SOFTMAX)
        p.mask = random_mask(&p);
    return p;
}

static void describe(const program *p, char *text, size_t size) {
    static const char *const names[] = {"softmax", "masked_softmax", "layer_norm", "rms_norm",
                                        "group_norm"};
    int used =
        snprintf(text, size, "%s of %s, autocast %s, view %d, axis %d, naxes %d, groups %d%s, [",
                 names[p->op], nd_dtype_get_name(p->dtype), nd_dtype_get_name(p->autocast),
                 (int)p->view, p->axis, p->naxes, (int)p->groups, p->affine ? ", affine" : "");
    for (int i = 0; i < p->ndim; i++)
        used += snprintf(text + used, size - (size_t)used, "%lld ", (long long)p->shape[i]);
    if (p->mask)
        for (int i = 0; i < nd_get_ndim(p->mask); i++)
            used += snprintf(text + used, size - (size_t)used, "%s%lld", i ? " " : "| mask ",
                             (long long)nd_get_size(p->mask, i));
    snprintf(text + used, size - (size_t)used, "]");
}

/// The memory of which the operand is a view.
static nd_tensor *make_leaf(const program *p) {
    int64_t shape[MOST_AXES];
    memcpy(shape, p->shape, sizeof shape);
    const int last = p->ndim - 1;
    if (p->view == TURNED) {
        shape[last] = p->shape[last - 1];
        shape[last - 1] = p->shape[last];
    } else if (p->view == EVERY_SECOND) {
        shape[last] *= 2;
    } else if (p->view == BEHIND_FIRST) {
        shape[last] += 1;
    } else if (p->view == REPEATED) {
        shape[0] = 1;
    }
    nd_auto nd_tensor *numbers = nd_randn((nd_key){p->seed, 1}, p->ndim, shape, ND_F64);
    return nd_cast(numbers, p->dtype);
}

static nd_tensor *view_of(const program *p, const nd_tensor *leaf) {
    const int last = p->ndim - 1;
    switch (p->view) {
    case TURNED:
        return nd_transpose(leaf, -2, -1);
    case EVERY_SECOND:
        return nd_slice(leaf, 0, 2 * p->shape[last], 2, last);
    case BEHIND_FIRST:
        return nd_slice(leaf, 1, p->shape[last] + 1, 1, last);
    case REPEATED:
        return nd_expand(leaf, p->ndim, p->shape);
    default:
        return nd_retain(leaf);
    }
}

static bool is_norm(const program *p) {
    return p->op >= LAYER_NORM;
}

static nd_tensor *make_parameter(const program *p, uint64_t stream) {
    const bool of_group = p->op == GROUP_NORM;
    nd_auto nd_tensor *numbers =
        nd_randn((nd_key){p->seed, stream}, of_group ? 1 : p->naxes,
                 of_group ? p->shape + 1 : p->shape + p->ndim - p->naxes, ND_F64);
    return nd_cast(numbers, p->dtype);
}

static nd_tensor *run_once(const program *p, nd_tensor *const *leaf, const nd_tensor *mask) {
    nd_auto nd_tensor *x = view_of(p, leaf[0]);
    if (!x)
        return NULL;
    switch (p->op) {
    case SOFTMAX:
        return nd_softmax(x, p->axis);
    case MASKED_SOFTMAX:
        return nd_masked_softmax(x, mask, p->axis);
    case LAYER_NORM:
        return nd_layer_norm(x, leaf[1], leaf[2], EPSILON, p->naxes);
    case RMS_NORM:
        return nd_rms_norm(x, leaf[1], EPSILON, p->naxes);
    default:
        return nd_group_norm(x, leaf[1], leaf[2], p->groups, EPSILON);
    }
}

static nd_tensor *run_program(const program *p, nd_tensor *const *leaf, const nd_tensor *mask) {
    if (p->autocast == ND_F32)
        return run_once(p, leaf, mask);
    nd_tensor *y = NULL;
    nd_autocast(p->autocast) y = run_once(p, leaf, mask);
    return y;
}

// -------------------------------------------------------------------------------------------------
// on one device

typedef struct pass {
    nd_tensor *leaf[LEAVES], *mask, *y, *first[LEAVES], *second[LEAVES];
    nd_status status;
} pass;

static void release_pass(pass *p) {
    for (int i = 0; i < LEAVES; i++) {
        nd_release(p->leaf[i]);
        nd_release(p->first[i]);
        nd_release(p->second[i]);
    }
    nd_release(p->mask);
    nd_release(p->y);
}

static nd_tensor *weighted_sum(const nd_tensor *x, uint64_t stream) {
    nd_auto nd_tensor *numbers =
        nd_randn((nd_key){12, stream}, nd_get_ndim(x), nd_get_shape(x), ND_F64);
    nd_auto nd_tensor *cast = nd_cast(numbers, nd_get_dtype(x));
    nd_auto nd_tensor *there = nd_to(cast, nd_get_device(x));
    nd_auto nd_tensor *product = nd_mul(x, there);
    nd_auto nd_tensor *wide = nd_cast(product, ND_F64);
    return nd_sum(wide, 0, NULL, false);
}

static void differentiate(pass *pass) {
    size_t count = 0;
    const nd_tensor *of[LEAVES];
    nd_tensor *recorded[LEAVES] = {0};
    while (count < LEAVES && pass->leaf[count]) {
        of[count] = pass->leaf[count];
        count++;
    }
    nd_auto nd_tensor *loss = weighted_sum(pass->y, 1);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.allow_unused = true;
    assert_ok(nd_grad(loss, count, of, &options, pass->first));
    options.create_graph = true;
    assert_ok(nd_grad(loss, count, of, &options, recorded));
    nd_auto nd_tensor *total = weighted_sum(recorded[0], 2);
    options.create_graph = false;
    assert_ok(nd_grad(total, count, of, &options, pass->second));
    for (size_t i = 0; i < count; i++)
        nd_release(recorded[i]);
}

static void run_on(const program *p, nd_device device, pass *pass) {
    const int leaves = !is_norm(p) || !p->affine ? 1 : p->op == RMS_NORM ? 2 : LEAVES;
    for (int i = 0; i < leaves; i++) {
        nd_auto nd_tensor *made = i == 0 ? make_leaf(p) : make_parameter(p, 1 + (uint64_t)i);
        assert_handle(made);
        pass->leaf[i] = nd_to(made, device);
        assert_ok(nd_set_requires_grad(pass->leaf[i], true));
    }
    if (p->mask)
        pass->mask = nd_to(p->mask, device);
    pass->y = run_program(p, pass->leaf, pass->mask);
    pass->status = pass->y ? ND_OK : nd_error_get_status();
    if (pass->y)
        differentiate(pass);
}

// -------------------------------------------------------------------------------------------------
// comparing

/// Within `units` of the dtype's rounding, of the largest number: gradients are differences.
static void assert_same(const char *what, const char *which, const nd_tensor *cpu,
                        const nd_tensor *cuda, double units) {
    assert_int_equal(!cpu, !cuda);
    if (!cpu)
        return;
    assert_int_equal(nd_get_dtype(cpu), nd_get_dtype(cuda));
    assert_int_equal(nd_get_numel(cpu), nd_get_numel(cuda));
    const nd_dtype dtype = nd_get_dtype(cpu);
    const double unit = dtype == ND_F64   ? 0x1p-46
                        : dtype == ND_F32 ? 0x1p-19
                        : dtype == ND_F16 ? 0x1p-10
                                          : 0x1p-7;
    double *a = doubles_of(cpu), *b = doubles_of(cuda), largest = 1;
    for (int64_t i = 0; i < nd_get_numel(cpu); i++)
        if (isfinite(a[i]))
            largest = fmax(largest, fabs(a[i]));
    for (int64_t i = 0; i < nd_get_numel(cpu); i++) {
        const bool alike = isfinite(a[i]) ? fabs(a[i] - b[i]) <= units * unit * largest
                           : isnan(a[i])  ? isnan(b[i])
                                          : a[i] == b[i];
        if (!alike)
            fail_msg("%s: %s, element %lld of %lld is %.9g on the CPU, %.9g on CUDA", what, which,
                     (long long)i, (long long)nd_get_numel(cpu), a[i], b[i]);
    }
    free(a);
    free(b);
}

/// Bits of a graph that has been launched, and of the same work done at once.
static void assert_captured(const char *what, const program *p, const pass *cuda) {
    nd_graph *graph = NULL;
    nd_tensor *y = NULL;
    nd_no_grad {
        if (nd_capture_begin(CUDA_DEVICE) != ND_OK) {
            nd_error_clear();
            return; // the emulated device has no graphs
        }
        y = run_program(p, cuda->leaf, cuda->mask);
        graph = nd_capture_end();
    }
    if (!y || !graph)
        fail_msg("%s: captured, %s", what, nd_error_get_message());
    assert_ok(nd_graph_launch(graph));
    double *a = doubles_of(cuda->y), *b = doubles_of(y);
    for (int64_t i = 0; i < nd_get_numel(y); i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%s: element %lld is %.17g, and of a graph %.17g", what, (long long)i, a[i],
                     b[i]);
    free(a);
    free(b);
    nd_release(y);
    nd_release(graph);
}

static void compare(const program *p) {
    char text[256];
    describe(p, text, sizeof text);
    pass cpu = {0}, cuda = {0};
    run_on(p, (nd_device){ND_CPU, 0}, &cpu);
    run_on(p, CUDA_DEVICE, &cuda);
    if (cpu.status != cuda.status)
        fail_msg("%s: status %d on the CPU, %d on CUDA", text, (int)cpu.status, (int)cuda.status);
    assert_same(text, "result", cpu.y, cuda.y, 1);
    for (int i = 0; i < LEAVES; i++) {
        assert_same(text, "gradient", cpu.first[i], cuda.first[i], 4);
        assert_same(text, "gradient of second order", cpu.second[i], cuda.second[i], 16);
    }
    if (cuda.y && nd_get_numel(cuda.y) > 0)
        assert_captured(text, p, &cuda);
    nd_error_clear();
    release_pass(&cpu);
    release_pass(&cuda);
}

static void test_random_programs_of_rows(void **state) {
    (void)state;
    random_state = 2026;
    const char *seed = getenv("ND_ROWS_SEED");
    if (seed)
        random_state = strtoull(seed, NULL, 10);
    for (int i = 0; i < PROGRAMS; i++) {
        program p = random_program();
        compare(&p);
        nd_release(p.mask);
    }
}

int main(void) {
    int skipped;
    if (!gpu_present(&skipped))
        return skipped;
    const struct CMUnitTest tests[] = {ND_TEST(test_random_programs_of_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
