// Hooks: when they run, what they may return, and that their contexts are edges.
#include "tests/unit/autograd/support.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/// What a recording hook saw; the context of its hooks.
typedef struct log_data {
    int calls;
    double last[4];
    int marks[8];
} log_data;

static const nd_type log_type = {
    .size = sizeof(nd_type), .version = 1, .name = "log", .flags = ND_TYPE_GREEN};

static nd_object *new_log(void) {
    nd_object *log = nd_object_new(&log_type, sizeof(log_data));
    assert_handle(log);
    return log;
}

static log_data *read_log(const nd_object *log) {
    return nd_object_get_data(log);
}

static nd_tensor *note(const nd_tensor *grad, const nd_object *context) {
    log_data *log = nd_object_get_data(context);
    log->marks[log->calls++ % 8] = 1;
    size_t bytes = (size_t)nd_get_numel(grad) * sizeof(double);
    if (bytes <= sizeof log->last)
        nd_copy_to_host(grad, log->last, bytes);
    return NULL;
}

static nd_tensor *double_it(const nd_tensor *grad, const nd_object *context) {
    (void)context;
    return nd_mul_scalar(grad, 2.0);
}

static nd_tensor *second_mark(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    log_data *log = nd_object_get_data(context);
    log->marks[log->calls++ % 8] = 2;
    return NULL;
}

static nd_tensor *wrong_shape(const nd_tensor *grad, const nd_object *context) {
    (void)grad, (void)context;
    return nd_zeros(ND_SHAPE(7), ND_F64);
}

static nd_tensor *ignore(const nd_tensor *grad, const nd_object *context) {
    (void)grad, (void)context;
    return NULL;
}

static void test_hook_sees_the_sum_of_all_paths(void **state) {
    (void)state;
    nd_auto nd_object *inner = new_log();
    nd_auto nd_object *outer = new_log();
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *y = nd_mul_scalar(x, 3.0);
    nd_auto nd_tensor *square = nd_square(y);
    nd_auto nd_tensor *sum = nd_add(square, y);
    nd_auto nd_tensor *loss = total(sum);
    assert_ok(nd_register_hook(y, note, inner));
    assert_ok(nd_register_hook(x, note, outer));
    assert_ok(nd_backward(loss, NULL));
    assert_int_equal(read_log(inner)->calls, 1);
    assert_true(read_log(inner)->last[0] == 7.0 && read_log(inner)->last[1] == 13.0);
    assert_int_equal(read_log(outer)->calls, 1);
    assert_true(read_log(outer)->last[0] == 21.0 && read_log(outer)->last[1] == 39.0);
    // A leaf's hook sees the gradient of the pass, not what had been accumulated.
    assert_ok(nd_backward(loss, NULL));
    assert_true(read_log(outer)->last[0] == 21.0);
    assert_values(nd_get_grad(x), VALUES(42, 78));
}

static void test_hook_replaces_the_gradient(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *y = nd_mul_scalar(x, 3.0);
    nd_auto nd_tensor *loss = total(y);
    assert_ok(nd_register_hook(y, double_it, NULL));
    assert_ok(nd_register_hook(y, double_it, NULL));
    assert_ok(nd_register_hook(x, double_it, NULL));
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(x), VALUES(24, 24));
    // nd_grad sees the replaced gradients as well.
    const nd_tensor *inputs[] = {y, x};
    nd_tensor *grads[2] = {NULL};
    assert_ok(nd_grad(loss, 2, inputs, NULL, grads));
    assert_values(grads[0], VALUES(4, 4));
    assert_values(grads[1], VALUES(24, 24));
    nd_release(grads[0]);
    nd_release(grads[1]);
}

static void test_hooks_run_in_order_and_are_removed(void **state) {
    (void)state;
    nd_auto nd_object *log = new_log();
    nd_auto nd_tensor *x = make_leaf(VALUES(1));
    nd_auto nd_tensor *y = nd_square(x);
    assert_ok(nd_register_hook(y, note, log));
    assert_ok(nd_register_hook(y, second_mark, log));
    assert_ok(nd_register_hook(y, note, log));
    assert_ok(nd_backward(y, NULL));
    assert_int_equal(read_log(log)->calls, 3);
    assert_int_equal(read_log(log)->marks[0], 1);
    assert_int_equal(read_log(log)->marks[1], 2);
    assert_int_equal(read_log(log)->marks[2], 1);
    assert_int_equal(nd_get_count(log), 4);
    assert_ok(nd_remove_hooks(y));
    assert_int_equal(nd_get_count(log), 1);
    assert_ok(nd_remove_hooks(y));
    assert_ok(nd_backward(y, NULL));
    assert_int_equal(read_log(log)->calls, 3);
    assert_ok(nd_register_hook(x, note, log));
    assert_ok(nd_remove_hooks(x));
    assert_ok(nd_backward(y, NULL));
    assert_int_equal(read_log(log)->calls, 3);
}

