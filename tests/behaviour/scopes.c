// Scopes: B1 to B7 and B24, with user objects and resources. A scope owns what was handed to it and
// nothing else.
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>

static uint32_t freed_resources;

static void free_resource(void *pointer, size_t bytes) {
    (void)bytes;
    freed_resources++;
    free(pointer);
}

static const nd_resource_callbacks resource_callbacks = {
    .size = sizeof(nd_resource_callbacks),
    .version = 1,
    .free = free_resource,
};

static nd_resource *resource_new(size_t bytes) {
    void *memory = malloc(bytes);
    assert_non_null(memory);
    nd_resource *resource = nd_resource_new("buffer", memory, bytes, &resource_callbacks);
    assert_handle(resource);
    return resource;
}

static void test_B01_inner_temporary_dies_with_inner_scope(void **state) {
    (void)state;
    cell_begin(4);
    ND_SCOPE {
        const nd_object *outer = nd_tmp(cell_new(0, 0));
        assert_handle(outer);
        ND_SCOPE {
            assert_handle(nd_tmp(cell_new(1, 0)));
            const nd_object *moved = nd_tmp(cell_new(2, 0));
            assert_handle(nd_tmp(cell_new(3, 0)));
            assert_int_equal(nd_scope_get_size(nd_scope_get_current()), 3);
            assert_ok(nd_scope_move_out(moved));
            assert_int_equal(nd_scope_get_size(nd_scope_get_current()), 2);
        }
        assert_int_equal(cell_deaths(1), 1);
        assert_int_equal(cell_deaths(3), 1);
        assert_int_equal(cell_deaths(2), 0);
        assert_int_equal(nd_scope_get_size(nd_scope_get_current()), 2);
        assert_int_equal(nd_get_count(outer), 1);
    }
    for (uint32_t number = 0; number < 4; number++)
        assert_int_equal(cell_deaths(number), 1);
    assert_null(nd_scope_get_current());
}

static void test_B01_kept_by_retain_outlives_every_scope(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *kept = NULL;
    ND_SCOPE {
        ND_SCOPE {
            kept = nd_retain(nd_tmp(cell_new(0, 0)));
        }
        assert_int_equal(nd_get_count(kept), 1);
    }
    assert_int_equal(cell_deaths(0), 0);
    nd_release(kept);
    assert_int_equal(cell_deaths(0), 1);
}

static void test_B02_resource_behaves_as_a_temporary(void **state) {
    (void)state;
    freed_resources = 0;
    uint64_t before = nd_manager_get_total_bytes(NULL);
    ND_SCOPE {
        ND_SCOPE {
            const nd_resource *inner = nd_tmp(resource_new(100));
            const nd_resource *moved = nd_tmp(resource_new(1000));
            assert_non_null(nd_resource_get(inner));
            assert_int_equal(nd_manager_get_total_bytes(NULL) - before, 1100);
            assert_ok(nd_scope_move_out(moved));
        }
        assert_int_equal(freed_resources, 1);
        assert_int_equal(nd_manager_get_total_bytes(NULL) - before, 1000);
    }
    assert_int_equal(freed_resources, 2);
    assert_int_equal(nd_manager_get_total_bytes(NULL), before);
}

static void test_B03_object_adopted_by_an_outer_scope_lives_as_long_as_that_one(void **state) {
    (void)state;
    cell_begin(5);
    nd_scope *scopes[4];
    for (uint32_t i = 0; i < 4; i++) {
        scopes[i] = nd_scope_begin();
        assert_handle(scopes[i]);
        assert_handle(nd_tmp(cell_new(i, 0)));
    }
    assert_ok(nd_scope_adopt(scopes[1], cell_new(4, 0)));
    assert_int_equal(nd_scope_get_size(scopes[1]), 2);
    assert_ok(nd_scope_end(scopes[3]));
    assert_int_equal(cell_deaths(3), 1);
    assert_ok(nd_scope_end(scopes[2]));
    assert_int_equal(cell_deaths(2), 1);
    assert_int_equal(cell_deaths(1) + cell_deaths(4), 0);
    assert_ok(nd_scope_end(scopes[1]));
    assert_int_equal(cell_deaths(1), 1);
    assert_int_equal(cell_deaths(4), 1);
    assert_int_equal(cell_deaths(0), 0);
    assert_ok(nd_scope_end(scopes[0]));
    assert_int_equal(cell_total_deaths(), 5);
}

