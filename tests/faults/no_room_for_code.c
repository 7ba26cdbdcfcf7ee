// Products and convolutions where there is hardly any address space left. oneDNN generates code for
// each kind of them when it first meets it, and writes that code also where the system has given it
// no memory: it must not be asked then. What is computed without it is right, and when there is
// memory again oneDNN is asked again.
//
// Each amount of room is a child process in which nothing has been computed yet. Not under
// sanitizers, which take more address space than there is memory.
#include "tests/faults/address_space.h"
#include "tests/testing.h"
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    IMAGES = 2,
    CHANNELS = 16,
    SIDE = 24,
    FEATURES = 64,
    RESULTS = IMAGES * CHANNELS * SIDE * SIDE
};
#define STEP ((uint64_t)256 << 10)
#define MOST_ROOM ((uint64_t)24 << 20)

/// Of a convolution with all the room there is: made by the first child, seen by all.
static float *expected;

typedef struct operands {
    nd_tensor *images, *windows, *left, *right;
} operands;

static operands make_operands(void) {
    nd_key key = nd_key_new(3);
    return (operands){
        nd_randn(nd_key_fold(key, 0), ND_SHAPE(IMAGES, CHANNELS, SIDE, SIDE), ND_F32),
        nd_randn(nd_key_fold(key, 1), ND_SHAPE(CHANNELS, CHANNELS, 3, 3), ND_F32),
        nd_ones(ND_SHAPE(FEATURES, FEATURES), ND_F32),
        nd_ones(ND_SHAPE(FEATURES, FEATURES), ND_F32),
    };
}

static nd_tensor *convolve(const operands *o) {
    nd_conv2d_options options = ND_CONV2D_OPTIONS_INIT;
    options.padding[0] = options.padding[1] = 1;
    return nd_conv2d(o->images, o->windows, NULL, &options);
}

static nd_status limit_to(uint64_t bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0)
        return ND_ERROR_STATE;
    limit.rlim_cur = bytes;
    return setrlimit(RLIMIT_AS, &limit) == 0 ? ND_OK : ND_ERROR_STATE;
}

/// What is not right with a result; one that there was no memory for is.
static const char *examine(const nd_tensor *result, const float *values, float tolerance) {
    if (!result)
        return nd_error_get_status() == ND_ERROR_OUT_OF_MEMORY ? NULL : nd_error_get_message();
    const float *found = nd_get_data(result);
    for (int64_t i = 0; i < nd_get_numel(result); i++)
        if (!(fabsf(found[i] - (values ? values[i] : FEATURES)) <= tolerance))
            return "a result is wrong";
    return NULL;
}

static const char *compute_in(uint64_t room) {
    operands o = make_operands();
    if (!o.images || !o.windows || !o.left || !o.right)
        return nd_error_get_message();
    if (limit_to(address_space() + room) != ND_OK)
        return "no limit";
    nd_tensor *product = nd_matmul(o.left, o.right);
    const char *wrong = examine(product, NULL, 0);
    nd_tensor *convolved = convolve(&o);
    wrong = wrong ? wrong : examine(convolved, expected, 1e-4F);
    limit_to(RLIM_INFINITY);
    nd_error_clear();
    nd_tensor *again = convolve(&o);
    wrong = wrong ? wrong : again ? examine(again, expected, 0) : nd_error_get_message();
    nd_release(product);
    nd_release(convolved);
    nd_release(again);
    nd_release(o.images);
    nd_release(o.windows);
    nd_release(o.left);
    nd_release(o.right);
    return wrong;
}

static const char *compute_expected(uint64_t room) {
    (void)room;
    operands o = make_operands();
    nd_tensor *convolved = convolve(&o);
    return nd_copy_to_host(convolved, expected, RESULTS * sizeof(float)) == ND_OK
               ? NULL
               : nd_error_get_message();
}

/// A long row, and a short one in the middle of long paddings: oneDNN makes code for each place.
static const char *compute_long_rows(uint64_t room) {
    static const int64_t sizes[] = {100000, 6}, paddings[] = {2, 50000};
    nd_tensor *windows = nd_ones(ND_SHAPE(4, 4, 3), ND_F32);
    nd_tensor *rows[] = {nd_ones(ND_SHAPE(1, 4, sizes[0]), ND_F32),
                         nd_ones(ND_SHAPE(1, 4, sizes[1]), ND_F32)};
    if (!windows || !rows[0] || !rows[1] || limit_to(address_space() + room) != ND_OK)
        return "no limit";
    const char *wrong = NULL;
    for (int k = 0; k < 2 && !wrong; k++) {
        nd_conv1d_options options = ND_CONV1D_OPTIONS_INIT;
        options.padding = paddings[k];
        nd_tensor *y = nd_conv1d(rows[k], windows, NULL, &options);
        if (!y && nd_error_get_status() != ND_ERROR_OUT_OF_MEMORY)
            wrong = nd_error_get_message();
        if (y && ((const float *)nd_get_data(y))[paddings[k]] != 12)
            wrong = "a result is wrong";
        nd_release(y);
    }
    limit_to(RLIM_INFINITY);
    nd_release(windows);
    nd_release(rows[0]);
    nd_release(rows[1]);
    return wrong;
}

static void run_in_child(const char *(*program)(uint64_t room), uint64_t room) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(600);
        nd_set_num_threads(1);
        const char *wrong = program(room);
        if (wrong)
            fprintf(stderr, "%s\n", wrong);
        _exit(wrong ? 1 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("with room for %llu bytes: status %d", (unsigned long long)room, status);
}

static void test_F03_no_room_for_generated_code(void **state) {
    (void)state;
    expected = mmap(NULL, RESULTS * sizeof(float), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(expected != MAP_FAILED);
    run_in_child(compute_expected, 0);
    for (uint64_t room = 0; room <= MOST_ROOM; room += STEP)
        run_in_child(compute_in, room);
    munmap(expected, RESULTS * sizeof(float));
}

static void test_F03_no_room_for_the_code_of_long_rows(void **state) {
    (void)state;
    for (uint64_t room = 8; room <= 4096; room += room < 128 ? 8 : 128)
        run_in_child(compute_long_rows, room << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F03_no_room_for_generated_code),
        ND_TEST(test_F03_no_room_for_the_code_of_long_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
