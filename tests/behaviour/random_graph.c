// G19: random graphs under link, unlink, retain, release and collect, beside a model of them.
//
// The model knows the handles held and the edges, nothing of counts. After every step a cell that
// can be reached from a held handle must be alive; after every collection with nothing beside it
// the cells alive must be exactly those. Each cell dies once.
//
// With threads, each has a graph of its own, changes it at random, and also links its cells to the
// common ones, which the test holds; these point back into all graphs. Collections run beside.
// Between rounds everybody rests, and the verdict must be exact for all graphs together.
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum {
    SLOTS = 160,
    EDGES = 4,
    STEPS = 20000 / ND_TEST_SCALE,
    MANAGERS = 4,
    COMMON = 24,
    NONE = SLOTS,
    FIRST_COMMON = SLOTS + 1, ///< an edge to the i-th common cell is FIRST_COMMON + i
};

typedef struct vertex {
    nd_object *object; // NULL: the slot is free
    uint32_t number;
    uint32_t held;
    uint32_t rooted;       // edges to it from common cells
    uint32_t edges[EDGES]; // slots; NONE; common cells
} vertex;

typedef struct graph {
    vertex vertices[SLOTS];
    nd_manager *managers[MANAGERS];
    bool reachable[SLOTS];
    uint32_t created, first_number;
    uint64_t random;
    nd_object *const *common; // NULL: there are none, and nobody else is at work
} graph;

static uint32_t draw(graph *g, uint32_t below) {
    g->random ^= g->random << 13;
    g->random ^= g->random >> 7;
    g->random ^= g->random << 17;
    return (uint32_t)((g->random >> 11) % below);
}

/// Plain mark from the held handles.
static void mark(graph *g) {
    uint32_t stack[SLOTS], depth = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        g->reachable[i] = g->vertices[i].object && (g->vertices[i].held || g->vertices[i].rooted);
        if (g->reachable[i])
            stack[depth++] = i;
    }
    while (depth) {
        const vertex *v = &g->vertices[stack[--depth]];
        for (int k = 0; k < EDGES; k++) {
            uint32_t to = v->edges[k];
            if (to < NONE && !g->reachable[to]) {
                g->reachable[to] = true;
                stack[depth++] = to;
            }
        }
    }
}

/// Takes the dead out of the model; none of them may have been reachable.
static void bury_the_dead(graph *g) {
    mark(g);
    for (uint32_t i = 0; i < SLOTS; i++) {
        vertex *v = &g->vertices[i];
        if (!v->object)
            continue;
        uint32_t deaths = cell_deaths(v->number);
        if (g->reachable[i])
            assert_int_equal(deaths, 0);
        assert_in_range(deaths, 0, 1);
        if (deaths)
            v->object = NULL;
    }
}

/// A random slot that is reachable, so that the object may be used; NONE when there is none.
static uint32_t pick(graph *g) {
    for (int tries = 0; tries < 40; tries++) {
        uint32_t slot = draw(g, SLOTS);
        if (g->reachable[slot])
            return slot;
    }
    return NONE;
}

static void create(graph *g, uint32_t slot) {
    vertex *v = &g->vertices[slot];
    nd_with_manager(g->managers[draw(g, MANAGERS)]) {
        v->object = cell_new(g->first_number + g->created, EDGES);
    }
    assert_handle(v->object);
    v->number = g->first_number + g->created++;
    v->held = 1;
    v->rooted = 0;
    for (int k = 0; k < EDGES; k++)
        v->edges[k] = NONE;
}

static void link_two(graph *g, uint32_t from, uint32_t to) {
    uint32_t k = draw(g, EDGES);
    const nd_object *target = NULL;
    if (to < NONE)
        target = g->vertices[to].object;
    else if (to >= FIRST_COMMON)
        target = g->common[to - FIRST_COMMON];
    g->vertices[from].edges[k] = to;
    cell_link(g->vertices[from].object, k, target);
}

/// The verdict of a collection of everything is that of the mark; of one manager, at least never
/// more.
static void collect(graph *g, const nd_manager *manager) {
    nd_gc_report report = ND_GC_REPORT_INIT;
    uint64_t before = cell_total_deaths();
    assert_ok(nd_gc_collect(manager, &report));
    assert_int_equal(cell_total_deaths() - before, report.collected_objects);
    bury_the_dead(g);
    if (manager)
        return;
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_int_equal(g->vertices[i].object != NULL, g->reachable[i]);
}

