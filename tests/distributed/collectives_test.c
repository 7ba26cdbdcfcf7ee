// Collective calls and messages against what one process works out: random shapes, strides, dtypes
// and devices. Every rank draws the same cases, and knows the elements of all the others.
#include "lib/device/fake/fake.h"
#include "lib/distributed/mpi_data.h"
#include "tests/distributed/ranks.h"

#include <math.h>

enum { CASES = 150 };

typedef struct random_case {
    uint64_t seed;
    nd_dtype dtype;
    nd_collective op;
    int ndim;
    int64_t shape[4];
    int layout; ///< this rank's own
} random_case;

static random_case draw_case(uint64_t *state, int rank, int least_dims) {
    random_case c = {.seed = mix(*state)};
    c.dtype = (nd_dtype)draw(state, ND_DTYPE_COUNT);
    do
        c.op = (nd_collective)draw(state, 4);
    while ((c.op == ND_COLLECTIVE_SUM && c.dtype == ND_BOOL) ||
           (c.op == ND_COLLECTIVE_MEAN && !is_float(c.dtype)));
    c.ndim = least_dims + (int)draw(state, 4 - least_dims + 1);
    for (int i = 0; i < c.ndim; i++)
        c.shape[i] = draw(state, 20) == 0 ? 0 : 1 + draw(state, 6);
    c.layout = (int)(mix(c.seed + (uint64_t)rank) % 4);
    return c;
}

/// What a reduction of all ranks' elements i is.
static double reduced(const random_case *c, int ranks, int64_t i) {
    double result = element_of(c->seed, 0, i, c->dtype);
    for (int rank = 1; rank < ranks; rank++) {
        double x = element_of(c->seed, rank, i, c->dtype);
        result = c->op == ND_COLLECTIVE_MAX   ? fmax(result, x)
                 : c->op == ND_COLLECTIVE_MIN ? fmin(result, x)
                                              : result + x;
    }
    if (c->op != ND_COLLECTIVE_MEAN)
        return result;
    union {
        uint64_t bytes;
        double number;
    } rounded = {0};
    set_element(&rounded, c->dtype, 0, result / ranks);
    return element_as_double(&rounded, c->dtype, 0);
}

static nd_tensor *make_case(const random_case *c, int rank) {
    return make(c->seed, rank, c->layout, c->ndim, c->shape, c->dtype);
}

static void check_reduced(const random_case *c, int ranks, const nd_tensor *x, int64_t first) {
    assert_int_equal(nd_get_dtype(x), c->dtype);
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        if (element_at(x, i) != reduced(c, ranks, first + i))
            fail_msg("%s, op %d, element %lld of %lld: %g, not %g", nd_dtype_get_name(c->dtype),
                     (int)c->op, (long long)i, (long long)nd_get_numel(x), element_at(x, i),
                     reduced(c, ranks, first + i));
}

static void all_reduce_cases(uint64_t state) {
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (int n = 0; n < CASES; n++) {
        random_case c = draw_case(&state, rank, 0);
        nd_auto nd_tensor *x = make_case(&c, rank);
        nd_auto nd_tensor *result = nd_all_reduce(x, world, c.op);
        assert_handle(result);
        assert_true(nd_is_contiguous(result));
        check_reduced(&c, ranks, result, 0);
        for (int64_t i = 0; i < nd_get_numel(x); i++)
            assert_true(element_at(x, i) == element_of(c.seed, rank, i, c.dtype));
        assert_ok(nd_all_reduce_(x, world, c.op));
        check_reduced(&c, ranks, x, 0);
    }
}

static void test_all_reduce_is_what_one_process_computes(void **state) {
    (void)state;
    all_reduce_cases(1);
}

static void reduce_scatter_cases(uint64_t state) {
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (int n = 0; n < CASES; n++) {
        random_case c = draw_case(&state, rank, 1);
        c.shape[0] *= ranks;
        nd_auto nd_tensor *x = make_case(&c, rank);
        nd_auto nd_tensor *share = nd_reduce_scatter(x, world, c.op);
        assert_handle(share);
        assert_int_equal(nd_get_shape(share)[0], c.shape[0] / ranks);
        check_reduced(&c, ranks, share, rank * nd_get_numel(share));
    }
}

static void test_reduce_scatter_gives_each_rank_its_rows(void **state) {
    (void)state;
    reduce_scatter_cases(2);
}

