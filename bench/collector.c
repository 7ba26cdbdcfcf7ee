// T11 to T14e and T17: what the collector costs, Nim's and CPython's beside it in one run.
//
//   T11  close a manager with 1,000,000 dead objects in rings of 2, of 100, and in one ring,
//        freeing included, per object
//   T12  make and close a manager with nothing tracked, 1,000 and 1,000,000 live objects elsewhere
//   T13  close a manager with one survivor that points into a model of 1,000 and of 1,000,000
//        objects
//   T14e steps of 1 to 1,000 recorded operations in a manager of their own, of each of which the last
//        value escapes: the collector on against off, in turns; once more with a second thread alive
//   T17  the longest time that the gate is closed at a close with 100,000 to 5,000,000 survivors, beside
//        a second thread
//
// The rivals do the same work: as many objects of one reference each in the same rings, nothing
// collected while they are made, the memory of every one given back before the clock stops.
//
// T11 takes turns, over its three sizes a pass of ours and a process of Nim's, and T12 and T13 take
// turns between their two models: a neighbour who takes half of the core for some seconds spoils
// some passes of each, and not all of one.
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/peer.h"
#include "bench/support/progress.h"

#include <nd/nd.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MILLION = 1000000, RINGS = 3, RING_TURNS = 15, BOUNDARY_TURNS = 9, BOUNDARY_REPEATS = 223 };
enum { ESCAPE_REPEATS = 1001, PAUSE_REPEATS = 3 };
enum { NIM, CPYTHON, THOUSAND };

/// An object of the benchmark: one edge.
typedef struct cell {
    nd_object *next;
} cell;

static void cell_traverse(const nd_object *self, nd_visitor *visitor) {
    const cell *data = nd_object_get_data(self);
    nd_visit(visitor, data->next, "next");
}

static void cell_clear(nd_object *self) {
    cell *data = nd_object_get_data(self);
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
        cell *data = nd_object_get_data(object);
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
        cell *data = nd_object_get_data(first);
        nd_edge_set(&data->next, last);
    }
    nd_release(last);
    return first;
}

/// Nanoseconds per object of closing a manager with a million dead objects in rings; NaN when not all of
/// them were collected.
static double rings_ns(size_t ring) {
    // All of the work is to be done when the manager closes.
    nd_gc_policy boundary_only = ND_GC_POLICY_INIT;
    boundary_only.tracked_objects = 0;
    boundary_only.allocated_bytes[ND_CPU] = 0;
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
    double ns = (bench_seconds() - start) * 1e9 / MILLION;
    nd_release(manager);
    return report.collected_objects == MILLION ? ns : (double)NAN;
}

