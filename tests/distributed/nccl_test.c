// Collective calls over an NCCL without GPUs, against what one process works out: every dtype, shape
// and layout, on ranks that are threads, and under mpirun processes. And that they wait for nothing but
// what uses their memory.
#include "tests/distributed/nccl_ranks.h"

#include <math.h>

enum { CASES = 18, LONG = 40000 };

typedef struct random_case {
    uint64_t seed;
    nd_dtype dtype;
    nd_collective op;
    int ndim;
    int64_t shape[4];
    int layout;   ///< this rank's own
    bool on_host; ///< likewise
} random_case;

/// Whether NCCL reduces a dtype, and such a reduction is one of it.
static bool is_reduction(nd_dtype dtype, nd_collective op) {
    return dtype != ND_I16 && dtype != ND_U16 && !(op == ND_COLLECTIVE_SUM && dtype == ND_BOOL) &&
           !(op == ND_COLLECTIVE_MEAN && !is_float(dtype));
}

/// The first cases have each dtype once; one in nine is longer than what NCCL takes at once.
static random_case draw_case(uint64_t *state, int n, int rank, int least_dims) {
    random_case c = {.seed = mix(*state), .dtype = (nd_dtype)(n % ND_DTYPE_COUNT)};
    c.op = (nd_collective)draw(state, 4);
    c.ndim = least_dims + (int)draw(state, 4 - least_dims + 1);
    for (int i = 0; i < c.ndim; i++)
        c.shape[i] = draw(state, 20) == 0 ? 0 : 1 + draw(state, 6);
    if (n % 9 == 8) {
        c.ndim = 2;
        c.shape[0] = 4;
        c.shape[1] = LONG / 4;
    }
    c.layout = (int)(mix(c.seed + (uint64_t)rank) % 4);
    c.on_host = mix(c.seed + (uint64_t)rank) % 5 == 0;
    return c;
}

static nd_tensor *make_case(const random_case *c, int rank) {
    return c->on_host ? make(c->seed, rank, c->layout, c->ndim, c->shape, c->dtype)
                      : make_there(c->seed, rank, c->layout, c->ndim, c->shape, c->dtype);
}

static double reduced(const random_case *c, int ranks, int64_t i) {
    double result = element_of(c->seed, 0, i, c->dtype);
    for (int rank = 1; rank < ranks; rank++) {
        double x = element_of(c->seed, rank, i, c->dtype);
        result = c->op == ND_COLLECTIVE_MAX   ? fmax(result, x)
                 : c->op == ND_COLLECTIVE_MIN ? fmin(result, x)
                                              : result + x;
    }
    return c->op == ND_COLLECTIVE_MEAN ? result / ranks : result; // exact, for 2 and 4
}

static void check(const random_case *c, int rank, const nd_tensor *x, int64_t first, int ranks,
                  double (*wanted)(const random_case *, int, int64_t)) {
    assert_handle(x);
    assert_int_equal(nd_get_device(x).kind, c->on_host ? ND_CPU : ND_CUDA);
    if (!c->on_host)
        assert_int_equal(nd_get_device(x).index, rank);
    nd_auto nd_tensor *here = nd_to(x, cpu);
    assert_handle(here);
    for (int64_t i = 0; i < nd_get_numel(here); i++)
        if (element_at(here, i) != wanted(c, ranks, first + i))
            fail_msg("rank %d, %s, op %d, element %lld of %lld: %g, not %g", rank,
                     nd_dtype_get_name(c->dtype), (int)c->op, (long long)i,
                     (long long)nd_get_numel(here), element_at(here, i),
                     wanted(c, ranks, first + i));
}

