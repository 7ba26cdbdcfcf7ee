// A program that was written with the names that functions had before 0.1.0.
#include "tests/testing.h"

#ifdef ND_NO_OLD_NAMES
#error "this is about the old names"
#endif

static void test_old_names_work(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "old");
    assert_handle(manager);
    assert_string_equal(nd_manager_name(manager), "old");
    assert_ptr_equal(nd_manager_parent(manager), nd_manager_root());
    nd_tensor *x = nd_full(ND_SHAPE(1), 2.5, ND_F32);
    assert_handle(x);
    assert_ok(nd_attach(manager, x));
    assert_ptr_equal(nd_manager_of(x), manager);
    assert_true(nd_manager_total_objects(manager) >= 1);
    assert_true(nd_item(x) == 2.5);
    assert_null(nd_reshape(x, ND_SHAPE(2)));
    assert_int_equal(nd_error_status(), ND_ERROR_SHAPE);
    assert_non_null(strstr(nd_error_message(), "reshape"));
    nd_error_clear();
    nd_release(x);
    assert_ok(nd_manager_close(manager, NULL));
    nd_release(manager);
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_old_names_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
