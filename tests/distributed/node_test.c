// Ranks of one machine, which have memory in common: what goes through it is what goes through MPI,
// bit by bit where both add up in a ring; a rank without it is no worse off; and nothing of it is
// left, in this process or a forked one.
#include "lib/distributed/mpi_data.h"
#include "lib/distributed/node.h"
#include "tests/distributed/ranks.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if ND_HAVE_MPI
#include <mpi.h>
#include <pthread.h>

/// Mappings of communicators' memory in this process.
static int count_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[4096];
    int count = 0;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "/memfd:nd-") != NULL;
    fclose(maps);
    return count;
}

static int count_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/// A duplicate whose ranks behave as those of several machines where they are told so.
static nd_communicator *duplicate(const nd_communicator *world, bool apart) {
    if (apart)
        setenv("ND_SHARED_MEMORY", "off", 1);
    nd_communicator *made = nd_communicator_duplicate(world, NULL);
    unsetenv("ND_SHARED_MEMORY");
    assert_handle(made);
    return made;
}

static nd_tensor *random_floats(uint64_t seed, int rank, int64_t count, nd_dtype dtype) {
    nd_auto nd_tensor *x =
        nd_randn(nd_key_fold(nd_key_new(seed), (uint64_t)rank), ND_SHAPE(count), ND_F32);
    return nd_cast(x, dtype);
}

/// The world in shares of so many bytes, and of messages of as many without memory in common.
static void same_bits_apart(int64_t share, int64_t count, nd_dtype dtype, nd_collective op) {
    int64_t share_before = nd__node_share, message = nd__mpi_ring_message;
    int64_t large = nd__mpi_ring_share;
    nd_auto nd_communicator *world = open_world(60);
    nd__node_share = nd__mpi_ring_message = share;
    nd__mpi_ring_share = 0;
    nd_auto nd_communicator *near = duplicate(world, false);
    nd_auto nd_communicator *apart = duplicate(world, true);
    nd_auto nd_tensor *x =
        random_floats((uint64_t)count, nd_communicator_get_rank(world), count, dtype);
    nd_auto nd_tensor *before = nd_clone(x);
    nd_auto nd_tensor *a = nd_all_reduce(x, near, op);
    nd_auto nd_tensor *b = nd_all_reduce(x, apart, op);
    assert_handle(a);
    assert_handle(b);
    size_t bytes = (size_t)count * nd_dtype_get_size(dtype);
    assert_memory_equal(nd_get_data(a), nd_get_data(b), bytes);
    assert_memory_equal(nd_get_data(x), nd_get_data(before), bytes);
    assert_ok(nd_all_reduce_(x, near, op));
    assert_memory_equal(nd_get_data(x), nd_get_data(a), bytes);
    nd__node_share = share_before;
    nd__mpi_ring_message = message;
    nd__mpi_ring_share = large;
}

static void test_sums_are_those_of_a_ring(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16, ND_F32, ND_F64};
    static const int64_t counts[] = {1, 3, 31, 32, 33, 1000, 10007};
    for (int d = 0; d < 4; d++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            same_bits_apart(64, counts[i], dtypes[d], ND_COLLECTIVE_SUM);
            same_bits_apart(4096, counts[i], dtypes[d], ND_COLLECTIVE_MEAN);
        }
    same_bits_apart(1 << 20, 3000001, ND_F32, ND_COLLECTIVE_MEAN);
}

/// Row r is begun with rank r's, to which those of r + 1, r + 2, ... are added, whatever the size.
static void reduce_scatter_in_order(const nd_communicator *world, int64_t share, int64_t columns) {
    int64_t share_before = nd__node_share, copied_before = nd__node_copied;
    nd__node_share = share;
    nd__node_copied = share / 2;
    nd_auto nd_communicator *near = duplicate(world, false);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    nd_auto nd_tensor *flat = random_floats((uint64_t)columns, rank, ranks * columns, ND_F32);
    nd_auto nd_tensor *x = nd_reshape(flat, ND_SHAPE(ranks, columns));
    nd_auto nd_tensor *share_of = nd_reduce_scatter(x, near, ND_COLLECTIVE_SUM);
    nd_auto nd_tensor *all = nd_all_gather(x, near); // row of rank k for rank r: k * ranks + r
    nd_auto nd_tensor *sum =
        all ? nd_slice(all, rank * ranks + rank, rank * ranks + rank + 1, 1, 0) : NULL;
    assert_handle(share_of);
    assert_handle(sum);
    for (int i = 1; i < ranks; i++) {
        int row = (rank + i) % ranks * ranks + rank;
        nd_auto nd_tensor *next = nd_slice(all, row, row + 1, 1, 0);
        nd_tensor *more = nd_add(sum, next);
        assert_handle(more);
        nd_release(sum);
        sum = more;
    }
    nd_auto nd_tensor *packed = nd_contiguous(sum);
    assert_memory_equal(nd_get_data(share_of), nd_get_data(packed), (size_t)columns * 4);
    nd__node_share = share_before;
    nd__node_copied = copied_before;
}