static void test_hook_errors(void **state) {
    (void)state;
    nd_auto nd_tensor *plain = make_vector(VALUES(1));
    nd_auto nd_tensor *x = make_leaf(VALUES(1));
    nd_auto nd_tensor *y = nd_square(x);
    assert_int_equal(nd_register_hook(NULL, ignore, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_register_hook(x, NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_remove_hooks(NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_register_hook(plain, ignore, NULL), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "register_hook: x, float64 of shape [1], does not require");
    uint64_t id = 7;
    assert_int_equal(nd_add_hook(plain, ignore, NULL, &id), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "add_hook: x, float64 of shape");
    assert_int_equal(nd_add_hook(x, NULL, NULL, &id), ND_ERROR_INVALID_ARGUMENT);
    assert_error(ND_ERROR_INVALID_ARGUMENT, "add_hook: hook is NULL");
    assert_int_equal(id, 7);
    assert_ok(nd_add_hook(x, ignore, NULL, NULL)); // stays until all go
    assert_ok(nd_remove_hooks(x));
    assert_ok(nd_register_hook(y, wrong_shape, NULL));
    assert_int_equal(nd_backward(y, NULL), ND_ERROR_SHAPE);
    assert_error(ND_ERROR_SHAPE, "hook");
    assert_null(nd_get_grad(x));
    assert_ok(nd_remove_hooks(y));
    assert_ok(nd_register_hook(x, wrong_shape, NULL));
    assert_int_equal(nd_backward(y, NULL), ND_ERROR_SHAPE);
    nd_error_clear();
    assert_null(nd_get_grad(x));
}

// -------------------------------------------------------------------------------------------------
// hooks that act on the graph while it runs

static nd_tensor *remove_own_hooks(const nd_tensor *grad, const nd_object *context) {
    const nd_list *list = (const nd_list *)context;
    nd_remove_hooks((nd_tensor *)(uintptr_t)nd_list_get(list, 0));
    return nd_mul_scalar(grad, 2.0);
}

static void test_hook_that_removes_itself(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(3));
    nd_auto nd_tensor *y = nd_square(x);
    nd_auto nd_list *holder = nd_list_new();
    assert_ok(nd_list_append(holder, y));
    assert_ok(nd_register_hook(y, remove_own_hooks, holder));
    assert_ok(nd_register_hook(y, double_it, NULL));
    // Both run: the list of this pass is the one it began with.
    assert_ok(nd_backward(y, NULL));
    assert_values(nd_get_grad(x), VALUES(24));
    assert_ok(nd_backward(y, NULL));
    assert_values(nd_get_grad(x), VALUES(30));
}

static nd_tensor *nested_backward(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    nd_enable_grad {
        nd_auto nd_tensor *square = nd_square((const nd_tensor *)context);
        nd_backward(square, NULL);
    }
    return NULL;
}

static void test_backward_inside_a_hook(void **state) {
    (void)state;
    nd_auto nd_tensor *other = make_leaf(VALUES(5));
    nd_auto nd_tensor *x = make_leaf(VALUES(3));
    nd_auto nd_tensor *y = nd_square(x);
    assert_ok(nd_register_hook(y, nested_backward, other));
    assert_ok(nd_register_hook(x, nested_backward, other));
    assert_ok(nd_backward(y, NULL));
    assert_values(nd_get_grad(x), VALUES(6));
    assert_values(nd_get_grad(other), VALUES(20));
}

static nd_tensor *keep_gradient(const nd_tensor *grad, const nd_object *context) {
    nd_list_append((nd_list *)(uintptr_t)context, grad);
    return NULL;
}

static void test_a_gradient_that_a_hook_kept_is_not_written(void **state) {
    (void)state;
    nd_auto nd_list *kept = nd_list_new();
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *a = nd_mul_scalar(x, 2.0);
    nd_auto nd_tensor *b = nd_mul_scalar(x, 3.0);
    nd_auto nd_tensor *sum = nd_add(a, b);
    nd_auto nd_tensor *loss = total(sum);
    assert_ok(nd_register_hook(a, keep_gradient, kept));
    assert_ok(nd_register_hook(b, keep_gradient, kept));
    assert_ok(nd_register_hook(x, keep_gradient, kept));
    assert_ok(nd_backward(loss, NULL));
    assert_ok(nd_backward(loss, NULL));
    assert_int_equal(nd_list_get_size(kept), 6);
    const double expected[] = {1, 1, 5, 1, 1, 5};
    for (size_t i = 0; i < 6; i++)
        assert_values((const nd_tensor *)nd_list_get(kept, i), VALUES(expected[i], expected[i]));
    assert_values(nd_get_grad(x), VALUES(10, 10));
}

// -------------------------------------------------------------------------------------------------
// G12: a hook that captured its owner

static void collects(uint64_t at_least) {
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(nd_manager_get_root(), &report));
    assert_true(report.collected_objects >= at_least);
    assert_int_equal(report.broken_objects, 0);
}

static void test_G12_leaf_hook_that_captured_its_leaf(void **state) {
    (void)state;
    nd_tensor *x = make_leaf(VALUES(1, 2));
    assert_ok(nd_register_hook(x, ignore, x));
    nd_auto nd_weak *weak = nd_weak_new(x);
    nd_release(x);
    nd_object *alive = nd_weak_get(weak);
    assert_non_null(alive);
    nd_release(alive);
    // The leaf and its hook list.
    collects(2);
    assert_null(nd_weak_get(weak));
}

static void test_G12_result_hook_that_captured_its_result(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_tensor *y = nd_square(x);
    nd_auto nd_list *closure = nd_list_new();
    assert_ok(nd_list_append(closure, y));
    assert_ok(nd_register_hook(y, ignore, closure));
    nd_release(nd_steal(&closure));
    nd_auto nd_weak *weak = nd_weak_new(y);
    // Still held here: nothing may be freed.
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(nd_manager_get_root(), &report));
    assert_int_equal(report.collected_objects, 0);
    nd_auto nd_tensor *loss = total(y);
    assert_ok(nd_backward(loss, NULL));
    nd_release(nd_steal(&loss));
    nd_release(y);
    // The result, its node, the hook list, the closure.
    collects(4);
    assert_null(nd_weak_get(weak));
    assert_values(nd_get_grad(x), VALUES(2, 4));
}

