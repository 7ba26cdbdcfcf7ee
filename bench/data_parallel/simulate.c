// Discrete events, the earliest first: a message arrives, or a rank has done what it was doing.
//
// Messages may arrive before their rank asks for them, of the bucket it is at or of the next one: a
// rank cannot be further ahead, since each bucket's sums need a message of every rank. So
// `arrived` has a place for each round of two buckets.
#include "bench/data_parallel/simulate.h"

#include <math.h>
#include <stdlib.h>

static const double message_bytes = 4 << 20, ring_bytes = 128 << 10;

typedef struct event {
    double time;
    uint64_t order; ///< of those at the same time
    int rank;
    int64_t place; ///< of `arrived`; -1: the rank has done its round, or its bucket is ready
} event;

typedef struct rank_state {
    size_t bucket;
    int64_t round;   ///< -1: the bucket is waited for
    double sent;     ///< when this round's own message has left
    bool exchanging; ///< the round's message is waited for
} rank_state;

typedef struct simulation {
    const sim_step *step;
    sim_result *result;
    int levels; ///< ranks = 1 << levels
    int64_t rounds_most;
    rank_state *ranks;
    double *arrived; ///< [2][ranks][rounds_most]; negative: not yet
    event *heap;
    size_t heap_count, heap_room;
    uint64_t order;
    bool failed;
} simulation;

/// One exchange of a rank.
typedef struct exchange {
    int to;
    double bytes, summed; ///< sent, and received; of the latter added up
} exchange;

// --------------------------------------------------------------------------------------- algorithms

static sim_algorithm algorithm_for(const sim_step *step, double bytes) {
    bool ring = bytes >= ring_bytes * step->ranks;
    return step->algorithm != SIM_CHOSEN ? step->algorithm : ring ? SIM_RING : SIM_HALVING;
}

static int64_t pieces_of(const sim_step *step, double bytes) {
    return (int64_t)fmax(1, ceil(bytes / (message_bytes * step->ranks)));
}

static int64_t rounds_of(const simulation *sim, double bytes) {
    const sim_step *step = sim->step;
    sim_algorithm algorithm = algorithm_for(step, bytes);
    return algorithm == SIM_RING      ? pieces_of(step, bytes) * 2 * (step->ranks - 1)
           : algorithm == SIM_HALVING ? 2 * sim->levels
                                      : sim->levels;
}

static exchange exchange_of(const simulation *sim, int rank, int64_t round, double bytes) {
    const sim_step *step = sim->step;
    sim_algorithm algorithm = algorithm_for(step, bytes);
    if (algorithm == SIM_RING) {
        double share = bytes / (double)pieces_of(step, bytes) / step->ranks;
        bool sums = round % (2 * (step->ranks - 1)) < step->ranks - 1;
        return (exchange){(rank + 1) % step->ranks, share, sums ? share : 0};
    }
    if (algorithm == SIM_DOUBLING)
        return (exchange){rank ^ (1 << round), bytes, bytes};
    int64_t distance = round < sim->levels ? sim->levels - 1 - round : round - sim->levels;
    double share = bytes / (double)(step->ranks >> distance);
    return (exchange){rank ^ (1 << distance), share, round < sim->levels ? share : 0};
}

// ------------------------------------------------------------------------------------------- events