static void test_a_reduce_scatter_adds_up_from_each_ranks_own_on(void **state) {
    (void)state;
    static const int64_t columns[] = {1, 7, 16, 1000};
    nd_auto nd_communicator *world = open_world(60);
    for (int i = 0; i < 4; i++) {
        reduce_scatter_in_order(world, 64, columns[i]);
        reduce_scatter_in_order(world, 1 << 20, columns[i]);
    }
    reduce_scatter_in_order(world, 1 << 20, 700001);
}

/// What is only copied: of any root, of any length beside a piece's, strided on one side.
static void test_copies_are_those_of_mpi(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 15, 16, 17, 100000, 1000003};
    nd_auto nd_communicator *world = open_world(60);
    nd_auto nd_communicator *apart = duplicate(world, true);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (int i = 0; i < 6; i++) {
        nd_auto nd_tensor *x = random_floats(5, rank, counts[i], ND_F32);
        nd_auto nd_tensor *a = nd_all_gather(x, world);
        nd_auto nd_tensor *b = nd_all_gather(x, apart);
        assert_handle(a);
        assert_handle(b);
        assert_memory_equal(nd_get_data(a), nd_get_data(b), (size_t)(counts[i] * ranks) * 4);
        nd_auto nd_tensor *wide = nd_zeros(ND_SHAPE(counts[i], 2), ND_F32);
        nd_auto nd_tensor *column = nd_slice(wide, 1, 2, 1, 1);
        nd_auto nd_tensor *flat = nd_reshape(x, ND_SHAPE(counts[i], 1));
        int root = i % ranks;
        assert_ok(nd_broadcast_(rank == root ? flat : column, world, root));
        const float *values = nd_get_data(a);
        for (int64_t k = 0; rank != root && k < counts[i]; k++)
            assert_true(element_at(column, k) == (double)values[root * counts[i] + k]);
    }
}

/// Views, whose elements are gathered first, on some ranks alone.
static void test_strides_are_each_ranks_own(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    nd_auto nd_tensor *x = nd_arange(0, 1200, 1, ND_F32);
    nd_auto nd_tensor *matrix = nd_reshape(x, ND_SHAPE(30, 40));
    nd_auto nd_tensor *turned = nd_transpose(matrix, 0, 1);
    nd_auto nd_tensor *packed = nd_contiguous(turned);
    nd_auto nd_tensor *sum = nd_all_reduce(rank % 2 ? turned : packed, world, ND_COLLECTIVE_SUM);
    assert_handle(sum);
    for (int64_t i = 0; i < 1200; i++)
        assert_true(element_at(sum, i) == ranks * element_at(packed, i));
}

/// One rank has no permission: all of them do without.
static void test_a_rank_that_cannot_share_stops_nobody(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (int without = 0; without < ranks; without++) {
        int before = count_mappings(), files = count_files();
        nd_auto nd_communicator *comm = duplicate(world, rank == without);
        assert_int_equal(count_mappings(), before);
        assert_int_equal(count_files(), files);
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(100000), rank, ND_F32);
        assert_ok(nd_all_reduce_(x, comm, ND_COLLECTIVE_SUM));
        assert_true(element_at(x, 99999) == ranks * (ranks - 1) / 2);
        assert_ok(nd_barrier(comm));
    }
}

static void test_many_communicators_leave_nothing(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    bool shares = nd_communicator_get_size(world) > 1;
    int before = count_mappings(), files = count_files();
    for (int n = 0; n < 100; n++) {
        nd_auto nd_communicator *comm = nd_communicator_duplicate(world, NULL);
        assert_handle(comm);
        nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1000), ND_F32);
        assert_ok(nd_all_reduce_(x, comm, ND_COLLECTIVE_SUM));
        assert_int_equal(count_mappings(), before + shares);
        assert_int_equal(count_files(), files);
    }
    assert_int_equal(count_mappings(), before);
    assert_int_equal(count_files(), files);
}

