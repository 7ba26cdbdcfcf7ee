// F42: writes in place that are refused for want of room, at every place where room is asked for:
// nothing has changed then, neither values nor the version nor the history.
//
// Random programs write tensors and windows onto them while recording. Each write is first tried
// with room for no object more, then for one, and so on until it passes, or with quotas of bytes or
// allocations that fail in the same way. What a program computes, and the gradients behind it, are
// held against numbers of our own that carry their derivatives with them.
#include "lib/base/alloc.h"
#include "tests/unit/ops/values.h"
#include <nd/autograd.h>
#include <nd/manager.h>

enum { ROWS = 2, COLS = 20, MOST = ROWS * COLS, BASES = 3, WINDOWS = 4, STEPS = 14 };
/// Behind the bases, and never written, so that nodes may save them: a tensor without history, and
/// the leaf, which has but one window.
enum { CONSTANT = BASES, LEAF, ALL };

/// A number and its derivatives by the leaf's elements.
typedef struct dual {
    double v, d[MOST];
} dual;

/// The tensors of a program and what they should be. Window 0 is the base itself, 1 and 2 are its
/// rows, 3 is its transpose.
typedef struct program {
    nd_manager *manager;
    nd_tensor *mask, *window[ALL][WINDOWS];
    int64_t cols;
    dual expected[ALL][MOST];
    uint32_t random;
} program;

static uint32_t draw(program *p, uint32_t below) {
    p->random = p->random * 1664525u + 1013904223u;
    return (p->random >> 16) % below;
}

static int64_t size_of(const program *p, int window) {
    return window == 1 || window == 2 ? p->cols : ROWS * p->cols;
}

/// Of a window's element, in its own order, the place in its base.
static int64_t place_in(const program *p, int window, int64_t i) {
    return window == 2 ? p->cols + i : window == 3 ? i % ROWS * p->cols + i / ROWS : i;
}

static void begin(program *p, uint32_t seed) {
    *p = (program){.manager = nd_manager_new(NULL, "program"), .random = seed};
    p->cols = draw(p, 2) ? 3 : COLS;
    const int64_t shape[] = {ROWS, p->cols};
    nd_with_manager(p->manager) {
        nd_tensor *leaf = nd_ones(2, shape, ND_F64);
        double *values = nd_get_data(leaf);
        for (int64_t i = 0; i < ROWS * p->cols; i++) {
            values[i] = draw(p, 2) ? 1 : -2;
            p->expected[LEAF][i].v = values[i];
            p->expected[LEAF][i].d[i] = 1;
        }
        assert_ok(nd_set_requires_grad(leaf, true));
        p->window[LEAF][0] = leaf;
        nd_auto nd_tensor *ramp = nd_arange(0, (double)(ROWS * p->cols), 1, ND_F64);
        nd_auto nd_tensor *shaped = nd_reshape(ramp, 2, shape);
        nd_auto nd_tensor *two = nd_scalar(2, ND_F64);
        nd_auto nd_tensor *rest = nd_remainder(shaped, two);
        p->mask = nd_cast(rest, ND_BOOL);
        for (int b = 0; b <= CONSTANT; b++) {
            double factor = b < 2 ? b + 1 : 0; // the others have no history at first
            p->window[b][0] = b < 2 ? nd_mul_scalar(leaf, factor) : nd_full(2, shape, 2, ND_F64);
            p->window[b][1] = nd_select(p->window[b][0], 0, 0);
            p->window[b][2] = nd_select(p->window[b][0], 1, 0);
            p->window[b][3] = nd_transpose(p->window[b][0], 0, 1);
            for (int64_t i = 0; i < ROWS * p->cols; i++) {
                p->expected[b][i].v = b < 2 ? factor * values[i] : 2;
                p->expected[b][i].d[i] = factor;
            }
        }
    }
}

static void end(program *p) {
    for (int b = 0; b < ALL; b++)
        for (int w = 0; w < WINDOWS; w++)
            nd_release(p->window[b][w]);
    nd_release(p->mask);
    nd_release(p->manager);
}

// ------------------------------------------------------------------------------------------ a step

