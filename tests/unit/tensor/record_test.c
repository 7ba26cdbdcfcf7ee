// Recording: which results get a node, what the node holds, and what is refused.
#include "lib/manager/member.h"
#include "lib/tensor/join.h"
#include "lib/tensor/node.h"
#include "lib/tensor/rebase.h"
#include "lib/tensor/record.h"
#include "tests/unit/tensor/values.h"

static nd_tensor *leaf(void) {
    nd_tensor *x = counted(on_cpu, ND_F32, ND_SHAPE(2, 3));
    assert_ok(nd_set_requires_grad(x, true));
    return x;
}

/// A recorded result of an operation whose values do not matter here.
static nd_tensor *result_of(nd_op op, const nd_tensor *a, const nd_tensor *b) {
    const nd_tensor *inputs[] = {a, b};
    return nd__record(op, nd_zeros_like(a), inputs, b ? 2 : 1, NULL);
}

static void test_leaves(void **state) {
    (void)state;
    nd_tensor *x = leaf(), *whole = nd_zeros(ND_SHAPE(2), ND_I64);
    assert_true(nd_is_leaf(x) && nd_requires_grad(x));
    assert_null(nd_get_node(x));
    assert_int_equal(nd_set_requires_grad(whole, true), ND_ERROR_DTYPE);
    assert_ok(nd_set_requires_grad(whole, false));
    nd_tensor *y = nd_clone(x);
    assert_false(nd_is_leaf(y));
    assert_true(nd_requires_grad(y));
    assert_int_equal(nd_set_requires_grad(y, false), ND_ERROR_STATE);
    assert_string_equal(nd_error_get_message(),
                        "set_requires_grad: x was computed by clone; only a leaf can be set");
    nd_error_clear();
    assert_int_equal(nd_set_requires_grad(NULL, true), ND_ERROR_INVALID_ARGUMENT);
    assert_ok(nd_close(x));
    assert_int_equal(nd_set_requires_grad(x, true), ND_ERROR_CLOSED);
    assert_false(nd_requires_grad(NULL) || nd_is_leaf(NULL));
    assert_null(nd_get_node(NULL));
    assert_null(nd_node_get_name(NULL));
    nd_release(x);
    nd_release(y);
    nd_release(whole);
}

static void test_no_grad_records_nothing_on_this_thread(void **state) {
    (void)state;
    nd_tensor *x = leaf();
    nd_no_grad {
        assert_false(nd_is_grad_enabled());
        nd_tensor *y = nd_clone(x);
        assert_true(nd_is_leaf(y) && !nd_requires_grad(y));
        nd_release(y);
        nd_enable_grad {
            y = nd_clone(x);
            assert_false(nd_is_leaf(y));
            nd_release(y);
        }
        assert_false(nd_is_grad_enabled());
    }
    assert_true(nd_is_grad_enabled());
    nd_tensor *detached = nd_detach(x);
    assert_true(nd_is_view_of(detached, x));
    assert_false(nd_requires_grad(detached));
    nd_release(detached);
    nd_release(x);
}

static void test_views_record_their_attributes(void **state) {
    (void)state;
    nd_tensor *x = leaf();
    nd_tensor *part = nd_slice(x, -2, INT64_MAX, 2, 1),
              *turned = nd_permute(part, 2, (int[]){1, 0});
    nd_tensor *flat = nd_flatten(turned, 0), *wide = nd_expand(flat, ND_SHAPE(3, 2));
    nd_tensor *joined = nd_concat(2, (const nd_tensor *const[]){wide, wide}, -1);
    nd_tensor *back = nd__join_unslice(part, ND_SHAPE(2, 3), 1, 1, 2);
    const nd_node *node = nd_get_node(part);
    assert_string_equal(nd_node_get_name(node), "slice");
    const int64_t slice_attrs[] = {1, 1, 3, 2};
    assert_memory_equal(node->attrs.i, slice_attrs, sizeof slice_attrs);
    assert_ptr_equal(node->inputs[0].source, x);
    assert_false(node->inputs[0].source_is_node);
    assert_int_equal(node->level, 1);
    node = nd_get_node(turned);
    assert_string_equal(nd_node_get_name(node), "permute");
    assert_true(node->attrs.i[0] == 1 && node->attrs.i[1] == 0);
    assert_ptr_equal(node->inputs[0].source, nd_get_node(part));
    assert_true(node->inputs[0].source_is_node);
    node = nd_get_node(flat);
    assert_string_equal(nd_node_get_name(node), "reshape");
    assert_true(node->inputs[0].ndim == 2 && node->inputs[0].shape[0] == 1);
    node = nd_get_node(wide);
    assert_string_equal(nd_node_get_name(node), "expand");
    assert_int_equal(node->level, 4);
    node = nd_get_node(joined);
    assert_string_equal(nd_node_get_name(node), "concat");
    assert_int_equal(node->attrs.i[0], 1);
    assert_int_equal(node->ninputs, 2);
    node = nd_get_node(back);
    assert_string_equal(nd_node_get_name(node), "unslice");
    const int64_t unslice_attrs[] = {1, 1, 2, 2};
    assert_memory_equal(node->attrs.i, unslice_attrs, sizeof unslice_attrs);
    nd_tensor *all[] = {part, turned, flat, wide, joined, back, x};
    for (int i = 0; i < 7; i++)
        nd_release(all[i]);
}