static void all_gather_cases(uint64_t state) {
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (int n = 0; n < CASES; n++) {
        random_case c = draw_case(&state, rank, 1);
        nd_auto nd_tensor *x = make_case(&c, rank);
        nd_auto nd_tensor *all = nd_all_gather(x, world);
        assert_handle(all);
        assert_int_equal(nd_get_shape(all)[0], c.shape[0] * ranks);
        for (int64_t i = 0, each = nd_get_numel(x); i < nd_get_numel(all); i++)
            assert_true(element_at(all, i) ==
                        element_of(c.seed, (int)(i / each), i % each, c.dtype));
    }
}

static void test_all_gather_is_every_rank_in_order(void **state) {
    (void)state;
    all_gather_cases(3);
}

static void copies_cases(uint64_t state) {
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (int n = 0; n < CASES; n++) {
        random_case c = draw_case(&state, rank, 0);
        int root = (int)draw(&state, ranks);
        nd_auto nd_tensor *x = make_case(&c, rank);
        assert_ok(nd_broadcast_(x, world, root));
        for (int64_t i = 0; i < nd_get_numel(x); i++)
            assert_true(element_at(x, i) == element_of(c.seed, root, i, c.dtype));
        int from = (int)draw(&state, ranks), to = (int)draw(&state, ranks);
        nd_auto nd_tensor *y = make_case(&c, rank);
        if (from == to)
            continue;
        if (rank == from)
            assert_ok(nd_send(y, world, to));
        if (rank == to)
            assert_ok(nd_receive_(y, world, from));
        for (int64_t i = 0; i < nd_get_numel(y); i++)
            assert_true(element_at(y, i) ==
                        element_of(c.seed, rank == to ? from : rank, i, c.dtype));
    }
}

static void test_broadcast_and_messages_bring_the_values(void **state) {
    (void)state;
    copies_cases(4);
}

static void test_large_tensors_go_in_pieces(void **state) {
    (void)state;
    int64_t before = nd__mpi_largest_count;
    nd__mpi_largest_count = 7;
    all_reduce_cases(5);
    reduce_scatter_cases(6);
    all_gather_cases(7);
    copies_cases(8);
    nd__mpi_largest_count = before;
}

/// Random floats: near what f64 says, and the same bits everywhere.
static void same_bits_cases(void) {
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16, ND_F32, ND_F64};
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (size_t d = 0; d < 4; d++) {
        nd_dtype dtype = dtypes[d];
        nd_auto nd_tensor *x = nd_randn(nd_key_new((uint64_t)rank), ND_SHAPE(10007), dtype);
        nd_auto nd_tensor *sum = nd_all_reduce(x, world, ND_COLLECTIVE_SUM);
        nd_auto nd_tensor *all = nd_all_gather(sum, world);
        nd_auto nd_tensor *summands = nd_all_gather(x, world);
        assert_handle(summands);
        size_t bytes = 10007 * nd_dtype_get_size(dtype);
        for (int other = 0; other < ranks; other++)
            assert_memory_equal(nd_get_data(sum), (char *)nd_get_data(all) + (size_t)other * bytes,
                                bytes);
        for (int64_t i = 0; i < 10007; i++) {
            double exact = 0, size = 0;
            for (int other = 0; other < ranks; other++) {
                exact += element_at(summands, other * 10007 + i);
                size += fabs(element_at(summands, other * 10007 + i));
            }
            assert_true(fabs(element_at(sum, i) - exact) <=
                        ranks * size * nd_dtype_get_epsilon(dtype));
        }
    }
}

static void test_every_rank_has_the_same_bits(void **state) {
    (void)state;
    same_bits_cases();
}

/// Small ones in messages of four to 32 elements, of which the last are empty or short, and one of
/// a size that is large without that, with a short last piece.
static void test_large_tensors_go_round_in_a_ring(void **state) {
    (void)state;
    int64_t message = nd__mpi_ring_message, share = nd__mpi_ring_share;
    nd__mpi_ring_message = 32;
    nd__mpi_ring_share = 1;
    all_reduce_cases(9);
    same_bits_cases();
    nd__mpi_ring_message = message;
    nd__mpi_ring_share = share;
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    int64_t count = ranks * message / 4 + 101;
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(count), rank + 1, ND_F32);
    assert_handle(x);
    float *elements = nd_get_data(x);
    for (int64_t i = 0; i < count; i++)
        elements[i] += (float)(i % 1000);
    assert_ok(nd_all_reduce_(x, world, ND_COLLECTIVE_MEAN));
    elements = nd_get_data(x);
    for (int64_t i = 0; i < count; i++) // small numbers, whose sums are exact
        assert_true(elements[i] ==
                    ((float)(ranks * (i % 1000)) + (float)(ranks * (ranks + 1) / 2)) /
                        (float)ranks);
}

