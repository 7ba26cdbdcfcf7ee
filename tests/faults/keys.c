// A process in which the keys for thread-specific data are used up before the library begins (and
// one in which they are not, KEYS_LEFT), and keys whose destructors use the library last of all.
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>

#ifndef KEYS_LEFT
#define KEYS_LEFT 0
#endif

enum { KEYS_MAX = 4096, THREADS = 8 };
static pthread_key_t keys[KEYS_MAX];
static int key_count;
static atomic_int wrong; ///< values of keys that are not what was set

static void look_at_value(void *value) {
    wrong += value != &keys;
}

/// Before the library's own.
__attribute__((constructor(101))) static void use_keys_up(void) {
    free(malloc(1)); // an allocator may want one
    while (key_count < KEYS_MAX && pthread_key_create(&keys[key_count], look_at_value) == 0)
        key_count++;
    for (int i = 0; i < KEYS_LEFT; i++)
        pthread_key_delete(keys[--key_count]);
}

static void *use(void *data) {
    nd_release(cell_new(0, 0));
    cell_drop_ring(1, 3);
    return data;
}

static void run(void *(*function)(void *)) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, function, NULL), 0);
    pthread_join(thread, NULL);
}

static void *use_beside_other_keys(void *data) {
    for (int i = 0; i < key_count; i++)
        pthread_setspecific(keys[i], &keys);
    use(data);
    for (int i = 0; i < key_count; i++)
        wrong += pthread_getspecific(keys[i]) != &keys;
    return data;
}

static void test_F33_no_key_is_left(void **state) {
    (void)state;
    cell_begin(4);
    for (int i = 0; i < THREADS; i++)
        run(use_beside_other_keys);
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_int_equal(wrong, 0);
    assert_int_equal(cell_total_deaths(), THREADS * 4);
}

enum { TURNS = 40000 / ND_TEST_SCALE };

static void *write_edges(void *data) {
    for (int i = 0; i < TURNS; i++)
        use(data);
    return data;
}

static void test_F33_edges_written_beside_collections_without_a_key(void **state) {
    (void)state;
    cell_begin(4);
    pthread_t writers[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_edges, NULL), 0);
    for (int i = 0; i < 200; i++)
        assert_ok(nd_gc_collect(NULL, NULL));
    for (int i = 0; i < 2; i++)
        pthread_join(writers[i], NULL);
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_int_equal(cell_total_deaths(), 2 * TURNS * 4);
}

// -------------------------------------------------------- destructors of other keys that come last

static pthread_key_t other;
static _Thread_local int rounds;

static void use_in_every_round(void *data) {
    use(NULL);
    if (++rounds < 4) // as many as POSIX promises
        pthread_setspecific(other, data);
}

static void *leave_it_to_a_destructor(void *data) {
    use(NULL);
    pthread_setspecific(other, &other);
    return data;
}

/// A key with this destructor, in the place of one that was used up.
static void begin_other(void (*destructor)(void *)) {
    pthread_key_delete(keys[--key_count]);
    assert_int_equal(pthread_key_create(&other, destructor), 0);
}

static void end_other(void) {
    pthread_key_delete(other);
    assert_int_equal(pthread_key_create(&keys[key_count++], look_at_value), 0);
}

static void test_F33_destructors_of_other_keys_use_the_library_last(void **state) {
    (void)state;
    cell_begin(4);
    begin_other(use_in_every_round);
    for (int i = 0; i < THREADS; i++)
        run(leave_it_to_a_destructor);
    assert_ok(nd_gc_collect(NULL, NULL));
    end_other();
    assert_int_equal(cell_total_deaths(), THREADS * 5 * 4);
}

#if KEYS_LEFT
static void leave_scope_open(void *data) {
    (void)data;
    nd_scope_begin();
    nd_tmp(cell_new(0, 0));
}

static void *leave_scopes_open(void *data) {
    nd_scope_begin();
    nd_tmp(cell_new(1, 0));
    pthread_setspecific(other, &other);
    return data;
}

/// Also one that was opened after those of the thread had been ended for it.
static void test_F33_scopes_that_destructors_leave_open(void **state) {
    (void)state;
    cell_begin(4);
    begin_other(leave_scope_open);
    run(leave_scopes_open);
    end_other();
    assert_int_equal(cell_deaths(0), 1);
    assert_int_equal(cell_deaths(1), 1);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F33_no_key_is_left),
        ND_TEST(test_F33_edges_written_beside_collections_without_a_key),
        ND_TEST(test_F33_destructors_of_other_keys_use_the_library_last),
#if KEYS_LEFT
        ND_TEST(test_F33_scopes_that_destructors_leave_open),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
