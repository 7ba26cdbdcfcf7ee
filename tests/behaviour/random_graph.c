// G19: a random graph under link, unlink, retain, release and collect, beside a model of it.
//
// The model knows the handles held and the edges, nothing of counts. After every step a cell that
// can be reached from a held handle must be alive; after every collection the cells alive must be
// exactly those. Each cell dies once.
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { SLOTS = 160, EDGES = 4, STEPS = 20000 / ND_TEST_SCALE, MANAGERS = 4, NONE = SLOTS };

typedef struct vertex {
    nd_object *object; // NULL: the slot is free
    uint32_t number;
    uint32_t held;
    uint32_t edges[EDGES]; // slots; NONE
} vertex;

typedef struct graph {
    vertex vertices[SLOTS];
    nd_manager *managers[MANAGERS];
    bool reachable[SLOTS];
    uint32_t created;
    uint64_t random;
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
        g->reachable[i] = g->vertices[i].object && g->vertices[i].held;
        if (g->reachable[i])
            stack[depth++] = i;
    }
    while (depth) {
        const vertex *v = &g->vertices[stack[--depth]];
        for (int k = 0; k < EDGES; k++) {
            uint32_t to = v->edges[k];
            if (to != NONE && !g->reachable[to]) {
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
        v->object = cell_new(g->created, EDGES);
    }
    assert_handle(v->object);
    v->number = g->created++;
    v->held = 1;
    for (int k = 0; k < EDGES; k++)
        v->edges[k] = NONE;
}

static void link_two(graph *g, uint32_t from, uint32_t to) {
    uint32_t k = draw(g, EDGES);
    g->vertices[from].edges[k] = to;
    cell_link(g->vertices[from].object, k, to == NONE ? NULL : g->vertices[to].object);
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
        if (draw(g, 8) == 0)
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

/// The same, each collection in steps of one batch of objects: only a second thread makes them worth it.
static void test_G19_random_graph_in_steps(void **state) {
    (void)state;
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

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_G19_random_graph_agrees_with_a_plain_mark),
                                       ND_TEST(test_G19_random_graph_in_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