static void test_B04_members_of_a_list_survive_a_move_out(void **state) {
    (void)state;
    cell_begin(4);
    ND_SCOPE {
        ND_SCOPE {
            nd_list *list = nd_list_new();
            assert_handle(list);
            for (uint32_t i = 0; i < 3; i++)
                assert_ok(nd_list_append(list, nd_tmp(cell_new(i, 0))));
            assert_handle(nd_tmp(cell_new(3, 0)));
            assert_ok(nd_scope_move_out(nd_tmp(list)));
        }
        assert_int_equal(cell_total_deaths(), 1);
        assert_int_equal(cell_deaths(3), 1);
    }
    assert_int_equal(cell_total_deaths(), 4);
}

static void test_B04_members_of_a_map_survive_a_move_out(void **state) {
    (void)state;
    cell_begin(4);
    ND_SCOPE {
        ND_SCOPE {
            static const char *const names[] = {"a", "b", "c"};
            nd_map *map = nd_map_new();
            assert_handle(map);
            for (uint32_t i = 0; i < 3; i++)
                assert_ok(nd_map_set(map, names[i], nd_tmp(cell_new(i, 0))));
            assert_handle(nd_tmp(cell_new(3, 0)));
            const nd_map *kept = nd_tmp(map);
            assert_ok(nd_scope_move_out(kept));
            nd_map *held = nd_retain(kept); // the macros know the type
            nd_release(held);
        }
        assert_int_equal(cell_total_deaths(), 1);
        assert_int_equal(cell_deaths(3), 1);
    }
    assert_int_equal(cell_total_deaths(), 4);
}

static void test_B04_members_of_a_user_struct_survive_a_move_out(void **state) {
    (void)state;
    cell_begin(5);
    ND_SCOPE {
        ND_SCOPE {
            // 0 holds 1 and 2, 2 holds 3; 4 stands beside them.
            nd_object *top = cell_new(0, 2);
            nd_object *deep = cell_new(2, 1);
            cell_link(top, 0, nd_tmp(cell_new(1, 0)));
            cell_link(top, 1, deep);
            cell_link(deep, 0, nd_tmp(cell_new(3, 0)));
            assert_handle(nd_tmp(deep));
            assert_handle(nd_tmp(cell_new(4, 0)));
            assert_ok(nd_scope_move_out(nd_tmp(top)));
        }
        assert_int_equal(cell_total_deaths(), 1);
        assert_int_equal(cell_deaths(4), 1);
    }
    assert_int_equal(cell_total_deaths(), 5);
}

static void test_B05_early_release_inside_a_scope(void **state) {
    (void)state;
    cell_begin(2);
    ND_SCOPE {
        nd_object *owned = cell_new(0, 0);
        const nd_object *handed = nd_tmp(cell_new(1, 0));
        nd_release(owned);
        assert_int_equal(cell_deaths(0), 1);
        nd_object *twice = nd_retain(handed);
        assert_int_equal(nd_get_count(handed), 2);
        nd_release(twice);
        assert_int_equal(cell_deaths(1), 0);
    }
    assert_int_equal(cell_deaths(0), 1);
    assert_int_equal(cell_deaths(1), 1);
}