static void test_every_view_of_a_leaf_has_history(void **state) {
    (void)state;
    nd_tensor *x = leaf(), *y = nd_unsqueeze(x, 0);
    nd_tensor *results[] = {nd_reshape(x, ND_SHAPE(6)),
                            nd_squeeze(y, 0),
                            nd_select(x, 1, 0),
                            nd_transpose(x, 0, 1),
                            nd_as_strided(x, 0, NULL, NULL, 0),
                            nd_to(x, on_fake),
                            nd_cast(x, ND_F64)};
    const char *names[] = {"reshape", "reshape", "reshape", "permute", "as_strided", "to", "cast"};
    for (int i = 0; i < 7; i++) {
        assert_handle(results[i]);
        assert_string_equal(nd_node_get_name(nd_get_node(results[i])), names[i]);
        nd_release(results[i]);
    }
    nd_tensor *whole = nd_cast(x, ND_I32); // integers have no gradient
    assert_true(nd_is_leaf(whole) && !nd_requires_grad(whole));
    nd_release(whole);
    nd_release(y);
    nd_release(x);
}

static void test_saved_inputs_and_outputs(void **state) {
    (void)state;
    nd_tensor *x = leaf(), *c = nd_ones_like(x);
    nd_tensor *product = result_of(ND_OP_mul, x, c), *power = result_of(ND_OP_exp, product, NULL);
    const nd_node *node = nd_get_node(product);
    assert_int_equal(node->nsaved, 2);
    nd_tensor *a = nd__record_saved(node, 0), *b = nd__record_saved(node, 1);
    assert_ptr_equal(a, x);
    assert_ptr_equal(b, c);
    assert_null(node->inputs[1].source); // no gradient wanted for c
    node = nd_get_node(power);
    assert_true(node->nsaved == 1 && node->saved[0].is_output);
    nd_tensor *out = nd__record_saved(node, 0);
    assert_ptr_not_equal(out, power);
    assert_true(nd_is_view_of(out, power));
    assert_ptr_equal(nd_get_node(out), node);
    nd_tensor *bare = NULL;
    nd_no_grad bare = nd__record_saved(node, 0);
    assert_null(nd_get_node(bare));
    // Holding a result does not hold itself: the count of power is one.
    assert_int_equal(nd_get_count(power), 1);
    nd_tensor *all[] = {a, b, out, bare, power, product, c, x};
    for (int i = 0; i < 8; i++)
        nd_release(all[i]);
}

static void test_constant_operations_record_nothing(void **state) {
    (void)state;
    nd_tensor *x = leaf(), *y = result_of(ND_OP_sign, x, NULL);
    assert_true(nd_is_leaf(y) && !nd_requires_grad(y));
    nd_release(x);
    nd_release(y);
}

static void test_saved_tensors_know_when_they_were_written(void **state) {
    (void)state;
    nd_tensor *x = leaf(), *y = result_of(ND_OP_square, x, NULL);
    assert_int_equal(nd_get_version(x), 0);
    nd__tensor_bump_version(x);
    assert_int_equal(nd_get_version(x), 1);
    assert_refused(nd__record_saved(nd_get_node(y), 0), ND_ERROR_STATE);
    assert_string_equal(nd_error_get_message(),
                        "square: a saved tensor of shape [2, 3] was changed in "
                        "place: version 1, saved at 0");
    assert_ok(nd_close(x));
    assert_refused(nd__record_saved(nd_get_node(y), 0), ND_ERROR_CLOSED);
    nd_release(x);
    nd_release(y);
}