static void reductions(nd_communicator *comm, int rank, void *context) {
    uint64_t state = *(uint64_t *)context;
    int ranks = nd_communicator_get_size(comm);
    for (int n = 0; n < CASES; n++) {
        random_case c = draw_case(&state, n, rank, 1);
        c.shape[0] *= ranks;
        nd_auto nd_tensor *x = make_case(&c, rank);
        if (!is_reduction(c.dtype, c.op)) {
            assert_null(nd_all_reduce(x, comm, c.op));
            assert_int_equal(nd_error_get_status(), ND_ERROR_DTYPE);
            continue;
        }
        nd_auto nd_tensor *result = nd_all_reduce(x, comm, c.op);
        check(&c, rank, result, 0, ranks, reduced);
        nd_auto nd_tensor *share = nd_reduce_scatter(x, comm, c.op);
        assert_handle(share);
        assert_int_equal(nd_get_shape(share)[0], c.shape[0] / ranks);
        check(&c, rank, share, rank * nd_get_numel(share), ranks, reduced);
        assert_ok(nd_all_reduce_(x, comm, c.op));
        check(&c, rank, x, 0, ranks, reduced);
    }
}

static double gathered(const random_case *c, int ranks, int64_t i) {
    (void)ranks;
    int64_t of_one = 1;
    for (int axis = 0; axis < c->ndim; axis++)
        of_one *= c->shape[axis];
    return element_of(c->seed, (int)(i / of_one), i % of_one, c->dtype);
}

/// `ranks`: whose elements.
static double those_of(const random_case *c, int ranks, int64_t i) {
    return element_of(c->seed, ranks, i, c->dtype);
}

static void copies(nd_communicator *comm, int rank, void *context) {
    uint64_t state = *(uint64_t *)context;
    int ranks = nd_communicator_get_size(comm);
    for (int n = 0; n < CASES; n++) {
        random_case c = draw_case(&state, n, rank, 1);
        nd_auto nd_tensor *x = make_case(&c, rank);
        nd_auto nd_tensor *all = nd_all_gather(x, comm);
        check(&c, rank, all, 0, ranks, gathered);
        int root = (int)draw(&state, ranks), from = (int)draw(&state, ranks),
            to = (int)draw(&state, ranks);
        if (from != to && rank == from)
            assert_ok(nd_send(x, comm, to));
        if (from != to && rank == to) {
            nd_auto nd_tensor *y = make_case(&c, rank);
            assert_ok(nd_receive_(y, comm, from));
            check(&c, rank, y, 0, from, those_of);
        }
        assert_ok(nd_broadcast_(x, comm, root));
        check(&c, rank, x, 0, root, those_of);
    }
}

/// On 2 and 4 ranks, with calls that NCCL takes at once and with those that it is a while about.
static void on_ranks(nccl_body *body) {
    for (uint64_t seed = 0; seed < 2; seed++) {
        cudart_set_seed(seed);
        nccl()->set_seed(seed);
        for (int ranks = 2; ranks <= NCCL_RANKS; ranks += 2) {
            uint64_t state = 100 * seed + (uint64_t)ranks;
            nccl_run(ranks, 120, body, &state);
            if (nccl_is_process())
                break;
        }
    }
    cudart_set_seed(0);
    nccl()->set_seed(0);
    assert_no_nccl_left();
    assert_int_equal(nccl_counts().aborted, 0);
}

static void test_reductions_are_what_one_process_computes(void **state) {
    (void)state;
    on_ranks(reductions);
}

static void test_copies_are_what_was_sent(void **state) {
    (void)state;

    on_ranks(copies);
}

