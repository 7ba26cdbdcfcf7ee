// Discrete events, the earliest first: a message arrives, an exchange is over, or a rank has done
// what it was doing.
//
// A rank is at several pieces of a bucket at once, in lanes: one lane has piece 0, 4, 8, ... of a
// ring, and all rounds of another algorithm are one piece. A round is numbered through all pieces.
//
// Messages may arrive before their rank asks for them, of the bucket it is at or of the next one: a
// rank cannot be further ahead, since each bucket's sums need a message of every rank. So
// `arrived` has a place for each round of two buckets.
#include "bench/data_parallel/simulate.h"

#include <math.h>
#include <stdlib.h>

static const double message_bytes = 2 << 20, ring_bytes = 128 << 10;

enum { LANES = 4 };

typedef enum what {
    BUCKET_READY, ///< the rank has it
    ARRIVED,      ///< a message, at `place` of `arrived`
    EXCHANGED,    ///< a lane's message has left and the other rank's is there
    ADDED_UP,     ///< a lane has done its round
} what;

typedef struct event {
    double time;
    uint64_t order; ///< of those at the same time
    int rank, lane;
    what what;
    int64_t place;
} event;

typedef struct lane {
    int64_t round;   ///< -1: none
    double sent;     ///< when this round's own message has left
    bool exchanging; ///< the round's message is waited for
} lane;

typedef struct rank_state {
    size_t bucket;
    lane lanes[LANES];
    int under_way;                    ///< lanes that have a round
    double link_free, processor_free; ///< from when on
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

/// Rounds of a piece, and how many pieces there are.
static int64_t piece_rounds(const simulation *sim, double bytes, int64_t *ret_pieces) {
    const sim_step *step = sim->step;
    sim_algorithm algorithm = algorithm_for(step, bytes);
    *ret_pieces = algorithm == SIM_RING ? pieces_of(step, bytes) : 1;
    return algorithm == SIM_RING      ? 2 * (step->ranks - 1)
           : algorithm == SIM_HALVING ? 2 * sim->levels
                                      : sim->levels;
}

static int64_t rounds_of(const simulation *sim, double bytes) {
    int64_t pieces;
    int64_t rounds = piece_rounds(sim, bytes, &pieces);
    return rounds * pieces;
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

static void push(simulation *sim, event new) {
    if (sim->heap_count == sim->heap_room) {
        size_t room = sim->heap_room ? 2 * sim->heap_room : 1024;
        event *heap = realloc(sim->heap, room * sizeof *heap);
        sim->failed = sim->failed || !heap;
        if (!heap)
            return;
        sim->heap = heap;
        sim->heap_room = room;
    }
    new.order = sim->order++;
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

/// Whether the message of a lane's round is there: then the exchange is over when its own has left.
static void try_round(simulation *sim, int rank, int number) {
    rank_state *state = &sim->ranks[rank];
    lane *lane = &state->lanes[number];
    double *there = &sim->arrived[place_of(sim, state->bucket, rank, lane->round)];
    if (*there < 0)
        return;
    push(
        sim,
        (event){.time = fmax(*there, lane->sent), .rank = rank, .lane = number, .what = EXCHANGED});
    *there = -1;
    lane->exchanging = false;
}

/// A lane sends its message, behind those of the other lanes.
static void begin_round(simulation *sim, int rank, int number, double now) {
    rank_state *state = &sim->ranks[rank];
    lane *lane = &state->lanes[number];
    const sim_costs *costs = &sim->step->costs;
    exchange of = exchange_of(sim, rank, lane->round, sim->step->bytes[state->bucket]);
    lane->sent = state->link_free = fmax(now, state->link_free) + of.bytes * costs->per_byte;
    lane->exchanging = true;
    push(sim, (event){.time = lane->sent + costs->latency,
                      .rank = of.to,
                      .what = ARRIVED,
                      .place = place_of(sim, state->bucket, of.to, lane->round)});
    sim->result->messages++;
    try_round(sim, rank, number);
}

/// What a lane has received is added up, behind what the other lanes have.
static void add_up(simulation *sim, int rank, int number, double now) {
    rank_state *state = &sim->ranks[rank];
    double bytes = sim->step->bytes[state->bucket];
    double summed = exchange_of(sim, rank, state->lanes[number].round, bytes).summed;
    if (summed > 0)
        now = state->processor_free =
            fmax(now, state->processor_free) + summed * sim->step->costs.per_sum_byte;
    push(sim, (event){.time = now, .rank = rank, .lane = number, .what = ADDED_UP});
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
    const rank_state *state = &sim->ranks[rank];
    if (state->bucket < sim->step->count)
        push(sim, (event){.time = fmax(now, ready_at(sim, rank, state->bucket)),
                          .rank = rank,
                          .what = BUCKET_READY});
}

static void end_bucket(simulation *sim, int rank, double now) {
    rank_state *state = &sim->ranks[rank];
    if (rank == 0)
        sim->result->end[state->bucket] = now;
    sim->result->finish = fmax(sim->result->finish, now);
    state->bucket++;
    await_bucket(sim, rank, now);
}

/// A piece in each lane, where there are so many.
static void begin_bucket(simulation *sim, int rank, double now) {
    rank_state *state = &sim->ranks[rank];
    int64_t pieces, rounds = piece_rounds(sim, sim->step->bytes[state->bucket], &pieces);
    if (rank == 0)
        sim->result->begin[state->bucket] = now;
    state->under_way = (int)(rounds == 0 ? 0 : pieces < LANES ? pieces : LANES);
    for (int i = 0; i < LANES; i++)
        state->lanes[i] = (lane){.round = i < state->under_way ? i * rounds : -1};
    for (int i = 0; i < state->under_way; i++)
        begin_round(sim, rank, i, now);
    if (state->under_way == 0)
        end_bucket(sim, rank, now);
}

static void end_round(simulation *sim, int rank, int number, double now) {
    rank_state *state = &sim->ranks[rank];
    lane *lane = &state->lanes[number];
    int64_t pieces, rounds = piece_rounds(sim, sim->step->bytes[state->bucket], &pieces);
    if (++lane->round % rounds == 0)
        lane->round += (LANES - 1) * rounds;
    if (lane->round < pieces * rounds) {
        begin_round(sim, rank, number, now);
        return;
    }
    lane->round = -1;
    if (--state->under_way == 0)
        end_bucket(sim, rank, now);
}

/// A message has come, which a lane may wait for.
static void arrive(simulation *sim, const event *message) {
    const rank_state *state = &sim->ranks[message->rank];
    sim->arrived[message->place] = message->time;
    for (int i = 0; i < LANES; i++)
        if (state->lanes[i].exchanging &&
            place_of(sim, state->bucket, message->rank, state->lanes[i].round) == message->place)
            try_round(sim, message->rank, i);
}

static void happen(simulation *sim, const event *now) {
    if (now->what == BUCKET_READY)
        begin_bucket(sim, now->rank, now->time);
    else if (now->what == ARRIVED)
        arrive(sim, now);
    else if (now->what == EXCHANGED)
        add_up(sim, now->rank, now->lane, now->time);
    else
        end_round(sim, now->rank, now->lane, now->time);
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
        happen(&sim, &now);
    }
    free(sim.ranks);
    free(sim.arrived);
    free(sim.heap);
    return !sim.failed;
}
