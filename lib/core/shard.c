// Shards of managers: their locks, and sums over them.
#include "lib/core/manager_internal.h"

void nd__lock_pair(nd_shard *a, nd_shard *b) {
    if (a == b) {
        nd__lock(&a->lock);
        return;
    }
    nd__lock(a < b ? &a->lock : &b->lock);
    nd__lock(a < b ? &b->lock : &a->lock);
}

void nd__unlock_pair(nd_shard *a, nd_shard *b) {
    nd__unlock(&a->lock);
    if (a != b)
        nd__unlock(&b->lock);
}

static nd__counters shard_count(nd_shard *shard) {
    nd__lock(&shard->lock);
    nd__counters count = shard->count;
    nd__unlock(&shard->lock);
    return count;
}

nd__counters nd__manager_count(nd_manager *manager) {
    enum { MEMBERS = sizeof(nd__counters) / sizeof(uint64_t) };
    nd_shard *shard = nd__first_shard(manager);
    nd__counters total = shard_count(shard);
    while (__builtin_expect((shard = nd__next_shard(shard)) != NULL, 0)) {
        nd__counters one = shard_count(shard);
        for (int i = 0; i < MEMBERS; i++)
            ((uint64_t *)&total)[i] += ((const uint64_t *)&one)[i];
    }
    return total;
}
