// The thread's last error: what it says, how long it lives, who changes it.
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "tests/comma.h"
#include "tests/testing.h"
#include <pthread.h>

static void test_error_is_none_at_first(void **state) {
    (void)state;
    assert_int_equal(nd_error_get_status(), ND_OK);
    assert_non_null(nd_error_get_message());
    assert_string_equal(nd_status_get_name(nd_error_get_status()), "ND_OK");
}

static void test_error_keeps_status_and_sentence_until_cleared(void **state) {
    (void)state;
    assert_int_equal(nd__error(ND_ERROR_SHAPE, "add: shapes [%d] and [%d] do not broadcast", 2, 3),
                     ND_ERROR_SHAPE);
    assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
    assert_string_equal(nd_error_get_message(), "add: shapes [2] and [3] do not broadcast");
    // A call that succeeds leaves it alone.
    nd_release(nd_list_new());
    assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
    nd__error(ND_ERROR_DTYPE, "later");
    assert_string_equal(nd_error_get_message(), "later");
    nd_error_clear();
    assert_int_equal(nd_error_get_status(), ND_OK);
    assert_null(strstr(nd_error_get_message(), "later"));
}

static void test_numbers_of_an_error_are_the_same_in_every_locale(void **state) {
    (void)state;
    if (!nd_test_comma_begin())
        return;
    nd__error(ND_ERROR_INVALID_ARGUMENT, "eps is %g", 0.5);
    nd_test_comma_end();
    assert_string_equal(nd_error_get_message(), "eps is 0.5");
    nd_error_clear();
}

static void test_error_null_keeps_the_first_error(void **state) {
    (void)state;
    assert_int_equal(nd__error_null("add", "a"), ND_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(nd_error_get_message(), "add: a is NULL"));
    nd__error(ND_ERROR_QUOTA, "the first");
    assert_int_equal(nd__error_null("mul", "b"), ND_ERROR_QUOTA);
    assert_string_equal(nd_error_get_message(), "the first");
}

static void test_error_longer_than_the_buffer_is_cut(void **state) {
    (void)state;
    char text[5000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    nd__error(ND_ERROR_IO, "%s", text);
    size_t length = strlen(nd_error_get_message());
    assert_in_range(length, 500, sizeof text - 2);
    assert_int_equal(nd_error_get_message()[length - 1], 'x');
}

static void test_error_may_quote_the_one_before(void **state) {
    (void)state;
    nd__error(ND_ERROR_IO, "no such file");
    nd__error(ND_ERROR_FORMAT, "load: %s", nd_error_get_message());
    assert_string_equal(nd_error_get_message(), "load: no such file");
}

/// What fails inside of a function that is made of others: `inside` sets an error, or none.
static void call(const char *name, void (*inside)(void)) {
    ND__ERROR_NAMED(name);
    inside();
}

static void fail_in_mul(void) {
    nd__error(ND_ERROR_DTYPE, "mul: %d%% of bool", 5);
}

static void fail_in_kron(void) {
    call("kron", fail_in_mul);
}

static void fail_nowhere(void) {
    nd__error(ND_ERROR_QUOTA, "a new tensor: does not fit");
}

static void do_nothing(void) {
}

static void fail_and_put_back(void) {
    nd_error_state before;
    nd__error_save(&before);
    fail_in_mul();
    nd__error_restore(&before);
}

static void test_an_error_is_renamed_where_it_was_set_inside(void **state) {
    (void)state;
    call("kron", fail_in_mul);
    assert_string_equal(nd_error_get_message(), "kron: 5% of bool");
    assert_int_equal(nd_error_get_status(), ND_ERROR_DTYPE);
    call("outermost", fail_in_kron);
    assert_string_equal(nd_error_get_message(), "outermost: 5% of bool");
    call("kron", fail_nowhere);
    assert_string_equal(nd_error_get_message(), "a new tensor: does not fit");
    // One from before is not touched, neither by success nor by errors that do not matter.
    nd__error(ND_ERROR_SHAPE, "add: shapes");
    call("kron", do_nothing);
    call("kron", fail_and_put_back);
    assert_string_equal(nd_error_get_message(), "add: shapes");
    assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
    nd_error_clear();
    call("kron", fail_and_put_back);
    assert_int_equal(nd_error_get_status(), ND_OK);
}

/// Bytes of a file, or a name, come into messages: what is not printable is escaped there, so that no
/// terminal or log takes it for more than text.
static void test_F48_unprintable_bytes_are_escaped(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"plain, with a \\ and '", "plain, with a \\ and '"},
        {"\x1b[31mred\x07\r\n\t\x7f", "\\x1b[31mred\\x07\\x0d\\x0a\\x09\\x7f"},
        {"caf\u00e9 \u4f60 \U0001f600", "caf\u00e9 \u4f60 \U0001f600"},
        {"\xc2\x85 \u202e \u2028 \u200b \ufeff",
         "\\xc2\\x85 \\xe2\\x80\\xae \\xe2\\x80\\xa8 \\xe2\\x80\\x8b \\xef\\xbb\\xbf"},
        {"\xff\xfe \xc3 \xc3\xa9 \xe4\xbd", "\\xff\\xfe \\xc3 \u00e9 \\xe4\\xbd"},
        {"\xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80",
         "\\xed\\xa0\\x80 \\xc0\\xaf \\xf4\\x90\\x80\\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nd__error(ND_ERROR_FORMAT, "load: '%s'", cases[i][0]);
        char expected[200];
        snprintf(expected, sizeof expected, "load: '%s'", cases[i][1]);
        assert_string_equal(nd_error_get_message(), expected);
        // What is quoted once more stays as it is.
        nd__error(ND_ERROR_FORMAT, "%s", nd_error_get_message());
        assert_string_equal(nd_error_get_message(), expected);
    }
    char text[5000];
    memset(text, 1, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    nd__error(ND_ERROR_IO, "%s", text);
    size_t length = strlen(nd_error_get_message());
    assert_in_range(length, 500, ND__MESSAGE_SIZE - 1);
    assert_string_equal(nd_error_get_message() + length - 4, "\\x01"); // none is cut
}

static bool refuse(size_t bytes) {
    (void)bytes;
    return true;
}

static void test_F06_composing_a_message_needs_no_memory(void **state) {
    (void)state;
    nd__alloc_should_fail = refuse;
    nd_list *list = nd_list_new();
    nd__alloc_should_fail = NULL;
    assert_null(list);
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(nd_error_get_message(), "list"));
}