static void test_G12_freed_at_the_boundary_when_on(void **state) {
    (void)state;
    assert_ok(nd_gc_set_mode(ND_GC_ON));
    nd_auto nd_manager *step = nd_manager_new(NULL, "step");
    nd_with_manager(step) {
        nd_tensor *x = make_leaf(VALUES(1, 2));
        nd_tensor *y = nd_square(x);
        assert_ok(nd_register_hook(x, ignore, y));
        assert_ok(nd_register_hook(y, ignore, x));
        nd_release(x);
        nd_release(y);
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(step, &report));
    assert_true(report.collected_objects >= 5);
    assert_int_equal(report.escaped_objects, 0);
    assert_ok(nd_gc_set_mode(ND_GC_OFF));
}

// ----------------------------------------------------------------------------------- one at a time

/// Every other one of 100,000 is removed, in an order of no order. Were either quadratic, this
/// would take minutes.
static void test_B28_hooks_are_registered_and_removed_in_constant_time(void **state) {
    (void)state;
    enum { HOOKS = 100000, STRIDE = 7919 };
    nd_auto nd_object *log = new_log();
    nd_auto nd_tensor *x = make_leaf(VALUES(1));
    nd_auto nd_tensor *y = nd_square(x);
    uint64_t *ids = calloc(HOOKS, sizeof *ids);
    assert_non_null(ids);
    for (int i = 0; i < HOOKS; i++)
        assert_ok(nd_add_hook(y, i % 2 ? note : second_mark, log, &ids[i]));
    assert_int_equal(nd_get_count(log), 1 + HOOKS);
    for (uint64_t i = 0, at = 0; i < HOOKS; i++, at = (at + STRIDE) % HOOKS)
        if (at % 2 == 0)
            assert_ok(nd_remove_hook(y, ids[at]));
    assert_int_equal(nd_get_count(log), 1 + HOOKS / 2);
    assert_ok(nd_backward(y, NULL));
    assert_int_equal(read_log(log)->calls, HOOKS / 2);
    for (int i = 0; i < 8; i++)
        assert_int_equal(read_log(log)->marks[i], 1);
    assert_ok(nd_remove_hooks(y));
    assert_int_equal(nd_get_count(log), 1);
    free(ids);
}

