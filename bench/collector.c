// T11 to T13: what the collector costs, Nim's and CPython's beside it in one run.
//
//   T11  close a manager with 1,000,000 dead objects in rings of 2, of 100, and in one ring,
//        freeing included, per object
//   T12  make and close a manager with nothing tracked, 1,000 and 1,000,000 live objects elsewhere
//   T13  close a manager with one survivor that points into a model of 1,000 and of 1,000,000
//        objects
//
// The rivals do the same work: as many objects of one reference each in the same rings, nothing
// collected while they are made, the memory of every one given back before the clock stops.
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/peer.h"

#include <nd/nd.h>

#include <math.h>
#include <stdio.h>

enum { MILLION = 1000000, RING_REPEATS = 7, BOUNDARY_REPEATS = 201, METRICS = 7 };

/// An object of the benchmark: one edge.
typedef struct cell {
    nd_object *next;
} cell;

static void cell_traverse(const nd_object *self, nd_visitor *visitor) {
    const cell *data = nd_object_data(self);
    nd_visit(visitor, data->next, "next");
}

static void cell_clear(nd_object *self) {
    cell *data = nd_object_data(self);
    nd_edge_clear(&data->next);
}

static const nd_type cell_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "cell",
    .traverse = cell_traverse,
    .clear = cell_clear,
};

/// New cell that points to `next` (borrowed; may be NULL).
static nd_object *cell_new(const nd_object *next) {
    nd_object *object = nd_object_new(&cell_type, sizeof(cell));
    if (object && next) {
        cell *data = nd_object_data(object);
        nd_edge_set(&data->next, next);
    }
    return object;
}

/// One ring, held by its returned member.
static nd_object *ring_new(size_t size) {
    nd_object *first = cell_new(NULL);
    nd_object *last = nd_retain(first);
    for (size_t i = 1; first && i < size; i++) {
        nd_object *next = cell_new(last);
        nd_release(last);
        last = next;
    }
    if (first && last) {
        cell *data = nd_object_data(first);
        nd_edge_set(&data->next, last);
    }
    nd_release(last);
    return first;
}

/// Nanoseconds per object of closing a manager with a million dead objects in rings.
static double rings_ns(size_t ring) {
    double times[RING_REPEATS + 1];
    // All of the work is to be done when the manager closes.
    nd_gc_policy boundary_only = ND_GC_POLICY_INIT;
    boundary_only.tracked_objects = 0;
    boundary_only.allocated_bytes[ND_CPU] = 0;
    for (int repeat = 0; repeat <= RING_REPEATS; repeat++) {
        nd_manager *manager = nd_manager_new(NULL, "rings");
        nd_manager_set_gc_mode(manager, ND_GC_ON);
        nd_manager_set_gc_policy(manager, &boundary_only);
        nd_with_manager(manager) {
            for (size_t i = 0; i < MILLION / ring; i++)
                nd_release(ring_new(ring));
        }
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        double start = bench_seconds();
        nd_manager_close(manager, &report);
        times[repeat] = (bench_seconds() - start) * 1e9 / MILLION;
        nd_release(manager);
        if (report.collected_objects != MILLION)
            return NAN;
    }
    // The first one warms up.
    return bench_median(times + 1, RING_REPEATS);
}

/// A live model: a ring of `size`, in a manager of its own.
typedef struct model {
    nd_manager *manager;
    nd_object *root;
} model;

static bool model_begin(model *model, size_t size) {
    model->manager = nd_manager_new(NULL, "model");
    model->root = NULL;
    nd_with_manager(model->manager) model->root = ring_new(size);
    return model->root != NULL;
}

static void model_end(model *model) {
    nd_release(model->root);
    nd_gc_collect(model->manager, NULL);
    nd_release(model->manager);
}

static bool close_empty(void *data, uint64_t count) {
    (void)data;
    for (uint64_t i = 0; i < count; i++) {
        nd_manager *manager = nd_manager_new(NULL, "step");
        if (!manager)
            return false;
        nd_manager_close(manager, NULL);
        nd_release(manager);
    }
    return true;
}

/// A step that leaves one object behind, which points into the model.
static bool close_with_survivor(void *data, uint64_t count) {
    const model *model = data;
    for (uint64_t i = 0; i < count; i++) {
        nd_manager *manager = nd_manager_new(NULL, "step");
        nd_object *survivor = NULL;
        nd_with_manager(manager) survivor = cell_new(model->root);
        if (!survivor)
            return false;
        nd_manager_close(manager, NULL);
        nd_release(manager);
        nd_release(survivor);
    }
    return true;
}

static double with_model(size_t size, bench_work work) {
    model model;
    double ns = NAN;
    if (model_begin(&model, size))
        ns = bench_measure_ns(work, &model, BOUNDARY_REPEATS);
    model_end(&model);
    return ns;
}

/// The three shapes of T11, T12 and T13; the collector is on.
static void measure(bench_metric *metrics) {
    static const struct {
        const char *work;
        const char *name;
        size_t size; ///< of the rings, or of what is alive elsewhere
        bench_work boundary;
        double target;
    } rows[METRICS] = {
        {"dead rings of 2, per object", "T11_ring2_ns_per_object", 2, NULL, 20},
        {"dead rings of 100, per object", "T11_ring100_ns_per_object", 100, NULL, 20},
        {"one dead ring of 1,000,000, per object", "T11_ring1m_ns_per_object", MILLION, NULL, 20},
        {"manager made and closed, 1,000,000 live", "T12_ns", MILLION, close_empty, 200},
        {"manager made and closed, 1,000 live", "T12_ns_1k_live", 1000, close_empty, 200},
        {"close, survivor into a model of 1,000", "T13_ns_1k_model", 1000, close_with_survivor, 0},
        {"close, survivor into a model of 1,000,000", "T13_ns_1m_model", MILLION,
         close_with_survivor, 0},
    };
    for (size_t i = 0; i < METRICS; i++)
        metrics[i] = (bench_metric){
            .work = rows[i].work,
            .name = rows[i].name,
            .unit = "ns",
            .ours = rows[i].boundary ? with_model(rows[i].size, rows[i].boundary)
                                     : rings_ns(rows[i].size),
            .target = rows[i].target,
        };
}

int main(int argc, char **argv) {
    const char *json = NULL;
    int answer = bench_metrics_options(
        argc, argv, "T11 to T13: the cost of the cycle collector, beside CPython's and Nim's.",
        &json);
    if (answer >= 0)
        return answer;
    nd_gc_set_mode(ND_GC_ON);
    bench_metric metrics[METRICS];
    bench_peer nim;
    bench_peer cpython;
    bench_table table = {.bench = "collector",
                         .metrics = metrics,
                         .count = METRICS,
                         .rivals = {{"Nim ORC", "rival_nim", &nim, NULL},
                                    {"CPython", "rival_cpython", &cpython, NULL}}};
    measure(metrics);
    bench_peer_run_own(&nim, "nim_orc", NULL, "nim");
    bench_peer_run_own(&cpython, "cpython_gc.py", NULL, "python3");
    return bench_table_finish(&table, json);
}
