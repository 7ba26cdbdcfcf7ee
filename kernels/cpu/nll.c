// The negative log likelihood of classes, and its gradient.
//
// Invariant: sums are of pieces that depend on sizes alone, added one after the other.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include <stdatomic.h>
#include <string.h>

enum { PIECE = 4096 };

/// What a piece of the targets adds up to.
typedef struct nll_sums {
    double loss, weight;
} nll_sums;

typedef struct nll_work {
    const void *x, *weight, *grad; ///< weight may be NULL
    const int64_t *targets;
    void *out;
    int64_t classes, places, ignored, count; ///< count: of targets
    nd_nll_result result;
    nll_sums *sums; ///< by piece
    double factor;  ///< of a gradient
    bool wide;      ///< f64
    atomic_bool out_of_range;
} nll_work;

static double number(const nll_work *work, const void *x, int64_t at) {
    return work->wide ? ((const double *)x)[at] : (double)((const float *)x)[at];
}

static void write_number(const nll_work *work, int64_t at, double value) {
    if (work->wide)
        ((double *)work->out)[at] = value;
    else
        ((float *)work->out)[at] = (float)value;
}

static double weight_of(const nll_work *work, int64_t target) {
    if (target == work->ignored)
        return 0.0;
    return work->weight ? number(work, work->weight, target) : 1.0;
}

/// Where the targets stand one after the other, without a division for each.
typedef struct nll_place {
    int64_t sample, place;
} nll_place;

static nll_place place_at(const nll_work *work, int64_t index) {
    int64_t sample = index / work->places;
    return (nll_place){sample, index - sample * work->places};
}

static void step(const nll_work *work, nll_place *at) {
    if (++at->place < work->places)
        return;
    at->place = 0;
    at->sample++;
}

/// Where the element of a target stands in x.
static int64_t element_of(const nll_work *work, const nll_place *at, int64_t target) {
    return (at->sample * work->classes + target) * work->places + at->place;
}

/// Asks for the element of a target that comes later: each may lie on a page of its own. Of one that
/// is no class, for any address.
static void fetch(const nll_work *work, nll_place *ahead, int64_t target) {
    uint64_t element = ((uint64_t)ahead->sample * (uint64_t)work->classes + (uint64_t)target) *
                           (uint64_t)work->places +
                       (uint64_t)ahead->place;
    __builtin_prefetch((const void *)((uintptr_t)work->x + element * (work->wide ? 8 : 4)));
    step(work, ahead);
}

/// The sums of targets that stand one to a sample and weigh the same: so little for each that a
/// processor asks for the elements of the next ones by itself. False where a target is no class.
static inline __attribute__((always_inline)) bool
add_equal(const nll_work *work, int64_t begin, int64_t end, bool wide, nll_sums *ret_sums) {
    const int64_t *targets = work->targets, ignored = work->ignored, classes = work->classes;
    const void *x = work->x;
    double loss = 0.0;
    int64_t counted = 0;
    for (int64_t i = begin; i < end; i++) {
        const int64_t target = targets[i];
        if (target == ignored)
            continue;
        if (target < 0 || target >= classes)
            return false;
        const int64_t at = i * classes + target;
        loss -= wide ? ((const double *)x)[at] : (double)((const float *)x)[at];
        counted++;
    }
    *ret_sums = (nll_sums){loss, (double)counted};
    return true;
}

