// What every writer of files does where the kernel answers by a signal: a file that may not grow,
// a pipe whose reader leaves. Each is an error, and the program's signals are as they were. What
// every reader does with a file whose size is not that of its content. The language of what the system
// says of a file.
#include "tests/unit/io/files.h"
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

typedef struct content {
    nd_tensor *numbers; ///< [1000, 100] of f32
    nd_tensor *picture; ///< [800, 800, 3] of u8, noise
} content;

static nd_status save_safetensors(const content *content, const char *path) {
    return nd_save_safetensors(path, 1, (const char *const[]){"x"},
                               (const nd_tensor *const[]){content->numbers});
}

static nd_status save_npy(const content *content, const char *path) {
    return nd_save_npy(path, content->numbers);
}

static nd_status save_npz(const content *content, const char *path) {
    return nd_save_npz(path, 1, (const char *const[]){"x"},
                       (const nd_tensor *const[]){content->numbers}, NULL);
}

static nd_status save_csv(const content *content, const char *path) {
    return nd_save_csv(path, content->numbers, NULL);
}

static nd_status save_png(const content *content, const char *path) {
    return nd_save_png(path, content->picture, NULL);
}

static nd_status save_jpeg(const content *content, const char *path) {
    return nd_save_jpeg(path, content->picture, NULL);
}

static nd_status save_state(const content *content, const char *path) {
    nd_auto nd_state *state = nd_state_new();
    assert_ok(nd_state_add_tensor(state, "x", content->numbers));
    return nd_save_state(state, path);
}

static const struct {
    const char *name;
    nd_status (*save)(const content *content, const char *path);
} writers[] = {
    {"safetensors", save_safetensors},
    {"npy", save_npy},
    {"npz", save_npz},
    {"csv", save_csv},
    {"png", save_png},
    {"jpeg", save_jpeg},
    {"state", save_state},
};
enum { WRITERS = sizeof writers / sizeof writers[0] };

static content make_content(void) {
    content made;
    made.numbers = nd_randn(nd_key_new(1), ND_SHAPE(1000, 100), ND_F32);
    made.picture = nd_randint(nd_key_new(2), 0, 256, ND_SHAPE(800, 800, 3), ND_U8);
    assert_handle(made.numbers);
    assert_handle(made.picture);
    return made;
}

static void drop_content(content *content) {
    nd_release(content->numbers);
    nd_release(content->picture);
}

/// What a write that fails must leave: no file but the old one, which is as it was.
static void assert_only_old(const char *folder, const char *path) {
    assert_int_equal(nd_test_count_files(folder), 3);
    size_t bytes;
    char *text = nd_test_read(path, &bytes);
    assert_string_equal(text, "old");
    free(text);
}

static void test_F24_a_file_that_may_not_grow_is_an_error(void **state) {
    (void)state;
    content content = make_content();
    char folder[512], path[600], second[600];
    snprintf(folder, sizeof folder, "%s", nd_test_path("limit"));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(second, sizeof second, "%s.second", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    // At once, and in the middle; a file of two names is written over.
    for (rlim_t limit = 0; limit <= 4096; limit += 4096)
        for (int names = 1; names <= 2; names++)
            for (int i = 0; i < WRITERS; i++) {
                nd_test_write(path, "old", 3);
                assert_true(names == 1 || link(path, second) == 0);
                assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){limit, before.rlim_max}),
                                 0);
                nd_status status = writers[i].save(&content, path);
                assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
                assert_int_equal(status, ND_ERROR_IO);
                assert_failed(ND_ERROR_IO, "cannot be written: File too large");
                assert_only_old(folder, path);
                unlink(path);
                unlink(second);
            }
    drop_content(&content);
}

/// Reads what fits into no pipe, and leaves.
static void *read_a_little(void *path) {
    char some[100];
    int file = open(path, O_RDONLY);
    while (read(file, some, sizeof some) < 0)
        ;
    struct timespec moment = {0, 50000000};
    nanosleep(&moment, NULL); // the writer fills the pipe and waits meanwhile
    close(file);
    return NULL;
}

