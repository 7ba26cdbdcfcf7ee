// The trace: what is written, that it is whole, that it stops, and what it does at a fork.
#include "tests/behaviour/cell.h"
#include "tests/comma.h"
#include "tests/unit/debug/written.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char path[64];

static const char *trace_path(void) {
    snprintf(path, sizeof path, "nd_trace_test.%d.json", (int)getpid());
    const char *folder = getenv("TEST_TMPDIR");
    static char whole[512];
    snprintf(whole, sizeof whole, "%s/%s", folder ? folder : "/tmp", path);
    return whole;
}

/// The file's text, and no file.
static char *take_file(const char *name) {
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(size + 1);
    assert_non_null(text);
    text[fread(text, 1, size, file)] = '\0';
    fclose(file);
    remove(name);
    return text;
}

/// Every line between the brackets is an object, all but the last followed by a comma.
static void assert_is_event_array(const char *text) {
    assert_memory_equal(text, "[\n", 2);
    const char *line = text + 2;
    while (*line == '{') {
        const char *end = strchr(line, '\n');
        assert_non_null(end);
        size_t length = (size_t)(end - line);
        bool comma = line[length - 1] == ',';
        assert_memory_equal(end - (comma ? 3 : 2), "}}", 2);
        assert_int_equal(comma, end[1] == '{');
        line = end + 1;
    }
    assert_string_equal(line, "]\n");
}

static void free_nothing(void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
}

static char memory[4096];

static void test_events_of_a_small_program(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(3);
    const char *name = trace_path();
    assert_ok(nd_trace_begin(name));
    nd_manager *m = nd_manager_new(NULL, "epoch \"1\"");
    nd_manager_set_gc_mode(m, ND_GC_ON);
    nd_with_manager(m) {
        cell_drop_ring(0, 2);
        nd_object *x = cell_new(2, 0);
        const nd_resource_callbacks callbacks = {
            .size = sizeof callbacks, .version = 1, .free = free_nothing};
        nd_resource *buffer = nd_resource_new("buffer", memory, sizeof memory, &callbacks);
        nd_release(x);
        nd_release(buffer);
    }
    assert_ok(nd_manager_close(m, NULL));
    nd_release(m);
    assert_ok(nd_trace_end());
    // After the end nothing is written.
    nd_release(nd_list_new());
    char *text = take_file(name);
    assert_is_event_array(text);
    assert_int_equal(occurrences(text, "\"name\":\"alloc cell\""), 3);
    assert_int_equal(occurrences(text, "\"name\":\"free cell\""), 1);
    assert_int_equal(occurrences(text, "\"name\":\"collect cell\""), 2);
    assert_int_equal(occurrences(text, "\"name\":\"alloc buffer\""), 1);
    assert_contains(text, "\"manager\":\"epoch \\\"1\\\"\",\"bytes\":4096");
    assert_int_equal(occurrences(text, "\"name\":\"live bytes cpu\""), 2);
    assert_contains(text,
                    "\"name\":\"collection of epoch \\\"1\\\"\",\"cat\":\"collection\",\"ph\":"
                    "\"X\"");
    assert_contains(text, "\"examined\":2,\"collected\":2,");
    assert_contains(text,
                    "\"name\":\"close of epoch \\\"1\\\"\",\"cat\":\"boundary\",\"ph\":\"X\"");
    assert_contains(text, "\"freed\":2,\"collected\":2,\"escaped\":0");
    assert_lacks(text, "list");
    free(text);
    cell_end();
}

/// A number with a comma in it would be two values.
static void test_a_trace_is_json_in_every_locale(void **state) {
    (void)state;
    if (!nd_test_comma_begin())
        return;
    cell_begin(2);
    const char *name = trace_path();
    assert_ok(nd_trace_begin(name));
    cell_drop_ring(0, 2);
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_ok(nd_trace_end());
    nd_test_comma_end();
    char *text = take_file(name);
    const char *number = strstr(text, "\"gate_closed_us\":");
    assert_non_null(number);
    number = strchr(number, ':') + 1;
    size_t digits = strspn(number, "0123456789");
    assert_true(digits > 0);
    assert_int_equal(number[digits], '.');
    assert_int_equal(strspn(number + digits + 1, "0123456789"), 3);
    assert_int_equal(number[digits + 4], '}');
    free(text);
    cell_end();
}

static void test_one_trace_at_a_time(void **state) {
    (void)state;
    const char *name = trace_path();
    assert_int_equal(nd_trace_end(), ND_ERROR_STATE);
    assert_ok(nd_trace_begin(name));
    assert_int_equal(nd_trace_begin(name), ND_ERROR_STATE);
    nd_release(nd_list_new());
    assert_ok(nd_trace_end());
    char *text = take_file(name);
    assert_is_event_array(text); // the second begin did not cut the first one's file
    assert_int_equal(occurrences(text, "alloc list"), 1);
    free(text);
}