typedef enum operation {
    ADD,
    SUB,
    MUL,
    DIV,
    ADD_SCALED,
    COPY,
    MUL_SCALAR,
    FILL,
    MASKED,
    OPS
} operation;

/// x, and for the first six y.
typedef struct step {
    operation op;
    int base, window, y_base, y_window;
} step;

static step draw_step(program *p) {
    step s = {.op = (operation)draw(p, OPS), .base = (int)draw(p, BASES)};
    s.window = s.op == MASKED ? 0 : (int)draw(p, WINDOWS);
    s.y_base = (int)draw(p, BASES);
    s.y_window = s.window;
    // Two rows of one base lie apart; with itself an operation may be done, too.
    if (s.window == 1 && draw(p, 2))
        s.y_window = 2;
    if (s.op == DIV || (s.op == MUL && draw(p, 2)))
        s.y_base = s.window == 0 && draw(p, 2) ? LEAF : CONSTANT;
    else if (s.op == MUL) // saves copies of both
        s.y_base = s.base;
    if (s.y_base == LEAF)
        s.y_window = 0;
    return s;
}

static nd_status attempt(const program *p, const step *s) {
    nd_tensor *x = p->window[s->base][s->window];
    const nd_tensor *y = p->window[s->y_base][s->y_window];
    nd_status status = ND_OK;
    nd_with_manager(p->manager) {
        switch (s->op) {
        case ADD:
            status = nd_add_(x, y);
            break;
        case SUB:
            status = nd_sub_(x, y);
            break;
        case MUL:
            status = nd_mul_(x, y);
            break;
        case DIV:
            status = nd_div_(x, y);
            break;
        case ADD_SCALED:
            status = nd_add_scaled_(x, y, -2);
            break;
        case COPY:
            status = nd_copy_(x, y);
            break;
        case MUL_SCALAR:
            status = nd_mul_scalar_(x, 0.5);
            break;
        case FILL:
            status = nd_fill_(x, 3);
            break;
        default:
            status = nd_masked_fill_(x, p->mask, 5);
        }
    }
    return status;
}

static dual combined(dual x, double by_x, dual y, double by_y, double value) {
    dual result = {.v = value};
    for (int i = 0; i < MOST; i++)
        result.d[i] = by_x * x.d[i] + by_y * y.d[i];
    return result;
}

static dual expect(operation op, dual x, dual y, bool masked) {
    switch (op) {
    case ADD:
        return combined(x, 1, y, 1, x.v + y.v);
    case SUB:
        return combined(x, 1, y, -1, x.v - y.v);
    case MUL:
        return combined(x, y.v, y, x.v, x.v * y.v);
    case DIV:
        return combined(x, 1 / y.v, y, -x.v / (y.v * y.v), x.v / y.v);
    case ADD_SCALED:
        return combined(x, 1, y, -2, x.v - 2 * y.v);
    case COPY:
        return y;
    case MUL_SCALAR:
        return combined(x, 0.5, x, 0, 0.5 * x.v);
    case FILL:
        return (dual){.v = 3};
    default:
        return masked ? (dual){.v = 5} : x;
    }
}

static void expect_step(program *p, const step *s) {
    static dual written[MOST];
    for (int64_t i = 0; i < size_of(p, s->window); i++) {
        const int64_t at = place_in(p, s->window, i);
        written[i] = expect(s->op, p->expected[s->base][at],
                            p->expected[s->y_base][place_in(p, s->y_window, i)], at % 2 != 0);
    }
    for (int64_t i = 0; i < size_of(p, s->window); i++)
        p->expected[s->base][place_in(p, s->window, i)] = written[i];
}

static void check_values(const program *p) {
    for (int b = 0; b < BASES; b++) {
        const double *values = nd_get_data(p->window[b][0]);
        for (int64_t i = 0; i < ROWS * p->cols; i++)
            assert_close("values", values[i], p->expected[b][i].v, 1e-12, 1e-12);
    }
}

// -------------------------------------------------------------------------------------- no room

typedef enum shortage { OBJECTS, BYTES, ALLOCATIONS, SHORTAGES } shortage;

static uint64_t allocations_left;