/// A pipe whose reader leaves in the middle of what it is given.
static nd_status save_to_pipe(int writer, const content *content) {
    const char *path = nd_test_path("left_pipe");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, read_a_little, (void *)(uintptr_t)path), 0);
    nd_status status = writers[writer].save(content, path);
    assert_int_equal(pthread_join(reader, NULL), 0);
    unlink(path);
    return status;
}

static void test_F24_a_pipe_whose_reader_leaves_is_an_error(void **state) {
    (void)state;
    content content = make_content();
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(save_to_pipe(i, &content), ND_ERROR_IO);
        assert_failed(ND_ERROR_IO, "Broken pipe");
    }
    drop_content(&content);
}

static int handled;

static void count_signal(int signal) {
    (void)signal;
    handled++;
}

static bool is_pending(int signal) {
    sigset_t pending;
    assert_int_equal(sigpending(&pending), 0);
    return sigismember(&pending, signal) == 1;
}

static bool is_blocked(int signal) {
    sigset_t mask;
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    return sigismember(&mask, signal) == 1;
}

/// The program's handler hears of nothing that the library did, and of everything that others did.
static void test_signals_of_the_program_are_as_they_were(void **state) {
    (void)state;
    content content = make_content();
    sigset_t pipe, before;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    void (*old)(int) = signal(SIGPIPE, count_signal);
    handled = 0;
    assert_int_equal(save_to_pipe(1, &content), ND_ERROR_IO);
    assert_int_equal(handled, 0);
    assert_false(is_blocked(SIGPIPE));
    assert_false(is_blocked(SIGXFSZ));
    // Blocked by the program: it stays so, and nothing is pending that was not.
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &pipe, &before), 0);
    assert_int_equal(save_to_pipe(1, &content), ND_ERROR_IO);
    assert_true(is_blocked(SIGPIPE));
    assert_false(is_blocked(SIGXFSZ));
    assert_false(is_pending(SIGPIPE));
    raise(SIGPIPE);
    assert_int_equal(save_to_pipe(1, &content), ND_ERROR_IO);
    assert_true(is_pending(SIGPIPE));
    assert_int_equal(save_npy(&content, nd_test_path("fine.npy")), ND_OK);
    assert_true(is_pending(SIGPIPE));
    assert_int_equal(handled, 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(handled, 1);
    // Ignored by the program: still so.
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(save_to_pipe(1, &content), ND_ERROR_IO);
    assert_true(signal(SIGPIPE, old) == SIG_IGN);
    nd_error_clear();
    drop_content(&content);
}

static nd_object *load_csv(const char *path) {
    return (nd_object *)nd_load_csv(path, ND_F64, NULL);
}

static nd_object *load_npy(const char *path) {
    return (nd_object *)nd_load_npy(path, NULL);
}

static nd_object *load_npz(const char *path) {
    return (nd_object *)nd_load_npz(path);
}

static nd_object *load_safetensors(const char *path) {
    return (nd_object *)nd_load_safetensors(path);
}

static nd_object *load_index(const char *path) {
    return (nd_object *)nd_load_safetensors_index(path, NULL);
}

static nd_object *load_idx(const char *path) {
    return (nd_object *)nd_load_idx(path);
}

static nd_object *load_gguf(const char *path) {
    return (nd_object *)nd_gguf_open(path);
}

static nd_object *load_image(const char *path) {
    return (nd_object *)nd_load_image(path, NULL);
}

static nd_object *(*const readers[])(const char *path) = {
    load_csv, load_npy, load_npz, load_safetensors, load_index, load_idx, load_gguf, load_image,
};
enum { READERS = sizeof readers / sizeof readers[0] };

/// Its content is made when it is read, and its size is 0 or that of a page.
static void test_F24_a_file_that_does_not_know_its_size_is_refused(void **state) {
    (void)state;
    for (int i = 0; i < READERS; i++) {
        assert_null(readers[i]("/proc/self/stat"));
        assert_failed(ND_ERROR_IO, "'/proc/self/stat' has content, and size 0");
    }
    static const char of_sys[] = "/sys/devices/system/cpu/online";
    struct stat stat_of_sys;
    if (stat(of_sys, &stat_of_sys) != 0 || stat_of_sys.st_size == 0) {
        printf("SKIPPED: no %s\n", of_sys);
    } else {
        assert_null(nd_load_csv(of_sys, ND_F64, NULL));
        assert_failed(ND_ERROR_IO, "has less than it says");
    }
    // An empty one is empty.
    const char *path = nd_test_path("empty.csv");
    nd_test_write(path, "", 0);
    nd_auto nd_tensor *empty = nd_load_csv(path, ND_F64, NULL);
    assert_handle(empty);
    assert_int_equal(nd_get_numel(empty), 0);
}