static void test_B05_early_close_inside_a_scope(void **state) {
    (void)state;
    cell_begin(2);
    freed_resources = 0;
    ND_SCOPE {
        nd_object *closed = cell_new(0, 1);
        cell_link(closed, 0, nd_tmp(cell_new(1, 0)));
        assert_handle(nd_tmp(closed));
        assert_ok(nd_close(closed));
        assert_int_equal(cell_deaths(0), 1);
        assert_int_equal(cell_deaths(1), 0);

        nd_resource *resource = resource_new(64);
        assert_handle(nd_tmp(resource));
        uint64_t before = nd_manager_get_total_bytes(NULL);
        assert_ok(nd_close(resource));
        assert_ok(nd_close(resource));
        assert_int_equal(freed_resources, 1);
        assert_null(nd_resource_get(resource));
        assert_int_equal(before - nd_manager_get_total_bytes(NULL), 64);
    }
    assert_int_equal(freed_resources, 1);
    assert_int_equal(cell_deaths(0), 1);
    assert_int_equal(cell_deaths(1), 1);
}

// ---------------------------------------------------------------------------------------- B6

static int leave_by_return(void) {
    ND_SCOPE {
        assert_handle(nd_tmp(cell_new(0, 0)));
        ND_SCOPE {
            assert_handle(nd_tmp(cell_new(1, 0)));
            assert_handle(nd_tmp(cell_new(2, 0)));
            return 7;
        }
    }
    return 0;
}

static void leave_by_break(void) {
    ND_SCOPE {
        assert_handle(nd_tmp(cell_new(0, 0)));
        if (cell_total_deaths() == 0)
            break;
        fail_msg("break did not leave the scope");
    }
}

static void leave_by_goto(void) {
    ND_SCOPE {
        assert_handle(nd_tmp(cell_new(0, 0)));
        ND_SCOPE {
            assert_handle(nd_tmp(cell_new(1, 0)));
            goto out;
        }
    }
    fail_msg("goto did not leave the scopes");
out:
    assert_int_equal(cell_total_deaths(), 2);
}

static nd_status leave_by_error(void) {
    nd_auto_scope;
    assert_handle(nd_tmp(cell_new(0, 0)));
    nd_status status = nd_manager_attach(NULL, NULL);
    if (status != ND_OK)
        return status;
    fail_msg("the failing call succeeded");
    return ND_OK;
}