static nd_tensor *append_mark(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    const nd_list *pair = (const nd_list *)context; // the list of calls, and what to append
    nd_list_append((nd_list *)(uintptr_t)nd_list_get(pair, 0), nd_list_get(pair, 1));
    return NULL;
}

/// Against a model: an array of what is registered, in order. Hooks are added to two outputs of one
/// graph node and removed at random; after each few steps a pass must call what the model has.
static void test_B28_hooks_run_in_the_order_of_their_registration(void **state) {
    (void)state;
    enum { MOST = 40, STEPS = 3000 };
    struct {
        uint64_t id;
        nd_list *context;
    } model[MOST];
    uint64_t gone = 0, random = 88172645463325252u;
    int count = 0;
    nd_auto nd_tensor *x = make_leaf(VALUES(1));
    nd_auto nd_tensor *y = nd_square(x);
    nd_auto nd_list *calls = nd_list_new();
    for (int step = 0; step < STEPS; step++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if (count < MOST && (count == 0 || random % 5 < 3)) {
            nd_list *context = nd_list_new();
            nd_auto nd_object *mark = new_log();
            assert_ok(nd_list_append(context, calls));
            assert_ok(nd_list_append(context, mark));
            model[count].context = context;
            assert_ok(nd_add_hook(y, append_mark, context, &model[count].id));
            assert_true(model[count].id != 0 && model[count].id != gone);
            count++;
        } else {
            int which = (int)(random / 5 % (uint64_t)count);
            gone = model[which].id;
            assert_ok(nd_remove_hook(y, gone));
            assert_int_equal(nd_get_count(model[which].context), 1);
            nd_release(model[which].context);
            memmove(&model[which], &model[which + 1], (size_t)(--count - which) * sizeof model[0]);
            assert_int_equal(nd_remove_hook(y, gone), ND_ERROR_INVALID_ARGUMENT);
            assert_int_equal(nd_remove_hook(x, gone), ND_ERROR_INVALID_ARGUMENT);
            nd_error_clear();
        }
        if (step % 10)
            continue;
        assert_ok(nd_list_clear(calls));
        assert_ok(nd_backward(y, NULL));
        assert_int_equal(nd_list_get_size(calls), count);
        for (int i = 0; i < count; i++)
            assert_ptr_equal(nd_list_get(calls, (size_t)i), nd_list_get(model[i].context, 1));
    }
    for (int i = 0; i < count; i++)
        nd_release(model[i].context);
}

static uint64_t own_id;

static nd_tensor *remove_itself(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    assert_ok(
        nd_remove_hook((nd_tensor *)(uintptr_t)nd_list_get((const nd_list *)context, 0), own_id));
    return NULL;
}

static void test_B28_hook_that_removes_itself_runs_once(void **state) {
    (void)state;
    nd_auto nd_object *log = new_log();
    nd_auto nd_tensor *x = make_leaf(VALUES(1));
    nd_auto nd_tensor *loss = nd_square(x);
    nd_auto nd_list *context = nd_list_new();
    assert_ok(nd_list_append(context, x));
    assert_ok(nd_add_hook(x, remove_itself, context, &own_id));
    assert_ok(nd_register_hook(x, note, log));
    assert_ok(nd_backward(loss, NULL));
    assert_int_equal(nd_get_count(context), 1);
    assert_ok(nd_backward(loss, NULL));
    assert_int_equal(read_log(log)->calls, 2);
}

static nd_tensor *multiply_badly(const nd_tensor *grad, const nd_object *context) {
    (void)context;
    nd_auto nd_tensor *other = nd_zeros(ND_SHAPE(7), ND_F64);
    return nd_mul(grad, other);
}

static nd_tensor *give_null_to_an_operation(const nd_tensor *grad, const nd_object *context) {
    (void)context;
    return nd_mul(grad, NULL);
}