enum { THREADS = 12 }; // more than there are messages kept for
static pthread_barrier_t all_there;

static void *fail_without_memory(void *data) {
    char wanted[32];
    snprintf(wanted, sizeof wanted, "of thread %d", *(int *)data);
    nd__error(ND_ERROR_SHAPE, "%s", wanted);
    pthread_barrier_wait(&all_there);
    bool kept = strcmp(nd_error_get_message(), wanted) == 0;
    bool right = nd_error_get_status() == ND_ERROR_SHAPE &&
                 (kept || strstr(nd_error_get_message(), "no memory"));
    nd_error_state saved;
    nd__error_save(&saved);
    nd_error_clear();
    right = right && nd_error_get_status() == ND_OK;
    nd__error_restore(&saved);
    right = right && nd_error_get_status() == ND_ERROR_SHAPE;
    *(int *)data = right ? kept : -1;
    return NULL;
}

static void test_F06_threads_without_memory_for_messages_have_a_status(void **state) {
    (void)state;
    pthread_barrier_init(&all_there, NULL, THREADS);
    for (int round = 0; round < 3; round++) { // what a thread had is there for the next ones
        pthread_t threads[THREADS];
        int numbers[THREADS], kept = 0;
        nd__alloc_should_fail = refuse;
        for (int i = 0; i < THREADS; i++) {
            numbers[i] = i;
            assert_int_equal(pthread_create(&threads[i], NULL, fail_without_memory, &numbers[i]),
                             0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_true(numbers[i] >= 0);
            kept += numbers[i];
        }
        nd__alloc_should_fail = NULL;
        assert_in_range(kept, 1, THREADS - 1);
    }
    pthread_barrier_destroy(&all_there);
}

static void *look(void *data) {
    *(nd_status *)data = nd_error_get_status();
    nd__error(ND_ERROR_DEVICE, "of the other thread");
    return NULL;
}

static void test_error_belongs_to_its_thread(void **state) {
    (void)state;
    nd__error(ND_ERROR_SHAPE, "of this thread");
    nd_status there = ND_ERROR_IO;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look, &there), 0);
    pthread_join(thread, NULL);
    assert_int_equal(there, ND_OK);
    assert_string_equal(nd_error_get_message(), "of this thread");
}

static void test_status_names_are_those_of_the_enumerators(void **state) {
    (void)state;
    static const struct {
        nd_status status;
        const char *name;
    } names[] = {
#define NAME(status) {status, #status}
        NAME(ND_OK),
        NAME(ND_ERROR_INVALID_ARGUMENT),
        NAME(ND_ERROR_SHAPE),
        NAME(ND_ERROR_DTYPE),
        NAME(ND_ERROR_DEVICE),
        NAME(ND_ERROR_OUT_OF_MEMORY),
        NAME(ND_ERROR_QUOTA),
        NAME(ND_ERROR_CLOSED),
        NAME(ND_ERROR_STATE),
        NAME(ND_ERROR_NOT_DIFFERENTIABLE),
        NAME(ND_ERROR_IO),
        NAME(ND_ERROR_FORMAT),
        NAME(ND_ERROR_UNSUPPORTED),
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_string_equal(nd_status_get_name(names[i].status), names[i].name);
    assert_non_null(nd_status_get_name((nd_status)-1));
    assert_non_null(nd_status_get_name((nd_status)1000));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_error_is_none_at_first),
        ND_TEST(test_error_keeps_status_and_sentence_until_cleared),
        ND_TEST(test_error_null_keeps_the_first_error),
        ND_TEST(test_error_longer_than_the_buffer_is_cut),
        ND_TEST(test_error_may_quote_the_one_before),
        ND_TEST(test_an_error_is_renamed_where_it_was_set_inside),
        ND_TEST(test_F48_unprintable_bytes_are_escaped),
        ND_TEST(test_F06_composing_a_message_needs_no_memory),
        ND_TEST(test_F06_threads_without_memory_for_messages_have_a_status),
        ND_TEST(test_numbers_of_an_error_are_the_same_in_every_locale),
        ND_TEST(test_error_belongs_to_its_thread),
        ND_TEST(test_status_names_are_those_of_the_enumerators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