static void assert_deaths_in_order(const uint32_t *numbers, uint32_t count) {
    assert_int_equal(cell_total_deaths(), count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(cell_death_at(i), numbers[i]);
    assert_null(nd_scope_get_current());
}

static void test_B06_return_break_goto_and_error_release_everything(void **state) {
    (void)state;
    cell_begin(8);
    assert_int_equal(leave_by_return(), 7);
    assert_deaths_in_order((uint32_t[]){2, 1, 0}, 3);
    cell_begin(8);
    leave_by_break();
    assert_deaths_in_order((uint32_t[]){0}, 1);
    cell_begin(8);
    leave_by_goto();
    assert_deaths_in_order((uint32_t[]){1, 0}, 2);
    cell_begin(8);
    assert_int_not_equal(leave_by_error(), ND_OK);
    assert_deaths_in_order((uint32_t[]){0}, 1);
}

static void test_B06_last_in_first_out(void **state) {
    (void)state;
    cell_begin(40);
    ND_SCOPE {
        for (uint32_t i = 0; i < 40; i++)
            assert_handle(nd_tmp(cell_new(i, 0)));
    }
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(cell_death_at(i), 39 - i);
}

static void test_B06_ending_an_outer_scope_ends_those_inside_first(void **state) {
    (void)state;
    cell_begin(3);
    nd_scope *outer = nd_scope_begin();
    assert_handle(nd_tmp(cell_new(0, 0)));
    assert_handle(nd_scope_begin());
    assert_handle(nd_tmp(cell_new(1, 0)));
    assert_handle(nd_scope_begin());
    assert_handle(nd_tmp(cell_new(2, 0)));
    assert_ok(nd_scope_end(outer));
    assert_deaths_in_order((uint32_t[]){2, 1, 0}, 3);
}

// A destructor that runs because the scope ends may use scopes itself, the dying one excepted.
static void use_a_scope(nd_object *self) {
    if (cell_of(self)->number != 0)
        return;
    ND_SCOPE {
        assert_handle(nd_tmp(cell_new(1, 0)));
    }
}

static void test_B06_destructor_may_use_scopes(void **state) {
    (void)state;
    cell_begin(3);
    cell_on_destroy = use_a_scope;
    ND_SCOPE {
        assert_handle(nd_tmp(cell_new(2, 0)));
        assert_handle(nd_tmp(cell_new(0, 0)));
    }
    assert_int_equal(cell_total_deaths(), 3);
    assert_null(nd_scope_get_current());
}

// What dies in a scope may end those that are being ended, or leave them.
static nd_scope *ended_outer, *ended_inner;
static nd_status status_inside;
static bool told_inside;

static void end_all(nd_object *self) {
    if (cell_of(self)->number == 1)
        for (nd_scope *scope; (scope = nd_scope_get_current());)
            assert_ok(nd_scope_end(scope));
}
static void end_outer(nd_object *self) {
    if (cell_of(self)->number == 1)
        status_inside = nd_scope_end(ended_outer);
}
static void end_inner(nd_object *self) {
    if (cell_of(self)->number == 1)
        status_inside = nd_scope_end(ended_inner);
    told_inside = strstr(nd_error_get_message(), "is being ended") != NULL || told_inside;
}
static void leave_outer(nd_object *self) {
    if (cell_of(self)->number == 1)
        status_inside = nd_scope_leave(ended_outer);
}

static void *enter_and_end(void *scope) {
    assert_ok(nd_scope_enter(scope));
    assert_ok(nd_scope_end(scope));
    return NULL;
}
static void hand_outer_over(nd_object *self) {
    if (cell_of(self)->number != 1)
        return;
    pthread_t thread;
    status_inside = nd_scope_leave(ended_outer);
    assert_int_equal(pthread_create(&thread, NULL, enter_and_end, ended_outer), 0);
    pthread_join(thread, NULL);
}

/// Two scopes with three cells each, the second of which does that. Returns what ending says.
static nd_status end_beside(void (*on_destroy)(nd_object *), bool whole) {
    cell_begin(6);
    cell_on_destroy = on_destroy;
    ended_outer = nd_scope_begin();
    for (uint32_t i = 3; i < 6; i++)
        assert_handle(nd_tmp(cell_new(i, 0)));
    ended_inner = nd_scope_begin();
    for (uint32_t i = 0; i < 3; i++)
        assert_handle(nd_tmp(cell_new(i, 0)));
    return nd_scope_end(whole ? ended_outer : ended_inner);
}

static void test_B06_destructor_may_end_scopes_that_are_being_ended(void **state) {
    (void)state;
    assert_ok(end_beside(end_all, true));
    assert_int_equal(cell_total_deaths(), 6);
    assert_null(nd_scope_get_current());

    assert_ok(end_beside(end_outer, true));
    assert_int_equal(status_inside, ND_OK);
    assert_int_equal(cell_total_deaths(), 6);
    assert_null(nd_scope_get_current());

    assert_ok(end_beside(end_outer, false));
    assert_int_equal(status_inside, ND_OK);
    assert_int_equal(cell_total_deaths(), 6);
    assert_null(nd_scope_get_current());

    for (int whole = 0; whole < 2; whole++) { // the one that is being emptied
        assert_ok(end_beside(end_inner, whole));
        assert_int_equal(status_inside, ND_ERROR_STATE);
        assert_true(told_inside);
        assert_int_equal(cell_total_deaths(), whole ? 6 : 3);
        if (!whole)
            assert_ok(nd_scope_end(ended_outer));
        assert_null(nd_scope_get_current());
    }
}

static void test_B06_destructor_may_leave_a_scope_that_is_about_to_end(void **state) {
    (void)state;
    assert_int_equal(end_beside(leave_outer, true), ND_ERROR_STATE);
    nd_error_clear();
    assert_int_equal(status_inside, ND_OK);
    assert_int_equal(cell_total_deaths(), 3);
    assert_null(nd_scope_get_current());
    assert_ok(nd_scope_enter(ended_outer));
    assert_ok(nd_scope_end(ended_outer));
    assert_int_equal(cell_total_deaths(), 6);

    // And another thread may have entered and ended it by then.
    assert_int_equal(end_beside(hand_outer_over, true), ND_ERROR_STATE);
    nd_error_clear();
    assert_int_equal(status_inside, ND_OK);
    assert_int_equal(cell_total_deaths(), 6);
    assert_null(nd_scope_get_current());
}

// --------------------------------------------------------------------------------- B7 and B24

static nd_status foreign_status;

static void *end_scope_there(void *scope) {
    foreign_status = nd_scope_end(scope);
    return NULL;
}

static void *enter_and_end_there(void *scope) {
    foreign_status = nd_scope_enter(scope);
    if (foreign_status == ND_OK && nd_scope_get_current() == scope)
        foreign_status = nd_scope_end(scope);
    return NULL;
}

static void *adopt_there(void *scope) {
    foreign_status = nd_scope_adopt(scope, cell_new(1, 0));
    return NULL;
}

static void on_another_thread(void *(*function)(void *), void *data) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, data), 0);
    pthread_join(thread, NULL);
}

