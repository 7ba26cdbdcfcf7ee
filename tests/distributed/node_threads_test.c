// The memory that ranks have in common, with threads for ranks: one mapping in one process, so that
// the thread sanitizer, which knows nothing of other processes, sees what orders the ranks' reads
// and writes. There is nothing that does but the meetings of node.c.
//
// planted_races_test.sh runs the same with meetings that order too little, and wants them noticed.
#include "tests/distributed/node_ranks.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { RANKS_MOST = 4, ROUNDS = 400, COUNT_MOST = NODE_PIECES * NODE_SHARE_COUNT * RANKS_MOST };

// -------------------------------------------------------------------------------------------------
// one mapping of each file in this process

void *__real_mmap(void *address, size_t bytes, int access, int flags, int file, off_t offset);
void *__wrap_mmap(void *address, size_t bytes, int access, int flags, int file, off_t offset);
int __real_munmap(void *address, size_t bytes);
int __wrap_munmap(void *address, size_t bytes);

/// The last one of a file that is shared.
static struct {
    ino_t file;
    void *address;
    int count;
} mapping;

void *__wrap_mmap(void *address, size_t bytes, int access, int flags, int file, off_t offset) {
    struct stat of;
    bool shared = file >= 0 && (flags & MAP_SHARED) && fstat(file, &of) == 0;
    if (shared && mapping.count > 0 && mapping.file == of.st_ino) {
        mapping.count++;
        return mapping.address;
    }
    void *made = __real_mmap(address, bytes, access, flags, file, offset);
    if (shared && made != MAP_FAILED && mapping.count == 0) {
        mapping.file = of.st_ino;
        mapping.address = made;
        mapping.count = 1;
    }
    return made;
}

int __wrap_munmap(void *address, size_t bytes) {
    bool others = mapping.count > 0 && address == mapping.address && --mapping.count > 0;
    return others ? 0 : __real_munmap(address, bytes);
}

// -------------------------------------------------------------------------------------------------
// ranks

typedef struct rank {
    int number, ranks;
    nd_node *node;
    pthread_t thread;
    int wrong; ///< calls
    int64_t data[COUNT_MOST];
} rank;

static nd_status combine(void *context, const void *from, void *into, int64_t count) {
    (void)context;
    if (count % 3 == 0) // so that ranks meet in many orders
        sched_yield();
    node_add(from, into, count);
    return ND_OK;
}

static void settle(void *context, void *sums, int64_t count) {
    (void)context;
    (void)sums;
    (void)count;
}

static nd_status idle(void *context, const nd_transport_call *call) {
    (void)context;
    (void)call;
    return ND_OK;
}

static const nd_node_idle while_idle = {idle, NULL};

/// Of `values` the largest of each, of all ranks.
static bool agree(rank *self, const nd_transport_call *call, int64_t round) {
    uint64_t n = (uint64_t)self->number, of = (uint64_t)round;
    uint64_t values[ND__NODE_VALUES] = {n + of, of, 1000 + of - n};
    return nd__node_agree(self->node, call, &while_idle, values) == ND_OK &&
           values[0] == (uint64_t)self->ranks - 1 + of && values[1] == of && values[2] == 1000 + of;
}

static bool reduce(rank *self, nd_transport_call *call, int64_t round) {
    int64_t count = 1 + round * 37 % COUNT_MOST;
    nd_sums sums = {sizeof(int64_t), NULL, combine, settle};
    call->staged = round % 3 != 0;
    for (int64_t i = 0; i < count; i++)
        self->data[i] = node_element(self->number, round, i);
    if (call->staged)
        nd__node_stage(self->node, self->data, self->data, count, sizeof(int64_t));
    if (call->staged && !agree(self, call, round))
        return false;
    if (nd__node_reduce(self->node, call, &while_idle, &sums, self->data, count, call->staged) !=
        ND_OK)
        return false;
    bool right = true;
    for (int64_t i = 0; i < count; i++)
        right = right && self->data[i] == node_sum(self->ranks, round, i);
    return right;
}