static void test_hook_that_fails_fails_the_pass(void **state) {
    (void)state;
    nd_auto nd_object *log = new_log();
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *y = nd_mul_scalar(x, 3.0);
    nd_auto nd_tensor *loss = total(y);
    assert_ok(nd_register_hook(y, multiply_badly, NULL));
    assert_ok(nd_register_hook(y, note, log)); // a hook behind it is not called
    nd_tensor *grad = NULL;
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_SHAPE);
    assert_error(ND_ERROR_SHAPE, "mul: shapes [2] and [7]");
    assert_int_equal(nd_grad(loss, 1, (const nd_tensor *[]){x}, NULL, &grad), ND_ERROR_SHAPE);
    assert_error(ND_ERROR_SHAPE, "mul: shapes [2] and [7]");
    assert_null(grad);
    assert_null(nd_get_grad(x));
    assert_int_equal(read_log(log)->calls, 0);
    // A NULL that comes through is an error of the hook's own, whatever the thread's error was.
    assert_ok(nd_remove_hooks(y));
    assert_ok(nd_register_hook(x, give_null_to_an_operation, NULL));
    assert_null(nd_matmul(x, NULL)); // the thread has an error already
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_error(ND_ERROR_INVALID_ARGUMENT, "mul: b is NULL");
    assert_null(nd_get_grad(x));
}

static nd_tensor *try_and_keep(const nd_tensor *grad, const nd_object *context) {
    assert_int_equal(nd_error_get_status(), ND_OK);
    nd_release(multiply_badly(grad, context));
    assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
    nd_error_clear();
    return NULL;
}

static nd_tensor *try_and_replace(const nd_tensor *grad, const nd_object *context) {
    nd_release(multiply_badly(grad, context));
    return nd_mul_scalar(grad, 2.0);
}

static void test_hooks_that_succeed_leave_the_error_alone(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *y = nd_mul_scalar(x, 3.0);
    nd_auto nd_tensor *loss = total(y);
    assert_ok(nd_register_hook(y, try_and_keep, NULL));
    assert_ok(nd_register_hook(x, try_and_replace, NULL));
    assert_ok(nd_backward(loss, NULL));
    assert_int_equal(nd_error_get_status(), ND_OK);
    assert_values(nd_get_grad(x), VALUES(6, 6));
    // Nor one that was there before.
    assert_int_equal(nd_register_hook(x, NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    char before[256];
    snprintf(before, sizeof before, "%s", nd_error_get_message());
    assert_ok(nd_backward(loss, NULL));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    assert_string_equal(nd_error_get_message(), before);
    nd_error_clear();
}

static nd_tensor *close_leaf(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    nd_close((nd_object *)(uintptr_t)nd_list_get((const nd_list *)context, 0));
    return NULL;
}

static void test_leaf_that_a_hook_closes_gets_no_gradient(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(2));
    nd_auto nd_tensor *other = make_leaf(VALUES(3));
    nd_auto nd_tensor *loss = nd_mul(x, other);
    nd_auto nd_list *context = nd_list_new();
    assert_ok(nd_list_append(context, x));
    assert_ok(nd_register_hook(other, close_leaf, context));
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_CLOSED);
    nd_error_clear();
    assert_null(nd_get_grad(other));
}

/// A hook of a value that was written over since is removed, whose context nobody holds then.
static void test_a_hook_from_before_a_write_is_removed(void **state) {
    (void)state;
    for (int how = 0; how < 9; how++)
        for (int removed = 0; removed < 2; removed++) {
            nd_auto nd_tensor *x = make_leaf(VALUES(1, 1, 1));
            nd_auto nd_tensor *b = nd_mul_scalar(x, 1);
            nd_auto nd_tensor *view = nd_slice(b, 0, 3, 1, 0);
            nd_tensor *hooked = how < 3 || how == 5 || how == 7 ? b : view;
            nd_auto nd_tensor *part = nd_slice(b, 1, 3, 1, 0), *factor = make_leaf(VALUES(2));
            nd_auto nd_tensor *mask = nd_less(view, x);
            nd_auto nd_object *log = new_log();
            uint64_t id;
            assert_ok(nd_add_hook(hooked, note, log, &id));
            // Of b: written itself, twice, through a view. Of the view: through it, twice.
            // And where a mask says.
            // And by what wants the value before for its gradient, through a part of b.
            if (how >= 7)
                assert_ok(nd_mul_(how == 7 ? part : view, factor));
            else if (how >= 5)
                assert_ok(nd_masked_fill_(hooked, mask, 2));
            else
                assert_ok(nd_mul_scalar_(how < 2 ? b : view, 2));
            if (how == 1 || how == 4)
                assert_ok(nd_mul_scalar_(how == 1 ? b : view, 2));
            if (removed) {
                nd_auto nd_tensor *other = nd_mul_scalar(hooked, 1);
                assert_int_equal(nd_remove_hook(other, id), ND_ERROR_INVALID_ARGUMENT);
                nd_error_clear();
                assert_ok(nd_remove_hook(hooked, id));
                assert_int_equal(nd_get_count(log), 1);
                assert_int_equal(nd_remove_hook(hooked, id), ND_ERROR_INVALID_ARGUMENT);
                nd_error_clear();
            }
            nd_auto nd_tensor *loss = total(b);
            assert_ok(nd_backward(loss, NULL));
            assert_int_equal(read_log(log)->calls, !removed);
        }
}