static void test_B07_ending_a_scope_on_a_foreign_thread_is_an_error(void **state) {
    (void)state;
    cell_begin(2);
    nd_scope *scope = nd_scope_begin();
    assert_handle(nd_tmp(cell_new(0, 0)));
    on_another_thread(adopt_there, scope);
    assert_int_equal(foreign_status, ND_ERROR_STATE);
    assert_int_equal(nd_scope_get_size(scope), 1);
    assert_int_equal(cell_deaths(1), 1); // consumed all the same
    on_another_thread(end_scope_there, scope);
    assert_int_equal(foreign_status, ND_ERROR_STATE);
    assert_int_equal(cell_deaths(0), 0);
    on_another_thread(enter_and_end_there, scope);
    assert_int_equal(foreign_status, ND_ERROR_STATE);
    assert_int_equal(nd_scope_get_size(scope), 1);
    assert_ptr_equal(nd_scope_get_current(), scope);
    assert_ok(nd_scope_end(scope));
    assert_int_equal(cell_deaths(0), 1);
}

static void test_B07_handed_over_scope_ends_on_its_new_thread(void **state) {
    (void)state;
    cell_begin(2);
    nd_scope *stays = nd_scope_begin();
    nd_scope *leaves = nd_scope_begin();
    assert_handle(nd_tmp(cell_new(0, 0)));
    assert_ok(nd_scope_leave(leaves));
    assert_ptr_equal(nd_scope_get_current(), stays);
    assert_ok(nd_scope_adopt(leaves, cell_new(1, 0)));
    on_another_thread(enter_and_end_there, leaves);
    assert_int_equal(foreign_status, ND_OK);
    assert_int_equal(cell_total_deaths(), 2);
    assert_ok(nd_scope_end(stays));
}

static void test_B07_only_the_innermost_scope_can_be_detached(void **state) {
    (void)state;
    nd_scope *outer = nd_scope_begin();
    nd_scope *inner = nd_scope_begin();
    assert_int_equal(nd_scope_leave(outer), ND_ERROR_STATE);
    assert_ptr_equal(nd_scope_get_current(), inner);
    assert_ok(nd_scope_leave(inner));
    assert_int_equal(nd_scope_leave(inner), ND_ERROR_STATE);
    assert_ok(nd_scope_enter(inner));
    assert_ok(nd_scope_end(outer));
}

static void *leave_a_scope_open(void *data) {
    (void)data;
    if (nd_scope_begin() && nd_tmp(cell_new(0, 0)))
        foreign_status = ND_OK;
    return NULL;
}