/// So many elements for each rank, none for some: what they are together.
static int64_t take_counts(int ranks, int64_t round, int64_t *ret_counts) {
    int64_t total = 0;
    for (int rank = 0; rank < ranks; rank++) {
        bool alone = round % 4 == 0;
        ret_counts[rank] = alone && rank != round % ranks
                               ? 0
                               : (round * 31 + rank * 17) % (COUNT_MOST / RANKS_MOST);
        total += ret_counts[rank];
    }
    return total;
}

/// Shares of all, which begin as nothing but this rank's.
static bool gather(rank *self, const nd_transport_call *call, int64_t round) {
    int64_t counts[RANKS_MOST], at = 0;
    int64_t total = take_counts(self->ranks, round, counts);
    for (int rank = 0; rank < self->ranks; rank++)
        for (int64_t i = 0; i < counts[rank]; i++, at++)
            self->data[at] = rank == self->number ? node_element(rank, round, at) : -1;
    if (nd__node_gather(self->node, call, &while_idle, self->data, counts, sizeof(int64_t)) !=
        ND_OK)
        return false;
    bool right = at == total;
    at = 0;
    for (int rank = 0; rank < self->ranks; rank++)
        for (int64_t i = 0; i < counts[rank]; i++, at++)
            right = right && self->data[at] == node_element(rank, round, at);
    return right;
}

static bool scatter(rank *self, const nd_transport_call *call, int64_t round) {
    int64_t counts[RANKS_MOST], first = 0;
    int64_t total = take_counts(self->ranks, round, counts);
    nd_sums sums = {sizeof(int64_t), NULL, combine, settle};
    for (int64_t i = 0; i < total; i++)
        self->data[i] = node_element(self->number, round, i);
    if (nd__node_scatter(self->node, call, &while_idle, &sums, self->data, counts) != ND_OK)
        return false;
    for (int rank = 0; rank < self->number; rank++)
        first += counts[rank];
    bool right = true;
    for (int64_t i = first; i < first + counts[self->number]; i++)
        right = right && self->data[i] == node_sum(self->ranks, round, i);
    return right;
}

static void *run(void *data) {
    rank *self = data;
    nd_transport_call call = {.operation = "reduce", .seconds = 60};
    for (int64_t round = 0; round < ROUNDS; round++) {
        if ((round + self->number) % 5 == 0)
            sched_yield();
        self->wrong += !reduce(self, &call, round);
        for (int i = 0; i < round % 4; i++)
            self->wrong += !agree(self, &call, round + i);
        // Each behind the other without an agreement between, as no communicator calls them.
        self->wrong += round % 2 == 0 && !gather(self, &call, round);
        self->wrong += round % 5 < 3 && !scatter(self, &call, round);
    }
    return NULL;
}

static void with_ranks(int ranks) {
    static rank all[RANKS_MOST];
    int64_t share_before = nd__node_share, copied_before = nd__node_copied;
    nd_node_key key;
    nd__node_share = NODE_SHARE;
    nd__node_copied = NODE_SHARE / 2;
    for (int i = 0; i < ranks; i++) {
        all[i] = (rank){.number = i, .ranks = ranks};
        all[i].node = i == 0 ? nd__node_make(ranks, &key) : nd__node_join(&key, i, ranks);
        assert_non_null(all[i].node);
    }
    nd__node_seal(all[0].node);
    assert_int_equal(mapping.count, ranks);
    for (int i = 0; i < ranks; i++)
        assert_int_equal(pthread_create(&all[i].thread, NULL, run, &all[i]), 0);
    for (int i = 0; i < ranks; i++)
        pthread_join(all[i].thread, NULL);
    for (int i = 0; i < ranks; i++) {
        assert_int_equal(all[i].wrong, 0);
        nd__node_free(all[i].node);
    }
    assert_int_equal(mapping.count, 0);
    assert_int_equal(count_mappings(), 0);
    nd__node_share = share_before;
    nd__node_copied = copied_before;
}

static void test_two_ranks(void **state) {
    (void)state;
    with_ranks(2);
}

static void test_three_ranks(void **state) {
    (void)state;
    with_ranks(3);
}

static void test_four_ranks(void **state) {
    (void)state;
    with_ranks(4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_two_ranks),
        ND_TEST(test_three_ranks),
        ND_TEST(test_four_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