static bool fail_at_zero(size_t bytes) {
    (void)bytes;
    if (allocations_left == 0)
        return true;
    allocations_left--;
    return false;
}

static nd_status attempt_within(const program *p, const step *s, shortage kind, uint64_t room) {
    if (kind == OBJECTS)
        assert_ok(nd_manager_set_cap(p->manager, nd_manager_get_total_objects(p->manager) + room));
    if (kind == BYTES)
        assert_ok(nd_manager_set_quota(p->manager, ND_CPU,
                                       nd_manager_get_total_bytes(p->manager) + room * 32));
    allocations_left = room;
    if (kind == ALLOCATIONS)
        nd__alloc_should_fail = fail_at_zero;
    nd_status status = attempt(p, s);
    nd__alloc_should_fail = NULL;
    assert_ok(nd_manager_set_cap(p->manager, 0));
    assert_ok(nd_manager_set_quota(p->manager, ND_CPU, 0));
    return status;
}

/// Then nothing is done.
static bool copies_itself(const step *s) {
    return s->op == COPY && s->base == s->y_base && s->window == s->y_window;
}

/// How often it was refused.
static int do_step(program *p, const step *s) {
    shortage kind = (shortage)draw(p, SHORTAGES);
    for (int room = 0;; room++) {
        uint64_t version[BASES];
        nd_node *node[BASES]; // kept, so that no other one gets its address
        for (int b = 0; b < BASES; b++) {
            version[b] = nd_get_version(p->window[b][0]);
            node[b] = nd_retain(nd_get_node(p->window[b][0]));
        }
        nd_status status = attempt_within(p, s, kind, (uint64_t)room);
        for (int b = 0; b < BASES; b++) {
            bool written = status == ND_OK && b == s->base && !copies_itself(s);
            assert_int_equal(nd_get_version(p->window[b][0]), version[b] + written);
            if (!written)
                assert_ptr_equal(nd_get_node(p->window[b][0]), node[b]);
            nd_release(node[b]);
        }
        if (status == ND_OK) {
            expect_step(p, s);
            check_values(p);
            return room;
        }
        if (status != (kind == ALLOCATIONS ? ND_ERROR_OUT_OF_MEMORY : ND_ERROR_QUOTA))
            fail_msg("operation %d of tensor %d, window %d: %s", (int)s->op, s->base, s->window,
                     nd_error_get_message());
        nd_error_clear();
        check_values(p);
        assert_true(room < 1000);
    }
}

/// Of the sum of all bases, the n-th with weight n + 1.
static void check_gradients(const program *p) {
    nd_auto nd_tensor *loss = nd_scalar(0, ND_F64);
    for (int b = 0; b < BASES; b++) {
        nd_auto nd_tensor *weighted = nd_mul_scalar(p->window[b][0], b + 1.0);
        nd_auto nd_tensor *sum = nd_sum(weighted, 0, NULL, false);
        nd_tensor *more = nd_add(loss, sum);
        nd_release(loss);
        loss = more;
    }
    if (nd_requires_grad(loss))
        assert_ok(nd_backward(loss, NULL));
    const nd_tensor *gradient = nd_get_grad(p->window[LEAF][0]);
    for (int64_t i = 0; i < ROWS * p->cols; i++) {
        double expected = 0;
        for (int b = 0; b < BASES; b++)
            for (int64_t k = 0; k < ROWS * p->cols; k++)
                expected += (b + 1.0) * p->expected[b][k].d[i];
        assert_close("gradient", gradient ? at_flat(gradient, i) : 0, expected, 1e-9, 1e-9);
    }
}

static void test_F42_a_refused_write_in_place_has_changed_nothing(void **state) {
    (void)state;
    static program p;
    int refused = 0;
    for (uint32_t seed = 1; seed <= 200; seed++) {
        begin(&p, seed);
        for (int i = 0; i < STEPS; i++) {
            step s = draw_step(&p);
            refused += do_step(&p, &s);
        }
        check_gradients(&p);
        end(&p);
    }
    assert_true(refused > 1000); // else nothing was tried
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F42_a_refused_write_in_place_has_changed_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
