// Looking up where lent objects came from takes the same time however many are lent: it is counted,
// not measured.
#include "lib/manager/manager.h"
#include "lib/manager/origin.h"
#include "tests/behaviour/cell.h"
#include "tests/behaviour/helpers.h"
#include "tests/testing.h"
#include <stdlib.h>

static void test_lookups_stay_short_however_many_objects_are_lent(void **state) {
    (void)state;
    enum { LENT = 20000 };
    cell_begin(1);
    nd_manager *shard = manager_new(NULL, "home"), *guest = manager_new(NULL, "guest");
    nd_object **objects = malloc(LENT * sizeof *objects);
    uint64_t before = nd__origin_count();
    for (int i = 0; i < LENT; i++) {
        objects[i] = cell_in(shard, 0, 0);
        assert_ok(nd_manager_lend(guest, objects[i]));
    }
    assert_int_equal(nd__origin_count(), before + LENT);
    // With one bucket for each, at least, some have a few; with 256 for all they had 80.
    assert_in_range(nd__origin_longest(), 1, 16);
    for (int i = 0; i < LENT; i += 2) {
        nd_release(objects[i]);
        objects[i] = NULL;
    }
    assert_int_equal(nd__origin_count(), before + LENT / 2);
    nd_close_report report = close_and_release(guest);
    assert_int_equal(report.returned_objects, LENT / 2);
    assert_int_equal(nd__origin_count(), before);
    for (int i = 0; i < LENT; i++) {
        assert_true(!objects[i] || nd_get_manager(objects[i]) == shard);
        nd_release(objects[i]);
    }
    free(objects);
    close_and_release(shard);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_lookups_stay_short_however_many_objects_are_lent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