static void test_B07_thread_that_exits_ends_its_scopes(void **state) {
    (void)state;
    cell_begin(1);
    foreign_status = ND_ERROR_STATE;
    on_another_thread(leave_a_scope_open, NULL);
    assert_ok(foreign_status);
    assert_int_equal(cell_deaths(0), 1);
}

typedef struct hand_over {
    nd_scope *scope;
    nd_object *handle;
    const nd_object *borrowed;
} hand_over;

static void *produce(void *data) {
    hand_over *h = data;
    h->scope = nd_scope_begin();
    h->borrowed = nd_tmp(cell_new(0, 1));
    h->handle = cell_new(1, 0);
    cell_link((nd_object *)(uintptr_t)h->borrowed, 0, h->handle);
    nd_scope_leave(h->scope);
    return NULL;
}

static void test_B24_producer_creates_hands_over_and_leaves(void **state) {
    (void)state;
    cell_begin(2);
    hand_over h = {0};
    on_another_thread(produce, &h);
    assert_int_equal(nd_get_count(h.handle), 2);
    assert_int_equal(nd_get_count(h.borrowed), 1);
    assert_ok(nd_scope_enter(h.scope));
    assert_int_equal(cell_of(h.borrowed)->number, 0);
    nd_release(h.handle);
    assert_int_equal(cell_total_deaths(), 0);
    assert_ok(nd_scope_end(h.scope));
    assert_int_equal(cell_total_deaths(), 2);
}

static void test_tmp_without_a_scope_releases_and_says_so(void **state) {
    (void)state;
    cell_begin(2);
    assert_null(nd_tmp(cell_new(0, 0)));
    assert_int_equal(nd_error_get_status(), ND_ERROR_STATE);
    assert_int_equal(cell_deaths(0), 1);
    nd_object *held = cell_new(1, 0);
    nd_error_clear();
    assert_int_equal(nd_scope_move_out(held), ND_ERROR_STATE);
    ND_SCOPE {
        assert_int_equal(nd_scope_move_out(held), ND_ERROR_STATE);
        const nd_object *only = nd_tmp(nd_retain(held));
        assert_int_equal(nd_scope_move_out(only), ND_ERROR_STATE);
        assert_int_equal(nd_scope_get_size(nd_scope_get_current()), 1);
    }
    assert_int_equal(nd_get_count(held), 1);
    nd_release(held);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B01_inner_temporary_dies_with_inner_scope),
        ND_TEST(test_B01_kept_by_retain_outlives_every_scope),
        ND_TEST(test_B02_resource_behaves_as_a_temporary),
        ND_TEST(test_B03_object_adopted_by_an_outer_scope_lives_as_long_as_that_one),
        ND_TEST(test_B04_members_of_a_list_survive_a_move_out),
        ND_TEST(test_B04_members_of_a_map_survive_a_move_out),
        ND_TEST(test_B04_members_of_a_user_struct_survive_a_move_out),
        ND_TEST(test_B05_early_release_inside_a_scope),
        ND_TEST(test_B05_early_close_inside_a_scope),
        ND_TEST(test_B06_return_break_goto_and_error_release_everything),
        ND_TEST(test_B06_last_in_first_out),
        ND_TEST(test_B06_ending_an_outer_scope_ends_those_inside_first),
        ND_TEST(test_B06_destructor_may_use_scopes),
        ND_TEST(test_B06_destructor_may_end_scopes_that_are_being_ended),
        ND_TEST(test_B06_destructor_may_leave_a_scope_that_is_about_to_end),
        ND_TEST(test_B07_ending_a_scope_on_a_foreign_thread_is_an_error),
        ND_TEST(test_B07_handed_over_scope_ends_on_its_new_thread),
        ND_TEST(test_B07_only_the_innermost_scope_can_be_detached),
        ND_TEST(test_B07_thread_that_exits_ends_its_scopes),
        ND_TEST(test_B24_producer_creates_hands_over_and_leaves),
        ND_TEST(test_tmp_without_a_scope_releases_and_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
