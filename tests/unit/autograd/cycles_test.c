// The cycles that create_graph makes, and that every edge of them is one the collector sees.
#include "tests/unit/autograd/support.h"

#include "lib/device/fake/fake.h"
#include "lib/tensor/node.h"

#include <pthread.h>

static uint64_t collected(const nd_manager *manager) {
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(manager, &report));
    assert_int_equal(report.broken_objects, 0);
    return report.collected_objects;
}

static void backward_with_graph(const nd_tensor *p) {
    nd_auto nd_tensor *power = nd_pow_scalar(p, 3.0);
    nd_auto nd_tensor *loss = total(power);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    assert_ok(nd_backward(loss, &options));
}

/// Visitor that looks for one target.
typedef struct search {
    nd_visitor visitor;
    const nd_object *target;
    int found;
    const char *label;
} search;

static void look(nd_visitor *visitor, nd_object *target, const char *label) {
    search *looking = (search *)visitor;
    if (target == looking->target) {
        looking->found++;
        looking->label = label;
    }
}

static search edges_to(const nd_object *from, const nd_object *target) {
    search looking = {{look}, target, 0, NULL};
    from->type->traverse(from, &looking.visitor);
    return looking;
}

static void test_G15_parameter_and_gradient(void **state) {
    (void)state;
    nd_tensor *p = make_leaf(VALUES(1, 2));
    backward_with_graph(p);
    assert_values(nd_get_grad(p), VALUES(3, 12));
    // The first edge of the cycle is reported, once.
    search looking = edges_to(&p->header, &p->grad->header);
    assert_int_equal(looking.found, 1);
    assert_string_equal(looking.label, "grad");
    // Held: nothing is collected, and the value is as it was.
    assert_int_equal(collected(nd_manager_get_root()), 0);
    assert_values(nd_get_grad(p), VALUES(3, 12));
    nd_auto nd_weak *weak = nd_weak_new(p);
    nd_auto nd_weak *weak_grad = nd_weak_new(nd_get_grad(p));
    nd_release(p);
    nd_object *alive = nd_weak_get(weak);
    assert_non_null(alive);
    nd_release(alive);
    assert_true(collected(nd_manager_get_root()) >= 3);
    assert_null(nd_weak_get(weak));
    assert_null(nd_weak_get(weak_grad));
}

/// Storages, views and saved tensors, which the collector does not examine, die with a graph.
static void test_warned_of_is_what_a_graph_holds(void **state) {
    (void)state;
    nd_tensor *p = make_leaf(VALUES(1, 2));
    backward_with_graph(p);
    nd_auto nd_tensor *held = nd_slice(p, 0, 1, 1, 0); // keeps p, and what p leads to
    nd_tensor *q = make_leaf(VALUES(3, 4));
    backward_with_graph(q);
    nd_release(p);
    nd_release(q);
    nd_gc_report warned = ND_GC_REPORT_INIT, freed = ND_GC_REPORT_INIT;
    for (int round = 0; round < 2; round++) {
        uint64_t objects = nd_manager_get_total_objects(NULL),
                 bytes = nd_manager_get_total_bytes(NULL);
        assert_ok(nd_gc_set_mode(ND_GC_WARN));
        assert_ok(nd_gc_collect(NULL, &warned));
        assert_int_equal(nd_manager_get_total_objects(NULL), objects);
        assert_ok(nd_gc_set_mode(ND_GC_OFF));
        assert_ok(nd_gc_collect(NULL, &freed));
        assert_true(freed.collected_objects > 3 && freed.collected_bytes > 8);
        assert_int_equal(freed.collected_objects, objects - nd_manager_get_total_objects(NULL));
        assert_int_equal(freed.collected_bytes, bytes - nd_manager_get_total_bytes(NULL));
        assert_int_equal(warned.collected_objects, freed.collected_objects);
        assert_int_equal(warned.collected_bytes, freed.collected_bytes);
        nd_release(held);
        held = NULL;
    }
}

static void test_G15_at_the_boundary_of_a_step(void **state) {
    (void)state;
    assert_ok(nd_gc_set_mode(ND_GC_ON));
    nd_auto nd_tensor *weight = make_leaf(VALUES(0.5, -0.5));
    for (int step = 0; step < 20; step++) {
        nd_auto nd_manager *manager = nd_manager_new(NULL, "step");
        nd_with_manager(manager) {
            // A parameter of an inner step: made here, and gone with the step.
            nd_auto nd_tensor *inner = nd_clone(weight);
            nd_auto nd_tensor *p = nd_detach(inner);
            assert_ok(nd_set_requires_grad(p, true));
            backward_with_graph(p);
            nd_auto nd_tensor *penalty = nd_square(nd_get_grad(p));
            nd_auto nd_tensor *loss = total(penalty);
            assert_ok(nd_backward(loss, NULL));
            assert_ok(nd_zero_grad(p));
            backward_with_graph(p);
        }
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        assert_ok(nd_manager_close(manager, &report));
        assert_true(report.collected_objects >= 3);
        assert_int_equal(report.escaped_objects, 0);
        assert_int_equal(report.escaped_bytes, 0);
    }
    assert_null(nd_get_grad(weight));
    assert_ok(nd_gc_set_mode(ND_GC_OFF));
}

static void test_G15_ends_without_the_collector(void **state) {
    (void)state;
    // Dropping the gradient cuts the cycle: counts free the rest.
    nd_tensor *p = make_leaf(VALUES(1, 2));
    backward_with_graph(p);
    assert_ok(nd_zero_grad(p));
    nd_release(p);
    // So does closing the parameter.
    nd_tensor *q = make_leaf(VALUES(1, 2));
    backward_with_graph(q);
    assert_ok(nd_close(q));
    nd_release(q);
}