/// Processes that were killed while they wrote have left their temporary files, and one of them had
/// the number of this process.
static void test_temporary_files_of_others_are_no_hindrance(void **state) {
    (void)state;
    enum { LEFT = 2000 };
    char folder[512], path[600], left[600];
    snprintf(folder, sizeof folder, "%s", nd_test_path("left"));
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(mkdir(folder, 0700), 0);
    for (int i = 0; i < LEFT; i++) {
        snprintf(left, sizeof left, "%s/.nd-%ld-%d.tmp", folder, (long)getpid(), i);
        nd_test_write(left, "left", 4);
    }
    content content = make_content();
    for (int i = 0; i < WRITERS; i++) {
        assert_ok(writers[i].save(&content, path));
        assert_int_equal(nd_test_count_files(folder), LEFT + 3);
        assert_int_equal(unlink(path), 0);
    }
    for (int i = 0; i < LEFT; i++) {
        snprintf(left, sizeof left, "%s/.nd-%ld-%d.tmp", folder, (long)getpid(), i);
        size_t bytes;
        char *text = nd_test_read(left, &bytes);
        assert_string_equal(text, "left");
        free(text);
    }
    drop_content(&content);
}

/// It is the temporary file that cannot be created, which the message names beside the target.
static void test_messages_name_the_temporary_file(void **state) {
    (void)state;
    content content = make_content();
    char path[512], expected[600];
    snprintf(path, sizeof path, "%s", nd_test_path("none/file"));
    for (int i = 0; i < WRITERS; i++) {
        assert_int_equal(writers[i].save(&content, path), ND_ERROR_IO);
        snprintf(expected, sizeof expected, ": '%s' cannot be written: '.nd-%ld-", path,
                 (long)getpid());
        assert_non_null(strstr(nd_error_get_message(), expected));
        assert_failed(ND_ERROR_IO, ".tmp' beside it cannot be created: No such file or directory");
    }
    drop_content(&content);
}

/// The system's own words are of the program's language, and of its encoding, which a message is not.
static void test_reasons_are_the_same_in_every_locale(void **state) {
    (void)state;
    char folder[300], command[700];
    const char *home = getenv("TEST_TMPDIR");
    snprintf(folder, sizeof folder, "%s", home ? home : "/tmp");
    snprintf(command, sizeof command, "localedef -i de_DE -f ISO-8859-1 '%s/de_DE' >/dev/null 2>&1",
             folder);
    int made = system(command); // NOLINT(cert-env33-c)
    (void)made;                 // what counts is what strerror() says
    setenv("LOCPATH", folder, 1);
    setenv("LANGUAGE", "de", 1);
    bool is_set = setlocale(LC_ALL, "de_DE") != NULL;
    bool is_translated =
        is_set && strcmp(strerror(EAGAIN), "Resource temporarily unavailable") != 0;
    nd_tensor *x = nd_load_npy("/nowhere.npy", NULL);
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    unsetenv("LANGUAGE");
    assert_null(x);
    assert_string_equal(nd_error_get_message(), "load_npy: '/nowhere.npy' cannot be opened: "
                                                "No such file or directory");
    nd_error_clear();
    if (!is_translated)
        puts("SKIPPED: the C library speaks no German here");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_temporary_files_of_others_are_no_hindrance),
        ND_TEST(test_messages_name_the_temporary_file),
        ND_TEST(test_reasons_are_the_same_in_every_locale),
        ND_TEST(test_F24_a_file_that_may_not_grow_is_an_error),
        ND_TEST(test_F24_a_pipe_whose_reader_leaves_is_an_error),
        ND_TEST(test_F24_a_file_that_does_not_know_its_size_is_refused),
        ND_TEST(test_signals_of_the_program_are_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
