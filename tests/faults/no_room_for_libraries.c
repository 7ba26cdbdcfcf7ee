// Libraries of others that are first wanted while address space or file descriptors are short: the
// call says that memory is wanting, and when there is room again it finds the library. Each amount
// of room is a child process that has opened none of them. Not under sanitizers, which take more
// address space than there is memory.
#include "tests/faults/address_space.h"
#include "tests/testing.h"
#include <fcntl.h>
#include <nd/fft.h>
#include <nd/image.h>
#include <nd/linalg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static nd_tensor *invert(void) {
    nd_auto nd_tensor *x = nd_eye(3, ND_F64);
    return nd_pinv(x, -1);
}

static nd_tensor *transform(void) {
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4), ND_F64);
    return nd_rfft(x, 0, 0, ND_FFT_NORM_BACKWARD);
}

static nd_tensor *transform_f32(void) {
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4), ND_F32);
    return nd_rfft(x, 0, 0, ND_FFT_NORM_BACKWARD);
}

static nd_tensor *encode_png(void) {
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(8, 8, 3), ND_U8);
    return nd_encode_png(x, NULL);
}

static nd_tensor *encode_jpeg(void) {
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(8, 8, 3), ND_U8);
    return nd_encode_jpeg(x, NULL);
}

static nd_tensor *(*const calls[])(void) = {invert, transform, transform_f32, encode_png,
                                            encode_jpeg};
enum { CALLS = sizeof calls / sizeof *calls };

/// Bit k: call k works with all the room there is.
static unsigned working(void) {
    unsigned bits = 0;
    for (int k = 0; k < CALLS; k++) {
        nd_tensor *made = calls[k]();
        if (made)
            bits |= 1u << k;
        nd_release(made);
    }
    nd_error_clear();
    return bits;
}

/// Calls of what works elsewhere: each works here, or says that memory is wanting.
static void call_all(unsigned works, bool is_short) {
    for (int k = 0; k < CALLS; k++) {
        nd_tensor *made = works >> k & 1u ? calls[k]() : NULL;
        if (works >> k & 1u && !made &&
            !(is_short && nd_error_get_status() == ND_ERROR_OUT_OF_MEMORY)) {
            fprintf(stderr, "call %d, %s: %s\n", k, is_short ? "short of room" : "with room again",
                    nd_error_get_message());
            _exit(1);
        }
        nd_release(made);
    }
    nd_error_clear();
}

static void without_space(unsigned works, uint64_t room) {
    struct rlimit before, limit;
    nd_release(nd_add(NULL, NULL)); // the thread has its memory for messages
    getrlimit(RLIMIT_AS, &before);
    limit = before;
    limit.rlim_cur = address_space() + room;
    setrlimit(RLIMIT_AS, &limit);
    call_all(works, true);
    setrlimit(RLIMIT_AS, &before);
    call_all(works, false);
}

static void without_descriptors(unsigned works, uint64_t left) {
    enum { MOST = 64 };
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){MOST, MOST});
    int first = -1, last = -1, file;
    while ((file = open("/dev/null", O_RDONLY)) >= 0) {
        first = first < 0 ? file : first;
        last = file;
    }
    for (uint64_t i = 0; i < left; i++)
        close(last--);
    call_all(works, true);
    while (last >= first)
        close(last--);
    call_all(works, false);
}

static void run_in_child(void (*program)(unsigned works, uint64_t room), unsigned works,
                         uint64_t room) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(300);
        nd_set_num_threads(1);
        program(works, room);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("with room for %llu: status %d", (unsigned long long)room, status);
}

/// In a child, because this process must not have opened them.
static unsigned ask_what_works(void) {
    pid_t child = fork();
    if (child == 0)
        _exit((int)working());
    int status = -1;
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    return (unsigned)WEXITSTATUS(status);
}

static void test_F03_libraries_first_wanted_without_address_space(void **state) {
    (void)state;
    const uint64_t step = (uint64_t)64 << 10, most = (uint64_t)12 << 20;
    unsigned works = ask_what_works();
    for (uint64_t room = 0; room <= most; room += step)
        run_in_child(without_space, works, room);
}

static void test_F03_libraries_first_wanted_without_descriptors(void **state) {
    (void)state;
    unsigned works = ask_what_works();
    for (uint64_t left = 0; left <= 3; left++)
        run_in_child(without_descriptors, works, left);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F03_libraries_first_wanted_without_address_space),
        ND_TEST(test_F03_libraries_first_wanted_without_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