static void disagree(nd_communicator *comm, int rank, void *context) {
    (void)context;
    nd_auto nd_tensor *x = make_there(1, rank, 0, 1, (const int64_t[]){3 + (rank == 1)}, ND_F32);
    assert_null(nd_all_reduce(x, comm, ND_COLLECTIVE_SUM));
    assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
    assert_non_null(
        strstr(nd_error_get_message(), "rank 0 has float32 [3] and rank 1 float32 [4]"));
    assert_null(nd_all_gather(rank == 1 ? NULL : x, comm));
    if (rank != 1)
        assert_non_null(strstr(nd_error_get_message(), "rank 1 does not take part"));
    int partner = rank ^ 1;
    if (partner < nd_communicator_get_size(comm)) {
        nd_auto nd_tensor *y =
            make_there(1, rank, 0, 1, (const int64_t[]){3}, rank % 2 ? ND_F32 : ND_F64);
        nd_status status = rank % 2 ? nd_send(y, comm, partner) : nd_receive_(y, comm, partner);
        assert_int_equal(status, ND_ERROR_DTYPE);
    }
    nd_error_clear();
    assert_false(nd_communicator_is_broken(comm));
    nd_auto nd_communicator *other = nd_communicator_duplicate(comm, NULL);
    assert_handle(other);
    assert_ok(nd_barrier(other));
    assert_ok(nd_barrier(comm));
}

static void test_what_differs_is_named_and_nothing_breaks(void **state) {
    (void)state;
    on_ranks(disagree);
}

/// Work of another stream that has nothing to do with a call is not waited for; what has, is, though
/// another stream does it.
static void wait_for_nothing_else(nd_communicator *comm, int rank, void *context) {
    (void)context;
    nd_auto nd_stream *one = stream_on(rank), *other = stream_on(rank);
    nd_auto nd_tensor *x = full_on(cuda(rank), 1000, rank + 1),
                      *apart = full_on(cuda(rank), 1000, 3);
    nd_tensor *later = NULL;
    nd_with_stream(other) later = nd_mul(apart, apart);
    nd_tensor *doubled = NULL;
    nd_with_stream(one) doubled = nd_add(x, x);
    nd_auto nd_tensor *sum = nd_all_reduce(doubled, comm, ND_COLLECTIVE_SUM);
    assert_handle(sum);
    assert_false(is_done(other));
    int ranks = nd_communicator_get_size(comm);
    nd_with_stream(one) assert_true(sum_of(sum) == 1000.0 * ranks * (ranks + 1));
    assert_true(sum_of(later) == 9000);
    nd_release(later);
    nd_release(doubled);
}

static void test_calls_wait_for_what_uses_their_memory_alone(void **state) {
    (void)state;
    nccl_run(2, 120, wait_for_nothing_else, NULL);
    assert_no_nccl_left();
}

/// What only data shows is told by the device late: all ranks hear whose it was, and go on.
static void look_up_nothing(nd_communicator *comm, int rank, void *context) {
    (void)context;
    nd_auto nd_tensor *table = full_on(cuda(rank), 4, 1);
    nd_auto nd_tensor *here = nd_full(ND_SHAPE(1), rank == 1 ? 9 : 1, ND_I64);
    nd_auto nd_tensor *index = nd_to(here, cuda(rank));
    nd_auto nd_tensor *found = nd_gather(table, index, 0);
    assert_handle(found);
    nd_auto nd_tensor *sum = nd_all_reduce(found, comm, ND_COLLECTIVE_SUM);
    nd_status status = sum ? nd_barrier(comm) : nd_error_get_status();
    assert_int_equal(status, ND_ERROR_INVALID_ARGUMENT);
    if (rank != 1)
        assert_non_null(strstr(nd_error_get_message(), "rank 1 does not take part"));
    nd_error_clear();
    assert_false(nd_communicator_is_broken(comm));
    assert_ok(nd_barrier(comm));
}

static void test_an_index_out_of_range_is_told_to_all(void **state) {
    (void)state;
    nccl_run(2, 120, look_up_nothing, NULL);
    assert_no_nccl_left();
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_reductions_are_what_one_process_computes),
    ND_TEST(test_copies_are_what_was_sent),
    ND_TEST(test_what_differs_is_named_and_nothing_breaks),
    ND_TEST(test_calls_wait_for_what_uses_their_memory_alone),
    ND_TEST(test_an_index_out_of_range_is_told_to_all),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