static void test_in_place_rules(void **state) {
    (void)state;
    nd_tensor *x = leaf(), *y = nd_clone(x), *view = nd_transpose(y, 0, 1),
              *plain = nd_ones_like(x);
    assert_ok(nd__record_check_in_place("add_", plain));
    assert_ok(nd__record_check_in_place("add_", y));
    assert_int_equal(nd__record_check_in_place("add_", x), ND_ERROR_STATE);
    assert_non_null(strstr(nd_error_get_message(), "add_: x is a leaf"));
    assert_ok(nd__record_check_in_place("add_", view));
    nd_tensor *part = nd_transpose(x, 0, 1);
    assert_int_equal(nd__record_check_in_place("add_", part), ND_ERROR_STATE);
    assert_non_null(strstr(nd_error_get_message(), "view (permute) of a leaf that requires"));
    nd_no_grad {
        assert_ok(nd__record_check_in_place("add_", x));
        assert_ok(nd__record_check_in_place("add_", part));
    }
    nd_release(part);
    nd_error_clear();
    assert_int_equal(nd__record_check_in_place("add_", NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_tensor *all[] = {x, y, view, plain};
    for (int i = 0; i < 4; i++)
        nd_release(all[i]);
}

static void test_in_place_operations_continue_the_history(void **state) {
    (void)state;
    nd_tensor *x = leaf(), *y = nd_clone(x), *c = nd_ones_like(x);
    nd_node *before = nd_retain(nd_get_node(y));
    const nd_tensor *inputs[] = {y, c};
    nd__tensor_bump_version(y);
    assert_ok(nd__record_in_place(ND_OP_mul, y, inputs, 2, NULL));
    const nd_node *node = nd_get_node(y);
    assert_ptr_not_equal(node, before);
    assert_ptr_equal(node->inputs[0].source, before);
    // The value that y had is gone; c's is there. Nothing holds y itself.
    assert_refused(nd__record_saved(node, 0), ND_ERROR_STATE);
    assert_non_null(strstr(nd_error_get_message(), "was not kept"));
    nd_tensor *saved = nd__record_saved(node, 1);
    assert_ptr_equal(saved, c);
    assert_int_equal(nd_get_count(y), 1);
    nd_release(saved);
    // What no longer depends on x has no history.
    nd__tensor_bump_version(y);
    assert_ok(nd__record_in_place(ND_OP_clone, y, (const nd_tensor *const[]){c}, 1, NULL));
    assert_true(nd_is_leaf(y) && !nd_requires_grad(y));
    nd_release(before);
    nd_release(c);
    nd_release(y);
    nd_release(x);
}

static void test_a_view_gets_a_new_node_after_its_base_was_written(void **state) {
    (void)state;
    nd_tensor *x = leaf(), *y = nd_clone(x), *view = nd_flatten(y, 0);
    const nd_node *before = nd_get_node(view);
    assert_string_equal(nd_node_get_name(before), "reshape");
    nd__tensor_bump_version(y);
    const nd_node *node = nd_get_node(view);
    assert_string_equal(nd_node_get_name(node), "as_strided");
    assert_ptr_equal(node->inputs[0].source, nd_get_node(y));
    assert_ptr_equal(nd_get_node(view), node); // once
    nd_tensor *result = nd_clone(view);
    assert_ptr_equal(nd_get_node(result)->inputs[0].source, node);
    nd_tensor *all[] = {x, y, view, result};
    for (int i = 0; i < 4; i++)
        nd_release(all[i]);
}

/// A window with gaps cannot be a base.
static void test_a_view_without_a_base_is_stale_after_a_write(void **state) {
    (void)state;
    nd_tensor *x = leaf(), *y = nd_clone(x), *apart = nd_detach(y), *gaps = NULL, *part = NULL;
    nd_no_grad gaps = nd_slice(apart, 0, 3, 2, 1);
    nd_tensor *one = nd_ones(ND_SHAPE(2, 2), ND_F32);
    nd_tensor *row = nd_slice(x, 0, 1, 1, 0);
    assert_int_equal(nd__rebase_check_cut("add_", gaps), ND_ERROR_STATE);
    assert_non_null(strstr(nd_error_get_message(), "made inside nd_no_grad"));
    nd_error_clear();
    // A view of a leaf shows the leaf, whatever was written there.
    nd__tensor_bump_version(x);
    nd_tensor *result = nd_clone(row);
    assert_handle(result);
    // What holds the storage alone misses nobody.
    nd_no_grad part = nd_flatten(one, 0);
    nd_release(one);
    assert_ok(nd__rebase_check_cut("add_", part));
    nd_tensor *all[] = {x, y, apart, gaps, row, result, part};
    for (int i = 0; i < 7; i++)
        nd_release(all[i]);
}

static nd_status no_backward(const nd_object *context, size_t count, const nd_tensor *const *grads,
                             size_t ninputs, nd_tensor **ret_grads) {
    (void)context, (void)grads, (void)count, (void)ret_grads, (void)ninputs;
    return ND_OK;
}

static void test_user_functions_share_one_node(void **state) {
    (void)state;
    static const nd_function function = {
        .size = sizeof function, .version = 1, .name = "mine", .backward = no_backward};
    nd_tensor *x = leaf(), *a = nd_ones_like(x), *b = nd_zeros(ND_SHAPE(1), ND_I32);
    nd_tensor *c = nd_zeros(ND_SHAPE(4), ND_F64);
    nd_list *context = nd_list_new();
    nd_tensor *results[] = {a, b, c};
    const nd_tensor *inputs[] = {x};
    assert_ok(nd__record_function(&function, (const nd_object *)context, results, 3, inputs, 1));
    assert_ptr_equal(nd_get_node(a), nd_get_node(c));
    assert_null(nd_get_node(b)); // an integer
    assert_string_equal(nd_node_get_name(nd_get_node(a)), "mine");
    assert_int_equal(c->output_index, 2);
    assert_int_equal(nd_get_node(a)->outputs[2].shape[0], 4);
    assert_int_equal(nd_get_count(context), 2);
    nd_tensor *same[] = {x};
    assert_int_equal(nd__record_function(&function, NULL, same, 1, inputs, 1), ND_ERROR_STATE);
    assert_true(nd_is_leaf(x));
    nd_tensor *all[] = {x, a, b, c};
    for (int i = 0; i < 4; i++)
        nd_release(all[i]);
    nd_release(context);
}

static void test_G15_a_gradient_that_reaches_its_parameter_is_collected(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "step");
    nd_with_manager(manager) {
        nd_tensor *x = leaf(), *y = nd_clone(x);
        nd_edge_set(&x->grad, y); // x -grad-> y -node-> clone -input-> x
        nd__member_track(&x->header);
        nd_release(x);
        nd_release(y);
    }
    assert_int_equal(nd_manager_get_total_objects(manager),
                     4); // 2 tensors, the storage of x, 1 node
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(manager, &report));
    assert_int_equal(report.collected_objects, 4);
    assert_int_equal(report.collected_bytes, 48);
    assert_int_equal(nd_manager_get_total_objects(manager), 0);
    nd_release(manager);
}