/// Writes the medians of ours, and of Nim's where it ran, to one line for each size of rings.
static void measure_rings(const size_t *sizes, bench_metric *metrics, bench_peer *nim) {
    double ours[RINGS][RING_TURNS];
    double nims[RINGS][RING_TURNS];
    for (size_t i = 0; i < RINGS; i++)
        rings_ns(sizes[i]); // warms up
    for (int turn = 0; turn < RING_TURNS; turn++)
        for (size_t i = 0; i < RINGS; i++) {
            char size[24];
            snprintf(size, sizeof size, "%zu", sizes[i]);
            bench_progress_show(metrics[i].work, (double)(turn + 1) / (2 * RING_TURNS));
            ours[i][turn] = rings_ns(sizes[i]);
            if (isnan(ours[i][turn]))
                return;
            if ((turn == 0 && i == 0) || nim->ran)
                bench_peer_run_own(nim, "nim_orc", size, "nim");
            nims[i][turn] = bench_peer_number(nim, "ns_per_object"); // NaN when it did not run
        }
    for (size_t i = 0; i < RINGS; i++) {
        metrics[i].ours = bench_median(ours[i], RING_TURNS);
        if (nim->ran)
            metrics[i].rivals[NIM] = bench_median(nims[i], RING_TURNS);
    }
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

/// Median nanoseconds of a boundary beside a model of 1,000 and beside one of 1,000,000, which are made anew
/// for each turn.
static double beside_models_ns(bench_work work, double *ret_thousand) {
    *ret_thousand = NAN;
    static const size_t sizes[] = {1000, MILLION};
    double times[2][BOUNDARY_TURNS];
    for (int turn = 0; turn < BOUNDARY_TURNS; turn++)
        for (int i = 0; i < 2; i++) {
            model model;
            times[i][turn] = model_begin(&model, sizes[i])
                                 ? bench_measure_ns(work, &model, BOUNDARY_REPEATS)
                                 : (double)NAN;
            model_end(&model);
            if (isnan(times[i][turn]))
                return NAN;
        }
    *ret_thousand = bench_median(times[0], BOUNDARY_TURNS);
    return bench_median(times[1], BOUNDARY_TURNS);
}

/// Steps that each leave their last value behind.
typedef struct escapes {
    nd_tensor *parameter, *last;
    size_t operations;
    nd_gc_mode mode;
} escapes;

static bool step_with_escape(void *data, uint64_t count) {
    escapes *e = data;
    nd_gc_set_mode(e->mode);
    for (uint64_t i = 0; i < count; i++) {
        nd_manager *manager = nd_manager_new(NULL, "step");
        nd_tensor *value = nd_retain(e->parameter);
        nd_with_manager(manager) for (size_t k = 0; value && k < e->operations; k++) {
            nd_tensor *next = nd_add(value, e->parameter);
            nd_release(value);
            value = next;
        }
        nd_release(e->last);
        e->last = value;
        nd_manager_close(manager, NULL);
        nd_release(manager);
        if (!value)
            return false;
    }
    return true;
}

/// How many times longer such steps take with the collector on.
static double escapes_ratio(size_t operations) {
    const int64_t shape[] = {16};
    escapes off = {.operations = operations, .mode = ND_GC_OFF};
    off.parameter = nd_ones(1, shape, ND_F32);
    nd_set_requires_grad(off.parameter, true);
    escapes on = off;
    on.mode = ND_GC_ON;
    bench_side sides[] = {{.work = step_with_escape, .data = &off},
                          {.work = step_with_escape, .data = &on}};
    bench_measure_sides(sides, 2, ESCAPE_REPEATS);
    nd_release(off.last);
    nd_release(on.last);
    nd_release(off.parameter);
    nd_gc_set_mode(ND_GC_ON);
    return sides[1].ns / sides[0].ns;
}

/// Milliseconds for which the gate was closed at most while a manager closed with so many
/// survivors: the median of a few closes.
static double pause_ms(size_t survivors) {
    double times[PAUSE_REPEATS];
    nd_gc_policy boundary_only = ND_GC_POLICY_INIT;
    boundary_only.tracked_objects = 0;
    for (int repeat = 0; repeat < PAUSE_REPEATS; repeat++) {
        nd_manager *manager = nd_manager_new(NULL, "survivors");
        nd_manager_set_gc_policy(manager, &boundary_only);
        nd_object *held = NULL;
        nd_with_manager(manager) held = ring_new(survivors);
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        nd_manager_close(manager, &report);
        times[repeat] = (double)report.gate_closed_ns / 1e6;
        nd_release(manager);
        nd_release(held);
        nd_gc_collect(NULL, NULL);
        if (!held || report.escaped_objects != survivors)
            return NAN;
    }
    return bench_median(times, PAUSE_REPEATS);
}

static void *idle(void *data) {
    pause();
    return data;
}

/// From here on the process has a second thread, which does nothing.
static bool begin_second_thread(void) {
    pthread_t thread;
    return pthread_create(&thread, NULL, idle, NULL) == 0 && pthread_detach(thread) == 0;
}

typedef struct row {
    const char *work;
    const char *name;
    size_t size; ///< of the rings, of what is alive elsewhere, operations, or survivors
    bench_work
        boundary; ///< of T12 and T13: the lines beside a thousand and a million follow each other
    double (*figure)(size_t size); ///< NULL: rings, or a boundary
    const char *unit;
    double ratio, target; ///< as in bench_metric
    int beside;           ///< the column that the ratio is of
} row;

/// In this order, rings first: those of the last part have a second thread in the process.
static const row rows[] = {
    {"dead rings of 2, per object", "T11_ring2_ns_per_object", 2, NULL, NULL, "ns", 1, 0, NIM},
    {"dead rings of 100, per object", "T11_ring100_ns_per_object", 100, NULL, NULL, "ns", 1, 0,
     NIM},
    {"one dead ring of 1,000,000, per object", "T11_ring1m_ns_per_object", MILLION, NULL, NULL,
     "ns", 1, 0, NIM},
    {"manager made and closed, 1,000 live", "T12_ns_1k_live", 1000, close_empty, NULL, "ns", 0, 0,
     THOUSAND},
    {"manager made and closed, 1,000,000 live", "T12_ns", MILLION, close_empty, NULL, "ns",
     BENCH_FLAT, 200, THOUSAND},
    {"close, survivor into a model of 1,000", "T13_ns_1k_model", 1000, close_with_survivor, NULL,
     "ns", 0, 0, THOUSAND},
    {"close, survivor into a model of 1,000,000", "T13_ns_1m_model", MILLION, close_with_survivor,
     NULL, "ns", BENCH_FLAT, 0, THOUSAND},
    {"last of 1 recorded escapes, on / off", "T14e_ratio_1", 1, NULL, escapes_ratio, "x", 0, 1.1,
     0},
    {"last of 10 recorded escapes, on / off", "T14e_ratio_10", 10, NULL, escapes_ratio, "x", 0, 1.1,
     0},
    {"last of 100, on / off", "T14e_ratio_100", 100, NULL, escapes_ratio, "x", 0, 1.1, 0},
    {"last of 1,000, on / off", "T14e_ratio_1000", 1000, NULL, escapes_ratio, "x", 0, 1.1, 0},
    {"last of 1, second thread alive, on / off", "T14e_ratio_1_threads", 1, NULL, escapes_ratio,
     "x", 0, 1.1, 0},
    {"gate closed, 100,000 survivors", "T17_ms_1e5", 100000, NULL, pause_ms, "ms", 0, 1, 0},
    {"gate closed, 1,000,000 survivors", "T17_ms_1e6", MILLION, NULL, pause_ms, "ms", 0, 1, 0},
    {"gate closed, 5,000,000 survivors", "T17_ms_5e6", 5 * MILLION, NULL, pause_ms, "ms", 0, 1, 0},
};
enum { METRICS = sizeof rows / sizeof rows[0], WITH_ONE_THREAD = 11 };

/// The collector is on.
static void measure(bench_metric *metrics, bench_peer *nim) {
    size_t sizes[RINGS];
    for (size_t i = 0; i < METRICS; i++) {
        const row *row = &rows[i];
        metrics[i] = (bench_metric){
            .work = row->work,
            .name = row->name,
            .unit = row->unit,
            .ours = NAN,
            .ratio = row->ratio,
            .target = row->target,
            .beside = 1u << row->beside,
        };
        if (i < RINGS)
            sizes[i] = row->size;
    }
    measure_rings(sizes, metrics, nim);
    for (size_t i = RINGS; i < METRICS; i++) {
        const row *row = &rows[i];
        bench_progress_show(row->work, (double)(i + METRICS) / (2 * METRICS + 1));
        if (i == WITH_ONE_THREAD && !begin_second_thread())
            continue;
        if (row->figure) {
            metrics[i].ours = row->figure(row->size);
        } else if (row->size == MILLION) { // the line before is of a thousand
            metrics[i].ours = beside_models_ns(row->boundary, &metrics[i].rivals[THOUSAND]);
            metrics[i - 1].ours = metrics[i].rivals[THOUSAND];
        }
    }
}

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv,
        "T11 to T14e, T17: the cost of the cycle collector, beside CPython's and Nim's.", &files);
    if (answer >= 0)
        return answer;
    nd_gc_set_mode(ND_GC_ON);
    bench_metric metrics[METRICS];
    bench_peer nim;
    bench_peer cpython;
    bench_table table = {.bench = "collector",
                         .metrics = metrics,
                         .count = METRICS,
                         .rivals = {[NIM] = {"Nim ORC", "rival_nim", &nim, NULL},
                                    [CPYTHON] = {"CPython", "rival_cpython", &cpython, NULL},
                                    [THOUSAND] = {"with 1,000", NULL, NULL,
                                                  "the same with 1,000 objects elsewhere, the line "
                                                  "before; flat is a ratio of 1.1 at most"}}};
    measure(metrics, &nim);
    bench_progress_show("CPython", (double)(2 * METRICS) / (2 * METRICS + 1));
    bench_peer_run_own(&cpython, "cpython_gc.py", NULL, "python3");
    return bench_table_finish(&table, &files);
}