static atomic_bool stop_reading;

static void *read_a_view(void *data) {
    const nd_tensor *view = data;
    while (!atomic_load(&stop_reading)) {
        nd_auto nd_tensor *y = nd_mul_scalar(view, 1);
        if (!y)
            return data;
    }
    return NULL;
}

/// Who reads a view makes its history anew beside who removes hooks of it.
static void test_hooks_are_removed_beside_readers(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        nd_auto nd_tensor *x = make_leaf(VALUES(1, 1, 1));
        nd_auto nd_tensor *b = nd_mul_scalar(x, 1), *view = nd_slice(b, 0, 2, 1, 0);
        uint64_t id;
        assert_ok(nd_add_hook(view, note, NULL, &id));
        assert_ok(nd_mul_scalar_(b, 2)); // the view's history is stale
        pthread_t reader;
        atomic_store(&stop_reading, false);
        assert_int_equal(pthread_create(&reader, NULL, read_a_view, view), 0);
        for (int i = 0; i < 20; i++) {
            nd_remove_hook(view, id);
            assert_ok(nd_remove_hooks(view));
        }
        nd_error_clear();
        atomic_store(&stop_reading, true);
        void *failed;
        pthread_join(reader, &failed);
        assert_null(failed);
    }
}

/// A sibling's write lies between.
static void test_a_hook_from_before_writes_through_two_views(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 1, 1)), *z = make_leaf(VALUES(5));
    nd_auto nd_tensor *b = nd_mul_scalar(x, 1);
    nd_auto nd_tensor *v = nd_slice(b, 0, 2, 1, 0), *u = nd_slice(b, 2, 3, 1, 0);
    nd_auto nd_tensor *copied = nd_mul_scalar(z, 1);
    nd_auto nd_object *log = new_log();
    uint64_t id;
    assert_ok(nd_add_hook(v, note, log, &id));
    assert_ok(nd_mul_scalar_(v, 2));
    assert_ok(nd_copy_(u, copied));
    nd_auto nd_tensor *used = nd_mul_scalar(v, 3);
    assert_ok(nd_remove_hook(v, id));
    nd_auto nd_tensor *loss = total(used);
    assert_ok(nd_backward(loss, NULL));
    assert_int_equal(read_log(log)->calls, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_hook_sees_the_sum_of_all_paths),
        ND_TEST(test_hook_replaces_the_gradient),
        ND_TEST(test_hooks_run_in_order_and_are_removed),
        ND_TEST(test_hook_errors),
        ND_TEST(test_hook_that_fails_fails_the_pass),
        ND_TEST(test_hooks_that_succeed_leave_the_error_alone),
        ND_TEST(test_B28_hooks_are_registered_and_removed_in_constant_time),
        ND_TEST(test_B28_hooks_run_in_the_order_of_their_registration),
        ND_TEST(test_B28_hook_that_removes_itself_runs_once),
        ND_TEST(test_leaf_that_a_hook_closes_gets_no_gradient),
        ND_TEST(test_hook_that_removes_itself),
        ND_TEST(test_backward_inside_a_hook),
        ND_TEST(test_a_gradient_that_a_hook_kept_is_not_written),
        ND_TEST(test_G12_leaf_hook_that_captured_its_leaf),
        ND_TEST(test_G12_result_hook_that_captured_its_result),
        ND_TEST(test_G12_freed_at_the_boundary_when_on),
        ND_TEST(test_a_hook_from_before_a_write_is_removed),
        ND_TEST(test_hooks_are_removed_beside_readers),
        ND_TEST(test_a_hook_from_before_writes_through_two_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