/// The bits of an integer.
static uint64_t bits_at(const nd_tensor *x, int64_t i) {
    uint64_t bits = 0;
    size_t size = nd_dtype_get_size(nd_get_dtype(x));
    memcpy(&bits, (const char *)nd_get_data(x) + (size_t)i * size, size);
    return bits;
}

/// Element i of what all ranks reduce, `all` one rank behind the other, against `x[at]`: bits that
/// were added up without regard to what they mean, or the extremum.
static void check_integer(const nd_tensor *all, int ranks, int64_t i, const nd_tensor *x,
                          int64_t at, nd_collective op) {
    int64_t count = nd_get_numel(all) / ranks;
    size_t size = nd_dtype_get_size(nd_get_dtype(x));
    uint64_t mask = UINT64_MAX >> (64 - 8 * size), sum = 0;
    double extremum = element_at(all, i);
    for (int rank = 0; rank < ranks; rank++) {
        double element = element_at(all, rank * count + i);
        sum = (sum + bits_at(all, rank * count + i)) & mask;
        extremum = op == ND_COLLECTIVE_MAX ? fmax(extremum, element) : fmin(extremum, element);
    }
    bool right = op == ND_COLLECTIVE_SUM ? bits_at(x, at) == sum : element_at(x, at) == extremum;
    if (!right)
        fail_msg("%s, op %d, element %lld: %g", nd_dtype_get_name(nd_get_dtype(x)), (int)op,
                 (long long)i, element_at(x, at));
}

/// Integers of random bits, whose sums leave their dtype.
static void integer_cases(int64_t each) {
    static const nd_dtype dtypes[] = {ND_I8, ND_I16, ND_I32, ND_I64, ND_U8, ND_U16, ND_U32, ND_U64};
    static const nd_collective ops[] = {ND_COLLECTIVE_SUM, ND_COLLECTIVE_MAX, ND_COLLECTIVE_MIN};
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (size_t c = 0; c < 3 * sizeof dtypes / sizeof *dtypes; c++) {
        nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(ranks * each), dtypes[c / 3]);
        nd_collective op = ops[c % 3];
        unsigned char *bytes = nd_get_data(x);
        int64_t size = (int64_t)nd_dtype_get_size(dtypes[c / 3]);
        for (int64_t i = 0; i < ranks * each * size; i++)
            bytes[i] = (unsigned char)mix((uint64_t)(i * ranks + rank) + c);
        nd_auto nd_tensor *all = nd_all_gather(x, world);
        nd_auto nd_tensor *share = nd_reduce_scatter(x, world, op);
        assert_ok(nd_all_reduce_(x, world, op));
        for (int64_t i = 0; i < ranks * each; i++)
            check_integer(all, ranks, i, x, i, op);
        for (int64_t i = 0; i < each; i++)
            check_integer(all, ranks, rank * each + i, share, i, op);
    }
}

static void test_integers_wrap_around(void **state) {
    (void)state;
    integer_cases(1);
    integer_cases(1003);
    int64_t message = nd__mpi_ring_message, ring = nd__mpi_ring_share;
    int64_t largest = nd__mpi_largest_count;
    nd__mpi_ring_message = 1024;
    nd__mpi_ring_share = 1;
    nd__mpi_largest_count = 200;
    integer_cases(1003);
    nd__mpi_ring_message = message;
    nd__mpi_ring_share = ring;
    integer_cases(203);
    nd__mpi_largest_count = largest;
}

static void test_nan_wins_and_infinity_stays(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16, ND_F32, ND_F64};
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    for (int d = 0; d < 4; d++)
        for (int op = ND_COLLECTIVE_MAX; op <= ND_COLLECTIVE_MIN; op++) {
            nd_auto nd_tensor *x = nd_full(ND_SHAPE(ranks + 1), rank, dtypes[d]);
            set_element(nd_get_data(x), dtypes[d], rank, NAN);
            if (rank == ranks - 1)
                set_element(nd_get_data(x), dtypes[d], ranks, INFINITY);
            assert_ok(nd_all_reduce_(x, world, (nd_collective)op));
            for (int i = 0; i < ranks; i++)
                assert_true(isnan(element_at(x, i)));
            double last = op == ND_COLLECTIVE_MAX || ranks == 1 ? INFINITY : 0;
            assert_true(element_at(x, ranks) == last);
        }
}

