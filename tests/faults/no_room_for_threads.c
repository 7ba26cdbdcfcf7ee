// Computations by several threads where there is hardly any address space left. A thread that finds
// no room for what the allocator keeps for it must not be begun; what it would have computed is
// computed by the others.
//
// Each amount of room is a child process that has begun no thread yet. Not under sanitizers, which
// take more address space than there is memory.
#include "tests/faults/address_space.h"
#include "tests/testing.h"
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 256, FEATURES = 256, THREADS = 4, PRODUCTS = 8 };
#define STEP ((uint64_t)512 << 10)
#define MOST_ROOM ((uint64_t)48 << 20)

/// What is wrong, or NULL. A product that there is no memory for says so.
static const char *multiply_in(uint64_t room) {
    nd_auto nd_tensor *left = nd_ones(ND_SHAPE(ROWS, FEATURES), ND_F32);
    nd_auto nd_tensor *right = nd_ones(ND_SHAPE(FEATURES, FEATURES), ND_F32);
    const uint64_t bytes = address_space() + room;
    const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    if (!left || !right || setrlimit(RLIMIT_AS, &limit) != 0)
        return "no limit";
    for (int i = 0; i < PRODUCTS; i++) {
        nd_auto nd_tensor *product = nd_matmul(left, right);
        if (!product && nd_error_get_status() != ND_ERROR_OUT_OF_MEMORY)
            return nd_error_get_message();
        const float *found = product ? nd_get_data(product) : NULL;
        for (int j = 0; found && j < ROWS * FEATURES; j++)
            if (found[j] != FEATURES)
                return "a product is wrong";
    }
    return NULL;
}

static void test_F03_no_room_for_threads(void **state) {
    (void)state;
    for (uint64_t room = 0; room <= MOST_ROOM; room += STEP) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            alarm(600);
            nd_set_num_threads(THREADS);
            const char *wrong = multiply_in(room);
            if (wrong)
                fprintf(stderr, "%s\n", wrong);
            _exit(wrong ? 1 : 0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("with room for %llu bytes: status %d", (unsigned long long)room, status);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_F03_no_room_for_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
