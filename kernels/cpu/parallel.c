// Cuts a range into shares and hands them to the pool.
//
// Shares are claimed one by one, so there are several for each thread: what a thread that was taken
// off its core has not begun, the others do.
#include "kernels/cpu/parallel.h"
#include "lib/base/pool.h"

/// A share is no less work than this, and no more than that where the range is long.
#define LEAST_SHARE (ND__PARALLEL_WORK / 2)
#define MOST_SHARE ((int64_t)1 << 20)
#define SHARES_OF_A_THREAD 4
/// Up to so much work for each thread there is one share for each: what a thread computes again and
/// again over the same memory stays in its cache, and between cores with a last cache each that is
/// worth more than a share that somebody else might have begun.
#define ONE_SHARE ((int64_t)1 << 18)

typedef struct range {
    nd__range_body body;
    void *context;
    int64_t total, grain, pieces, shares;
} range;

int nd__cpu_threads(void) {
    return nd__pool_threads();
}

bool nd__cpu_is_deterministic(void) {
    return nd__pool_is_deterministic();
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/// Where a share begins: the multiple of grain at its part of all pieces, without overflow.
static int64_t begin_of(const range *r, int64_t share) {
    int64_t each = r->pieces / r->shares, more = r->pieces % r->shares;
    return least((share * each + least(share, more)) * r->grain, r->total);
}

static void run_share(void *context, int64_t share) {
    const range *r = (const range *)context;
    r->body(r->context, begin_of(r, share), begin_of(r, share + 1));
}

/// As many shares as the work is worth, and as there are pieces.
static int64_t shares_of(int64_t total, int64_t cost, int64_t pieces, int threads) {
    int64_t most = least(cost < LEAST_SHARE ? total / (LEAST_SHARE / cost) : total, INT32_MAX);
    int64_t long_range = cost < MOST_SHARE ? total / (MOST_SHARE / cost) : total;
    int64_t shares = total / threads <= ONE_SHARE / cost ? threads : threads * SHARES_OF_A_THREAD;
    shares = shares > long_range ? shares : long_range;
    return least(least(shares, most), pieces);
}

void nd__cpu_parallel(int64_t total, int64_t cost, int64_t grain, nd__range_body body,
                      void *context) {
    int64_t pieces = (total + grain - 1) / grain;
    cost = cost > 0 ? cost : 1;
    int threads = pieces > 1 && total > ND__PARALLEL_WORK / cost ? nd__cpu_threads() : 1;
    int64_t shares = threads > 1 ? shares_of(total, cost, pieces, threads) : 1;
    if (shares <= 1) {
        if (total > 0)
            body(context, 0, total);
        return;
    }
    range r = {body, context, total, grain, pieces, shares};
    nd__pool_run(shares, run_share, &r);
}