static void step(graph *g) {
    uint32_t slot;
    switch (draw(g, 16)) {
    case 0:
    case 1:
        slot = draw(g, SLOTS);
        if (!g->vertices[slot].object)
            create(g, slot);
        return;
    case 2:
    case 3:
    case 4:
    case 5:
    case 6: {
        uint32_t from = pick(g), to = pick(g);
        if (g->common && draw(g, 8) == 0)
            to = FIRST_COMMON + draw(g, COMMON);
        if (from != NONE && to != NONE)
            link_two(g, from, to);
        break;
    }
    case 7:
        if ((slot = pick(g)) != NONE)
            link_two(g, slot, NONE);
        break;
    case 8:
        if ((slot = pick(g)) != NONE) {
            nd_object *again = nd_retain(g->vertices[slot].object);
            assert_ptr_equal(again, g->vertices[slot].object);
            g->vertices[slot].held++;
        }
        break;
    case 15:
        if (!g->common && draw(g, 8) == 0)
            collect(g, draw(g, 3) ? NULL : g->managers[draw(g, MANAGERS)]);
        return;
    default:
        slot = draw(g, SLOTS);
        if (g->vertices[slot].object && g->vertices[slot].held) {
            g->vertices[slot].held--;
            nd_release(g->vertices[slot].object);
        }
    }
    bury_the_dead(g);
}

static void run(uint64_t seed) {
    cell_begin(STEPS + 1);
    graph *g = calloc(1, sizeof *g);
    assert_non_null(g);
    g->random = seed * UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t i = 0; i < MANAGERS; i++)
        g->managers[i] = nd_manager_new(i ? g->managers[i / 2] : NULL, "part");
    for (int i = 0; i < STEPS; i++)
        step(g);
    assert_true(g->created > STEPS / 40);
    collect(g, NULL);
    for (uint32_t i = 0; i < SLOTS; i++)
        for (; g->vertices[i].object && g->vertices[i].held; g->vertices[i].held--)
            nd_release(g->vertices[i].object);
    bury_the_dead(g);
    collect(g, NULL);
    for (uint32_t number = 0; number < g->created; number++)
        assert_int_equal(cell_deaths(number), 1);
    for (uint32_t i = MANAGERS; i-- > 0;) {
        assert_ok(nd_manager_close(g->managers[i], NULL));
        nd_release(g->managers[i]);
    }
    free(g);
}

static void test_G19_random_graph_agrees_with_a_plain_mark(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++)
        run(seed);
}

static void *wait_for_stop(void *stop) {
    while (!atomic_load((atomic_bool *)stop))
        nanosleep(&(struct timespec){0, 100000}, NULL);
    return NULL;
}

/// The same, each collection in steps of one batch of objects: only a second thread makes them
/// worth it.
static void test_G19_random_graph_in_steps(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    atomic_bool stop = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_stop, &stop), 0);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    for (uint64_t seed = 101; seed <= 104; seed++)
        run(seed);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

// ----------------------------------------------------------------------------------------- threads

enum { THREADS = 3, COLLECTORS = 1, ROUNDS = 40, ROUND_STEPS = 3000 / ND_TEST_SCALE };

typedef struct part {
    graph g;
    struct town *town;
} part;

typedef struct town {
    part parts[THREADS];
    nd_object *common[COMMON];
    struct {
        uint32_t part, slot;
    } points_to[COMMON][EDGES];
    pthread_barrier_t begin, end, rested;
    atomic_bool resting;
    nd_manager *managers[MANAGERS];
} town;

static void *change_at_random(void *data) {
    part *me = data;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&me->town->begin);
        for (int i = 0; i < ROUND_STEPS; i++)
            step(&me->g);
        pthread_barrier_wait(&me->town->end);
    }
    return NULL;
}

static void *collect_beside(void *data) {
    town *t = data;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&t->begin);
        for (uint32_t i = 0; !atomic_load(&t->resting); i++)
            if (nd_gc_collect(i % 3 ? NULL : t->managers[i / 3 % MANAGERS], NULL) != ND_OK)
                abort();
        pthread_barrier_wait(&t->rested);
    }
    return NULL;
}

/// Points an edge of a common cell at some reachable cell of some graph, or at nothing.
static void point_elsewhere(town *t, graph *random) {
    uint32_t c = draw(random, COMMON), k = draw(random, EDGES), p = draw(random, THREADS);
    uint32_t before = t->points_to[c][k].slot;
    if (before != NONE)
        t->parts[t->points_to[c][k].part].g.vertices[before].rooted--;
    uint32_t slot = draw(random, 3) ? pick(&t->parts[p].g) : NONE;
    t->points_to[c][k].part = p;
    t->points_to[c][k].slot = slot;
    if (slot != NONE)
        t->parts[p].g.vertices[slot].rooted++;
    cell_link(t->common[c], k, slot == NONE ? NULL : t->parts[p].g.vertices[slot].object);
    for (int i = 0; i < THREADS; i++)
        mark(&t->parts[i].g);
}