static char cycle_path[512];
static void keep_path(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)objects, (void)bytes, (void)data;
    snprintf(cycle_path, sizeof cycle_path, "%s", path);
}

static void test_reports_name_the_operation_of_a_node(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "step");
    nd_with_manager(manager) {
        nd_tensor *x = leaf(), *y = nd_clone(x);
        nd_edge_set(&x->grad, y);
        nd__member_track(&x->header);
        nd_release(x);
        nd_release(y);
    }
    nd_gc_set_cycle_callback(keep_path, NULL);
    assert_ok(nd_gc_collect(manager, NULL));
    nd_gc_set_cycle_callback(NULL, NULL);
    if (!strstr(cycle_path, "-node-> clone"))
        fail_msg("path: %s", cycle_path);
    nd_release(manager);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_leaves),
        ND_TEST(test_no_grad_records_nothing_on_this_thread),
        ND_TEST(test_views_record_their_attributes),
        ND_TEST(test_every_view_of_a_leaf_has_history),
        ND_TEST(test_saved_inputs_and_outputs),
        ND_TEST(test_constant_operations_record_nothing),
        ND_TEST(test_saved_tensors_know_when_they_were_written),
        ND_TEST(test_in_place_rules),
        ND_TEST(test_in_place_operations_continue_the_history),
        ND_TEST(test_a_view_gets_a_new_node_after_its_base_was_written),
        ND_TEST(test_a_view_without_a_base_is_stale_after_a_write),
        ND_TEST(test_user_functions_share_one_node),
        ND_TEST(test_G15_a_gradient_that_reaches_its_parameter_is_collected),
        ND_TEST(test_reports_name_the_operation_of_a_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