static void test_device_tensors_go_through_the_host(void **state) {
    (void)state;
    const nd_device fake = {ND_FAKE, 0};
    nd_auto nd_communicator *world = open_world(60);
    int rank = nd_communicator_get_rank(world), ranks = nd_communicator_get_size(world);
    random_case c = {.seed = 77, .dtype = ND_F32, .op = ND_COLLECTIVE_SUM, .ndim = 2};
    c.shape[0] = 2 * ranks;
    c.shape[1] = 5;
    c.layout = 3;
    nd_auto nd_tensor *host = make_case(&c, rank);
    // On one rank a device, on the others the host: nobody needs to know.
    nd_auto nd_tensor *x = rank % 2 == 0 ? nd_to(host, fake) : nd_clone(host);
    nd_auto nd_tensor *turned = nd_transpose(x, 0, 1);
    nd_auto nd_tensor *sum = nd_all_reduce(x, world, c.op);
    nd_auto nd_tensor *share = nd_reduce_scatter(x, world, c.op);
    nd_auto nd_tensor *all = nd_all_gather(turned, world);
    assert_handle(all);
    assert_int_equal(nd_get_device(sum).kind, nd_get_device(x).kind);
    assert_int_equal(nd_get_device(share).kind, nd_get_device(x).kind);
    assert_int_equal(nd_get_device(all).kind, nd_get_device(x).kind);
    nd_auto nd_tensor *near = nd_to(sum, (nd_device){ND_CPU, 0});
    check_reduced(&c, ranks, near, 0);
    nd_auto nd_tensor *near_share = nd_to(share, (nd_device){ND_CPU, 0});
    check_reduced(&c, ranks, near_share, rank * nd_get_numel(share));
    assert_ok(nd_all_reduce_(turned, world, c.op));
    nd_auto nd_tensor *back = nd_to(x, (nd_device){ND_CPU, 0});
    check_reduced(&c, ranks, back, 0);
    assert_ok(nd_broadcast_(x, world, 0));
}

static void test_what_is_sent_has_no_history(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *sum = nd_all_reduce(x, world, ND_COLLECTIVE_SUM);
    assert_handle(sum);
    assert_false(nd_requires_grad(sum));
    assert_int_equal(nd_all_reduce_(x, world, ND_COLLECTIVE_SUM), ND_ERROR_STATE);
    nd_no_grad {
        assert_ok(nd_all_reduce_(x, world, ND_COLLECTIVE_SUM));
    }
    assert_true(element_at(x, 0) == nd_communicator_get_size(world));
}

/// A manager in whose tree the call was made.
static void test_results_live_where_their_operands_do(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    nd_manager *manager = nd_manager_new(NULL, "step");
    nd_tensor *x = NULL, *y = NULL;
    nd_with_manager(manager) {
        x = nd_ones(ND_SHAPE(1000), ND_F32);
    }
    y = nd_all_gather(x, world);
    assert_handle(y);
    assert_ptr_equal(nd_get_manager(y), manager);
    nd_release(y);
    nd_release(x);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(manager, &report));
    assert_int_equal(report.escaped_objects, 0);
    nd_release(manager);
}

static void test_duplicates_do_not_get_in_each_others_way(void **state) {
    (void)state;
    nd_auto nd_communicator *world = open_world(60);
    nd_auto nd_communicator *second = nd_communicator_duplicate(world, NULL);
    assert_handle(second);
    assert_int_equal(nd_communicator_get_rank(second), nd_communicator_get_rank(world));
    assert_int_equal(nd_communicator_get_size(second), nd_communicator_get_size(world));
    assert_true(nd_communicator_get_timeout(second) == 60);
    assert_ok(nd_close(world));
    assert_int_equal(nd_barrier(world), ND_ERROR_CLOSED);
    assert_int_equal(nd_communicator_get_rank(world), -1);
    assert_ok(nd_barrier(second));
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_all_reduce_is_what_one_process_computes),
    ND_TEST(test_reduce_scatter_gives_each_rank_its_rows),
    ND_TEST(test_all_gather_is_every_rank_in_order),
    ND_TEST(test_broadcast_and_messages_bring_the_values),
    ND_TEST(test_large_tensors_go_in_pieces),
    ND_TEST(test_every_rank_has_the_same_bits),
    ND_TEST(test_large_tensors_go_round_in_a_ring),
    ND_TEST(test_integers_wrap_around),
    ND_TEST(test_nan_wins_and_infinity_stays),
    ND_TEST(test_device_tensors_go_through_the_host),
    ND_TEST(test_what_is_sent_has_no_history),
    ND_TEST(test_results_live_where_their_operands_do),
    ND_TEST(test_duplicates_do_not_get_in_each_others_way),
};

RANKS_MAIN(tests)