/// A process that may not make files as long as the memory, which would end it.
static void test_a_limit_on_files_is_no_end(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int before = count_mappings();
    struct rlimit limit, low;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    low = limit;
    low.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    nd_auto nd_communicator *comm = nd_communicator_duplicate(world, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_handle(comm);
    assert_int_equal(count_mappings(), before);
    assert_ok(nd_barrier(comm));
}

/// A child has none of the memory, and lets go of the communicator without harm.
static void test_a_forked_child_has_none_of_it(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    pid_t child = fork();
    if (child == 0) {
        bool none = count_mappings() == 0 && nd_barrier(world) == ND_ERROR_STATE;
        nd_release(world);
        _exit(none ? 0 : 1);
    }
    int answer = -1;
    assert_int_equal(waitpid(child, &answer, 0), child);
    assert_int_equal(answer, 0);
    assert_ok(nd_barrier(world));
}

/// Mistakes between calls that are right: what was put down for a call that was refused is nobody's.
static void test_refused_calls_leave_no_trace(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (int n = 0; n < 20 && ranks > 1; n++) {
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(100 + n), n, ND_F32);
        nd_auto nd_tensor *odd = nd_full(ND_SHAPE(50000), 7, ND_F32);
        assert_int_equal(nd_all_reduce_(rank == n % ranks ? odd : x, world, ND_COLLECTIVE_SUM),
                         ND_ERROR_SHAPE);
        nd_error_clear();
        assert_true(element_at(x, 99) == n && element_at(odd, 0) == 7);
        assert_ok(nd_all_reduce_(x, world, ND_COLLECTIVE_SUM));
        assert_true(element_at(x, 99 + n) == n * ranks);
        assert_ok(nd_broadcast_(odd, world, 0)); // which goes through MPI
        assert_true(element_at(odd, 49999) == 7);
    }
}

/// A message of the program's that needs both sides, of which one waits for the other in a call.
static void test_a_programs_messages_go_on_while_a_rank_waits(void **state) {
    (void)state;
    enum { COUNT = 1 << 20 };
    nd_auto nd_communicator *world = open_world(30);
    int rank = nd_communicator_get_rank(world);
    double *data = calloc(COUNT, sizeof *data);
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 0 && nd_communicator_get_size(world) > 1) {
        data[COUNT - 1] = 5;
        MPI_Isend(data, COUNT, MPI_DOUBLE, 1, 77, MPI_COMM_WORLD, &request);
    } else if (rank == 1) {
        usleep(100000);
        MPI_Recv(data, COUNT, MPI_DOUBLE, 0, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        assert_true(data[COUNT - 1] == 5);
    }
    assert_ok(nd_barrier(world));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(data);
}

typedef struct worker {
    nd_communicator *comm;
    pthread_t thread;
    int ranks, number;
    bool well;
} worker;

static void *work(void *data) {
    worker *self = data;
    self->well = true;
    for (int i = 0; i < 60 && self->well; i++) {
        int64_t count = 1 + (int64_t)(mix((uint64_t)(i * 8 + self->number)) % 60000);
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(count), self->number + i, ND_F32);
        self->well = nd_all_reduce_(x, self->comm, ND_COLLECTIVE_SUM) == ND_OK &&
                     element_at(x, count - 1) == self->ranks * (self->number + i) &&
                     nd_barrier(self->comm) == ND_OK;
    }
    return NULL;
}

/// Each thread with a communicator of its own, halves of the world among them.
static void test_threads_use_communicators_at_once(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    worker workers[3] = {0};
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, nd_communicator_get_rank(world) % 2, 0, &half);
    for (int i = 0; i < 3; i++) {
        workers[i].comm =
            i == 0 ? nd_communicator_from_mpi(&half, NULL) : nd_communicator_duplicate(world, NULL);
        workers[i].ranks = nd_communicator_get_size(workers[i].comm);
        workers[i].number = i;
    }
    for (int i = 0; i < 3; i++)
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    for (int i = 0; i < 3; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_true(workers[i].well);
        nd_release(workers[i].comm);
    }
    MPI_Comm_free(&half);
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_sums_are_those_of_a_ring),
    ND_TEST(test_a_reduce_scatter_adds_up_from_each_ranks_own_on),
    ND_TEST(test_copies_are_those_of_mpi),
    ND_TEST(test_strides_are_each_ranks_own),
    ND_TEST(test_a_rank_that_cannot_share_stops_nobody),
    ND_TEST(test_many_communicators_leave_nothing),
    ND_TEST(test_a_limit_on_files_is_no_end),
    ND_TEST(test_a_forked_child_has_none_of_it),
    ND_TEST(test_refused_calls_leave_no_trace),
    ND_TEST(test_a_programs_messages_go_on_while_a_rank_waits),
    ND_TEST(test_threads_use_communicators_at_once),
};
RANKS_MAIN(tests)
#else
int main(void) {
    puts("SKIPPED: built without MPI");
    return 0;
}
#endif