static void test_files_that_do_not_work(void **state) {
    (void)state;
    assert_int_equal(nd_trace_begin("/nowhere/at/all"), ND_ERROR_IO);
    assert_contains(nd_error_get_message(), "/nowhere/at/all");
    nd_error_clear();
    assert_int_equal(nd_trace_begin(NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_ok(nd_trace_begin("/dev/full"));
    nd_release(nd_list_new());
    assert_int_equal(nd_trace_end(), ND_ERROR_IO);
    assert_contains(nd_error_get_message(), "not whole");
}

/// A file with a word in it.
static void write_word(const char *name) {
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs("word", file);
    fclose(file);
}

static void assert_refused_untouched(const char *name, const char *word_file, const char *reason) {
    assert_int_equal(nd_trace_begin(name), ND_ERROR_IO);
    assert_contains(nd_error_get_message(), reason);
    nd_error_clear();
    char *text = take_file(word_file);
    assert_string_equal(text, "word");
    free(text);
}

static void test_F36_a_link_does_not_say_which_file_is_emptied(void **state) {
    (void)state;
    char victim[600];
    const char *name = trace_path();
    snprintf(victim, sizeof victim, "%s.victim", name);
    write_word(victim);
    assert_int_equal(symlink(victim, name), 0);
    assert_refused_untouched(name, victim, "symbolic link");
    assert_int_equal(nd_trace_begin(name), ND_ERROR_IO); // nor is a file made where it points to
    assert_int_equal(access(victim, F_OK), -1);
    nd_error_clear();
    unlink(name);
    write_word(victim);
    assert_int_equal(link(victim, name), 0);
    assert_refused_untouched(name, victim, "several names");
    unlink(name);
    assert_int_equal(nd_trace_begin("/"), ND_ERROR_IO);
    nd_error_clear();
    // What the file held before is gone, however long it was.
    write_word(name);
    assert_ok(nd_trace_begin(name));
    assert_ok(nd_trace_end());
    char *text = take_file(name);
    assert_is_event_array(text);
    free(text);
}

static void test_a_trace_goes_on_where_standard_error_stands(void **state) {
    (void)state;
    const char *name = trace_path();
    write_word(name);
    int kept = dup(STDERR_FILENO), file = open(name, O_WRONLY | O_APPEND);
    assert_true(kept >= 0 && file >= 0);
    dup2(file, STDERR_FILENO);
    nd_status status = nd_trace_begin("/dev/stderr");
    nd_status ended = status == ND_OK ? nd_trace_end() : status;
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(file);
    assert_int_equal(ended, ND_OK);
    char *text = take_file(name);
    assert_memory_equal(text, "word", 4);
    assert_is_event_array(text + 4);
    free(text);
}

static void test_a_trace_through_pipes(void **state) {
    (void)state;
    const char *name = trace_path();
    assert_int_equal(mkfifo(name, 0600), 0);
    assert_int_equal(nd_trace_begin(name), ND_ERROR_IO);
    assert_contains(nd_error_get_message(), "nobody reads");
    nd_error_clear();
    int reader = open(name, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    assert_ok(nd_trace_begin(name));
    nd_release(nd_list_new());
    assert_ok(nd_trace_end());
    static char text[4096];
    ssize_t size = read(reader, text, sizeof text - 1);
    assert_true(size > 0);
    text[size] = '\0';
    assert_is_event_array(text);
    // A reader that leaves costs the trace, and not the program its life.
    assert_ok(nd_trace_begin(name));
    close(reader);
    assert_int_equal(nd_trace_end(), ND_ERROR_IO);
    nd_error_clear();
    unlink(name);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    char descriptor[32];
    snprintf(descriptor, sizeof descriptor, "/dev/fd/%d", ends[1]);
    assert_ok(nd_trace_begin(descriptor));
    close(ends[1]);
    assert_ok(nd_trace_end());
    size = read(ends[0], text, sizeof text - 1);
    assert_true(size > 0);
    text[size] = '\0';
    assert_is_event_array(text);
    close(ends[0]);
    assert_int_equal(nd_trace_begin(descriptor), ND_ERROR_IO);
    nd_error_clear();
}

static void *read_a_little(void *data) {
    char some[100];
    int file = *(const int *)data; // which does not wait
    while (read(file, some, sizeof some) < 0)
        ;
    struct timespec moment = {0, 50000000};
    nanosleep(&moment, NULL); // the trace fills the pipe and waits meanwhile
    close(file);
    return NULL;
}

/// The write that it leaves has written a part, which is no failure, and has raised SIGPIPE.
static void test_a_reader_that_leaves_in_the_middle_of_a_write(void **state) {
    (void)state;
    const char *name = trace_path();
    assert_int_equal(mkfifo(name, 0600), 0);
    int file = open(name, O_RDONLY | O_NONBLOCK);
    assert_true(file >= 0);
    assert_ok(nd_trace_begin(name));
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, read_a_little, &file), 0);
    for (int i = 0; i < 400; i++) // more than fits a pipe, less than the buffer
        nd_release(nd_list_new());
    assert_int_equal(nd_trace_end(), ND_ERROR_IO);
    assert_contains(nd_error_get_message(), "Broken pipe");
    nd_error_clear();
    pthread_join(reader, NULL);
    unlink(name);
}

static void test_a_trace_that_may_not_grow(void **state) {
    (void)state;
    const char *name = trace_path();
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_ok(nd_trace_begin(name));
    for (int i = 0; i < 100; i++)
        nd_release(nd_list_new());
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, before.rlim_max}), 0);
    nd_status status = nd_trace_end();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, ND_ERROR_IO);
    assert_contains(nd_error_get_message(), "not whole: File too large");
    nd_error_clear();
    char *text = take_file(name);
    assert_int_equal(strlen(text), 1000);
    free(text);
}