/// Everybody rests: after a collection exactly what can be reached is alive.
static void judge(town *t) {
    assert_ok(nd_gc_collect(NULL, NULL));
    for (int p = 0; p < THREADS; p++) {
        graph *g = &t->parts[p].g;
        bury_the_dead(g);
        for (uint32_t i = 0; i < SLOTS; i++)
            assert_int_equal(g->vertices[i].object != NULL, g->reachable[i]);
    }
    for (int c = 0; c < COMMON; c++)
        assert_int_equal(cell_deaths((uint32_t)c), 0);
}

static void begin_town(town *t, uint64_t seed) {
    for (uint32_t i = 0; i < MANAGERS; i++)
        t->managers[i] = nd_manager_new(i ? t->managers[i / 2] : NULL, "part");
    for (uint32_t c = 0; c < COMMON; c++) {
        nd_with_manager(t->managers[c % MANAGERS]) t->common[c] = cell_new(c, EDGES);
        for (int k = 0; k < EDGES; k++)
            t->points_to[c][k].slot = NONE;
    }
    for (uint32_t p = 0; p < THREADS; p++) {
        graph *g = &t->parts[p].g;
        t->parts[p].town = t;
        g->random = (seed + p + 1) * UINT64_C(0x9E3779B97F4A7C15);
        g->common = t->common;
        g->first_number = COMMON + p * ROUNDS * ROUND_STEPS;
        memcpy(g->managers, t->managers, sizeof t->managers);
    }
    pthread_barrier_init(&t->begin, NULL, THREADS + COLLECTORS + 1);
    pthread_barrier_init(&t->end, NULL, THREADS + 1);
    pthread_barrier_init(&t->rested, NULL, COLLECTORS + 1);
}

static void end_town(town *t) {
    for (uint32_t c = 0; c < COMMON; c++)
        nd_release(t->common[c]);
    uint32_t created = 0;
    for (int p = 0; p < THREADS; p++) {
        graph *g = &t->parts[p].g;
        created += g->created;
        for (uint32_t i = 0; i < SLOTS; i++) {
            g->vertices[i].rooted = 0;
            for (; g->vertices[i].object && g->vertices[i].held; g->vertices[i].held--)
                nd_release(g->vertices[i].object);
        }
    }
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_int_equal(cell_total_deaths(), COMMON + created);
    assert_true(created > 1000 / ND_TEST_SCALE);
    for (uint32_t i = MANAGERS; i-- > 0;) {
        assert_ok(nd_manager_close(t->managers[i], NULL));
        nd_release(t->managers[i]);
    }
    pthread_barrier_destroy(&t->begin);
    pthread_barrier_destroy(&t->end);
    pthread_barrier_destroy(&t->rested);
}

static void run_town(uint64_t seed) {
    cell_begin(COMMON + THREADS * ROUNDS * ROUND_STEPS);
    town *t = calloc(1, sizeof *t);
    assert_non_null(t);
    begin_town(t, seed);
    pthread_t threads[THREADS + COLLECTORS];
    for (int i = 0; i < THREADS + COLLECTORS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL,
                                        i < THREADS ? change_at_random : collect_beside,
                                        i < THREADS ? (void *)&t->parts[i] : t),
                         0);
    graph random = {.random = seed};
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 20; i++)
            point_elsewhere(t, &random);
        atomic_store(&t->resting, false);
        pthread_barrier_wait(&t->begin);
        pthread_barrier_wait(&t->end);
        atomic_store(&t->resting, true);
        pthread_barrier_wait(&t->rested);
        judge(t);
    }
    for (int i = 0; i < THREADS + COLLECTORS; i++)
        pthread_join(threads[i], NULL);
    end_town(t);
    free(t);
}

static void test_G19_random_graphs_of_threads(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    for (uint64_t seed = 1; seed <= 3; seed++)
        run_town(seed);
}

static void test_G19_random_graphs_of_threads_in_steps(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    for (uint64_t seed = 11; seed <= 13; seed++)
        run_town(seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_G19_random_graph_agrees_with_a_plain_mark),
                                       ND_TEST(test_G19_random_graph_in_steps),
                                       ND_TEST(test_G19_random_graphs_of_threads),
                                       ND_TEST(test_G19_random_graphs_of_threads_in_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