/// False where a target is no class.
static bool add_piece(const nll_work *work, int64_t begin, int64_t end, nll_sums *ret_sums) {
    enum { AHEAD = 16 };
    if (work->x && !work->weight && work->places == 1 && work->result != ND_NLL_EACH)
        return work->wide ? add_equal(work, begin, end, true, ret_sums)
                          : add_equal(work, begin, end, false, ret_sums);
    nll_sums sums = {0, 0};
    nll_place at = place_at(work, begin), ahead = at;
    int64_t fetched = begin;
    for (int64_t i = begin; i < end; i++, step(work, &at)) {
        for (; work->x && fetched < end && fetched <= i + AHEAD; fetched++)
            fetch(work, &ahead, work->targets[fetched]);
        int64_t target = work->targets[i];
        double loss = 0.0, weight = 0.0;
        if (target != work->ignored) {
            if (target < 0 || target >= work->classes)
                return false;
            weight = weight_of(work, target);
            // Without x only the weights count.
            loss = work->x ? -number(work, work->x, element_of(work, &at, target)) * weight : 0.0;
        }
        sums.loss += loss;
        sums.weight += weight;
        if (work->result == ND_NLL_EACH && work->x)
            write_number(work, i, loss);
    }
    *ret_sums = sums;
    return true;
}

static void pieces(void *context, int64_t begin, int64_t end) {
    nll_work *work = (nll_work *)context;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t first = piece * PIECE, last = first + PIECE;
        if (!add_piece(work, first, last < work->count ? last : work->count, &work->sums[piece]))
            atomic_store(&work->out_of_range, true);
    }
}

static nd_status add_up(nll_work *work, nll_sums *ret_sums) {
    int64_t count = (work->count + PIECE - 1) / PIECE;
    work->sums = (nll_sums *)nd__cpu_scratch((size_t)count * sizeof *work->sums);
    if (!work->sums)
        return ND_ERROR_OUT_OF_MEMORY;
    nd__cpu_parallel(count, 4 * (work->count / count), 1, pieces, work);
    if (atomic_load(&work->out_of_range))
        return ND_ERROR_INVALID_ARGUMENT;
    *ret_sums = (nll_sums){0, 0};
    for (int64_t piece = 0; piece < count; piece++) {
        ret_sums->loss += work->sums[piece].loss;
        ret_sums->weight += work->sums[piece].weight;
    }
    return ND_OK;
}

/// Zeros, but where the target's class stands.
static void grad_samples(void *context, int64_t begin, int64_t end) {
    const nll_work *work = (const nll_work *)context;
    int64_t bytes = work->wide ? 8 : 4, sample = work->classes * work->places * bytes;
    memset((char *)work->out + begin * sample, 0, (size_t)((end - begin) * sample));
    nll_place at = {begin, 0};
    for (int64_t i = begin * work->places; i < end * work->places; i++, step(work, &at)) {
        if (work->targets[i] == work->ignored)
            continue;
        double grad = number(work, work->grad, work->result == ND_NLL_EACH ? i : 0);
        write_number(work, element_of(work, &at, work->targets[i]),
                     -grad * work->factor * weight_of(work, work->targets[i]));
    }
}

nd_status nd__cpu_nll(const nd_kernel_call *call) {
    if (nd__float_index(call->operand[0].dtype) < 0)
        return ND_ERROR_UNSUPPORTED;
    bool backward = call->op == ND_OP_nll_loss_grad;
    nll_work work = {.x = backward ? NULL : call->operand[1].data,
                     .grad = call->operand[1].data,
                     .targets = (const int64_t *)call->operand[2].data,
                     .weight = call->operand[3].data,
                     .out = call->operand[0].data,
                     .classes = call->attrs.i[1],
                     .places = call->attrs.i[2],
                     .ignored = call->attrs.i[3],
                     .count = call->attrs.i[0] * call->attrs.i[2],
                     .result = (nd_nll_result)call->attrs.i[4],
                     .wide = call->operand[0].dtype == ND_F64};
    bool mean = work.result == ND_NLL_MEAN;
    nll_sums sums = {0, 0};
    nd_status status = backward && !mean ? ND_OK : add_up(&work, &sums);
    if (status != ND_OK)
        return status;
    if (backward) {
        work.factor = mean ? 1.0 / sums.weight : 1.0;
        nd__cpu_parallel(call->attrs.i[0], work.classes * work.places, 1, grad_samples, &work);
    } else if (work.result != ND_NLL_EACH) {
        write_number(&work, 0, mean ? sums.loss / sums.weight : sums.loss);
    }
    return ND_OK;
}