enum { THREADS = 4, EACH = 3000 / ND_TEST_SCALE };

static void *make_and_drop(void *data) {
    (void)data;
    for (int i = 0; i < EACH; i++)
        nd_release(nd_list_new());
    return NULL;
}

static void test_threads_write_whole_lines(void **state) {
    (void)state;
    const char *name = trace_path();
    assert_ok(nd_trace_begin(name));
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_drop, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_ok(nd_trace_end());
    char *text = take_file(name); // larger than the buffer
    assert_is_event_array(text);
    assert_int_equal(occurrences(text, "alloc list"), THREADS * EACH);
    assert_int_equal(occurrences(text, "free list"), THREADS * EACH);
    free(text);
}

static void test_ends_while_threads_go_on(void **state) {
    (void)state;
    const char *name = trace_path();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_drop, NULL), 0);
    for (int i = 0; i < 5; i++) {
        assert_ok(nd_trace_begin(name));
        nd_release(nd_list_new());
        assert_ok(nd_trace_end());
        char *text = take_file(name);
        assert_is_event_array(text);
        free(text);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void test_a_child_leaves_its_parents_trace_alone(void **state) {
    (void)state;
    const char *name = trace_path();
    assert_ok(nd_trace_begin(name));
    nd_release(nd_list_new());
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        nd_release(nd_list_new());
        _exit(nd_trace_end() == ND_ERROR_STATE ? 0 : 1);
    }
    int result = 0;
    waitpid(child, &result, 0);
    assert_int_equal(result, 0);
    assert_ok(nd_trace_end());
    char *text = take_file(name);
    assert_is_event_array(text);
    assert_int_equal(occurrences(text, "alloc list"), 1);
    free(text);
}

/// A program that is told by its environment, and ends without ending the trace itself.
static void test_environment_begins_and_exit_ends(void **state) {
    (void)state;
    const char *name = trace_path();
    char self[512];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("ND_TRACE", name, 1);
        execl(self, self, "make one list", (char *)NULL);
        _exit(127);
    }
    int result = 0;
    waitpid(child, &result, 0);
    assert_int_equal(result, 0);
    char *text = take_file(name);
    assert_is_event_array(text);
    assert_int_equal(occurrences(text, "alloc list"), 1);
    assert_contains(text, "end of trace");
    free(text);
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "make one list") == 0) {
        nd_release(nd_list_new());
        return 0;
    }
    const struct CMUnitTest tests[] = {
        ND_TEST(test_events_of_a_small_program),
        ND_TEST(test_a_trace_is_json_in_every_locale),
        ND_TEST(test_one_trace_at_a_time),
        ND_TEST(test_files_that_do_not_work),
        ND_TEST(test_F36_a_link_does_not_say_which_file_is_emptied),
        ND_TEST(test_a_trace_goes_on_where_standard_error_stands),
        ND_TEST(test_a_trace_through_pipes),
        ND_TEST(test_a_reader_that_leaves_in_the_middle_of_a_write),
        ND_TEST(test_a_trace_that_may_not_grow),
        ND_TEST(test_threads_write_whole_lines),
        ND_TEST(test_ends_while_threads_go_on),
        ND_TEST(test_a_child_leaves_its_parents_trace_alone),
        ND_TEST(test_environment_begins_and_exit_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