static bool is_before(const event *a, const event *b) {
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

static void push(simulation *sim, double time, int rank, int64_t place) {
    if (sim->heap_count == sim->heap_room) {
        size_t room = sim->heap_room ? 2 * sim->heap_room : 1024;
        event *heap = realloc(sim->heap, room * sizeof *heap);
        sim->failed = sim->failed || !heap;
        if (!heap)
            return;
        sim->heap = heap;
        sim->heap_room = room;
    }
    event new = {time, sim->order++, rank, place};
    size_t at = sim->heap_count++;
    for (; at > 0 && is_before(&new, &sim->heap[(at - 1) / 2]); at = (at - 1) / 2)
        sim->heap[at] = sim->heap[(at - 1) / 2];
    sim->heap[at] = new;
}

static event pop(simulation *sim) {
    event first = sim->heap[0], last = sim->heap[--sim->heap_count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < sim->heap_count; at = child) {
        if (child + 1 < sim->heap_count && is_before(&sim->heap[child + 1], &sim->heap[child]))
            child++;
        if (!is_before(&sim->heap[child], &last))
            break;
        sim->heap[at] = sim->heap[child];
    }
    sim->heap[at] = last;
    return first;
}

// -------------------------------------------------------------------------------------------- ranks

static int64_t place_of(const simulation *sim, size_t bucket, int rank, int64_t round) {
    return ((int64_t)(bucket % 2) * sim->step->ranks + rank) * sim->rounds_most + round;
}

/// The round's message is there, or not yet.
static void try_round(simulation *sim, int rank) {
    rank_state *state = &sim->ranks[rank];
    double *there = &sim->arrived[place_of(sim, state->bucket, rank, state->round)];
    if (!state->exchanging || *there < 0)
        return;
    double bytes = sim->step->bytes[state->bucket];
    double summed = exchange_of(sim, rank, state->round, bytes).summed;
    push(sim, fmax(*there, state->sent) + summed * sim->step->costs.per_sum_byte, rank, -1);
    *there = -1;
    state->exchanging = false;
}

static void begin_round(simulation *sim, int rank, double now) {
    rank_state *state = &sim->ranks[rank];
    const sim_costs *costs = &sim->step->costs;
    exchange of = exchange_of(sim, rank, state->round, sim->step->bytes[state->bucket]);
    state->sent = now + of.bytes * costs->per_byte;
    state->exchanging = true;
    push(sim, state->sent + costs->latency, of.to,
         place_of(sim, state->bucket, of.to, state->round));
    sim->result->messages++;
    try_round(sim, rank);
}

/// When this rank has a bucket: late ranks are late at all of them.
static double ready_at(const simulation *sim, int rank, size_t bucket) {
    uint64_t random = (uint64_t)(rank + 1) * UINT64_C(0x9E3779B97F4A7C15);
    random = (random ^ (random >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    double late = sim->step->spread * (double)(random >> 11) * 0x1p-53;
    return sim->step->ready[bucket] * (1 + late);
}

/// The rank is at its next bucket, if there is one.
static void await_bucket(simulation *sim, int rank, double now) {
    rank_state *state = &sim->ranks[rank];
    state->round = -1;
    if (state->bucket < sim->step->count)
        push(sim, fmax(now, ready_at(sim, rank, state->bucket)), rank, -1);
}

static void go_on(simulation *sim, int rank, double now) {
    rank_state *state = &sim->ranks[rank];
    if (rank == 0 && state->round < 0)
        sim->result->begin[state->bucket] = now;
    state->round++;
    if (state->round < rounds_of(sim, sim->step->bytes[state->bucket])) {
        begin_round(sim, rank, now);
        return;
    }
    if (rank == 0)
        sim->result->end[state->bucket] = now;
    sim->result->finish = fmax(sim->result->finish, now);
    state->bucket++;
    await_bucket(sim, rank, now);
}

bool simulate(const sim_step *step, sim_result *ret_result) {
    simulation sim = {.step = step, .result = ret_result};
    *ret_result = (sim_result){.finish = 0};
    while (1 << sim.levels < step->ranks)
        sim.levels++;
    if (step->ranks < 1 || 1 << sim.levels != step->ranks || step->count > SIM_BUCKETS)
        return false;
    sim.rounds_most = 1;
    for (size_t i = 0; i < step->count; i++)
        if (rounds_of(&sim, step->bytes[i]) > sim.rounds_most)
            sim.rounds_most = rounds_of(&sim, step->bytes[i]);
    size_t places = 2 * (size_t)step->ranks * (size_t)sim.rounds_most;
    sim.ranks = calloc((size_t)step->ranks, sizeof *sim.ranks);
    sim.arrived = malloc(places * sizeof *sim.arrived);
    sim.failed = !sim.ranks || !sim.arrived;
    for (size_t i = 0; !sim.failed && i < places; i++)
        sim.arrived[i] = -1;
    for (int rank = 0; !sim.failed && rank < step->ranks; rank++)
        await_bucket(&sim, rank, 0);
    while (!sim.failed && sim.heap_count > 0) {
        event now = pop(&sim);
        if (now.place < 0) {
            go_on(&sim, now.rank, now.time);
        } else {
            sim.arrived[now.place] = now.time;
            rank_state *state = &sim.ranks[now.rank];
            if (state->round >= 0 && state->exchanging)
                try_round(&sim, now.rank);
        }
    }
    free(sim.ranks);
    free(sim.arrived);
    free(sim.heap);
    return !sim.failed;
}