static void test_G15_parameter_and_graph_in_different_managers(void **state) {
    (void)state;
    // The parameter lives in the model, the graph of its gradient in the step.
    assert_ok(nd_gc_set_mode(ND_GC_ON));
    nd_auto nd_manager *model = nd_manager_new(NULL, "model");
    nd_auto nd_manager *step = nd_manager_new(model, "step");
    nd_tensor *p = NULL;
    nd_with_manager(model) p = make_leaf(VALUES(1, 2));
    nd_with_manager(step) backward_with_graph(p);
    assert_ptr_equal(nd_get_manager(nd_get_grad(p)), model);
    assert_ok(nd_manager_close(step, NULL));
    assert_values(nd_get_grad(p), VALUES(3, 12));
    nd_auto nd_weak *weak = nd_weak_new(p);
    nd_release(p);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(model, &report));
    assert_null(nd_weak_get(weak));
    assert_int_equal(report.escaped_objects, 0);
    assert_ok(nd_gc_set_mode(ND_GC_OFF));
}

static void test_G16_in_place_operation_that_saves_the_tensor(void **state) {
    (void)state;
    // y *= z saves both; y's old value is not y, so there is no cycle, with or without a graph.
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *z = make_leaf(VALUES(3, 4));
    nd_tensor *y = nd_mul_scalar(x, 2.0);
    assert_ok(nd_mul_(y, z));
    assert_int_equal(edges_to(&y->node->header, &y->header).found, 0);
    nd_auto nd_tensor *loss = total(y);
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(x), VALUES(6, 8));
    assert_values(nd_get_grad(z), VALUES(2, 4));
    // A tensor whose saver saves it: w *= w.
    nd_tensor *w = nd_mul_scalar(x, 1.0);
    assert_ok(nd_mul_(w, w));
    nd_auto nd_tensor *squares = total(w);
    assert_ok(nd_zero_grad(x));
    assert_ok(nd_backward(squares, NULL));
    assert_values(nd_get_grad(x), VALUES(2, 4));
    nd_auto nd_weak *weak = nd_weak_new(w);
    nd_release(nd_steal(&squares));
    nd_release(w);
    nd_release(y);
    collected(nd_manager_get_root());
    assert_null(nd_weak_get(weak));
}

static void test_saved_outputs_make_no_cycle(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_tensor *(*const operations[])(const nd_tensor *) = {nd_exp, nd_sqrt, nd_tanh, nd_sigmoid,
                                                           nd_relu};
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        nd_tensor *y = operations[i](x);
        nd_auto nd_weak *weak = nd_weak_new(y);
        nd_auto nd_tensor *loss = total(y);
        assert_ok(nd_backward(loss, NULL));
        nd_release(y);
        assert_null(nd_weak_get(weak));
    }
}

static void test_G14_cycle_across_devices(void **state) {
    (void)state;
    nd_tensor *p = make_leaf(VALUES(1, 2));
    nd_tensor *far = nd_to(p, (nd_device){ND_FAKE, 0});
    nd_auto nd_tensor *power = nd_pow_scalar(far, 3.0);
    nd_auto nd_tensor *near = nd_to(power, (nd_device){ND_CPU, 0});
    nd_auto nd_tensor *loss = total(near);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    assert_ok(nd_backward(loss, &options));
    assert_values(nd_get_grad(p), VALUES(3, 12));
    nd_release(nd_steal(&loss));
    nd_release(nd_steal(&near));
    nd_release(nd_steal(&power));
    nd_release(far);
    nd_release(p);
    assert_true(collected(nd_manager_get_root()) >= 3);
}

enum { THREADS = 3, STEPS = 100 };

static void *train(void *argument) {
    const nd_tensor *weight = argument;
    for (int step = 0; step < STEPS; step++) {
        nd_auto nd_manager *manager = nd_manager_new(NULL, "step");
        nd_with_manager(manager) {
            nd_auto nd_tensor *p = nd_clone(weight);
            nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
            options.create_graph = true;
            if (nd_set_requires_grad(p, true) != ND_OK)
                return argument;
            nd_auto nd_tensor *cube = nd_pow_scalar(p, 3.0);
            nd_auto nd_tensor *loss = nd_sum(cube, 0, NULL, false);
            if (nd_backward(loss, &options) != ND_OK)
                return argument;
            // A gradient that a collection broke would show here: 3 + 12.
            nd_auto nd_tensor *sum = nd_sum(nd_get_grad(p), 0, NULL, false);
            if (!(fabs(nd_get_item(sum) - 15.0) < 1e-9))
                return argument;
        }
        if (nd_manager_close(manager, NULL) != ND_OK)
            return argument;
    }
    return NULL;
}

static void test_G36_training_threads_beside_a_collecting_one(void **state) {
    (void)state;
    assert_ok(nd_gc_set_mode(ND_GC_ON));
    nd_auto nd_tensor *weight = make_vector(VALUES(1, 2));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, train, weight), 0);
    for (int i = 0; i < 200; i++)
        collected(nd_manager_get_root());
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    collected(nd_manager_get_root());
    assert_ok(nd_gc_set_mode(ND_GC_OFF));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G15_parameter_and_gradient),
        ND_TEST(test_warned_of_is_what_a_graph_holds),
        ND_TEST(test_G15_at_the_boundary_of_a_step),
        ND_TEST(test_G15_ends_without_the_collector),
        ND_TEST(test_G15_parameter_and_graph_in_different_managers),
        ND_TEST(test_G16_in_place_operation_that_saves_the_tensor),
        ND_TEST(test_saved_outputs_make_no_cycle),
        ND_TEST(test_G14_cycle_across_devices),
        ND_TEST(test_G36_training_threads_beside_a_collecting_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
