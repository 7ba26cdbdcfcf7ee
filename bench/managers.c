// T16: what counts and managers cost when several threads use them at once.
//
// Every figure is core-nanoseconds per operation: wall time, times the cores that the threads can
// have, divided by what all of them did. Perfect scaling is the same figure for every number of
// threads; with more threads than cores it shows what a lock costs whose holder has been preempted.
// The process has more than one thread in all of them, one worker included.
//
//   distinct         retain + release, an object for each thread
//   one_object       retain + release, all of the same object
//   locked_pair      two locked instructions, a word for each thread: the limit of `distinct`
//   create_own       create + release a tensor of 16 floats, a manager for each thread
//   create_shared    the same, all in one manager
//   objects_shared   create + release an object of a user's type, all in one manager
//   attach           attach an object of one's own to the other of two shared managers
//   boundary         make a manager below the root, create an object in it, close it
//   link             set and clear an edge of one's own object, beside a thread that collects
//   gate_closed      how long the gate is closed for each tracked object of a manager that closes,
//                    beside threads that link
#include "bench/support/measure.h"
#include "bench/support/metrics.h"
#include "bench/support/progress.h"

#include <nd/nd.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST_THREADS = 64, LINE = 128, METRICS = 128 };
enum { ONE_THREAD };
/// A batch of no more threads than cores is short, and counts only when all its threads ran side by
/// side from its begin to its end; one of more threads is long, so that the scheduler takes turns.
static const double short_batch_seconds = 5e-4, long_batch_seconds = 6e-2;
enum { SHORT_REPEATS = 101, LONG_REPEATS = 7, MOST_TRIES = 3000 };

/// What a worker of one measurement has.
typedef struct worker {
    _Alignas(LINE) _Atomic uint64_t word;
    const nd_manager *managers[2]; ///< to work in, or to move between
    nd_object *object;             ///< to retain, or to link
    nd_object *other;
} worker;

typedef void (*work)(worker *me, uint64_t count);

// ------------------------------------------------------------------------------------------- works

/// An object of the benchmark: one edge.
typedef struct cell {
    nd_object *next;
} cell;

static void cell_traverse(const nd_object *self, nd_visitor *visitor) {
    nd_visit(visitor, ((const cell *)nd_object_get_data(self))->next, "next");
}

static void cell_clear(nd_object *self) {
    nd_edge_clear(&((cell *)nd_object_get_data(self))->next);
}

static const nd_type cell_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "cell",
    .traverse = cell_traverse,
    .clear = cell_clear,
};

static nd_object *cell_new(void) {
    return nd_object_new(&cell_type, sizeof(cell));
}

static void retain_release(worker *me, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        nd_object *handle = nd_retain(me->object);
        nd_release(handle);
    }
}

static void locked_pair(worker *me, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        atomic_fetch_add_explicit(&me->word, (UINT64_C(1) << 32) + 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&me->word, 1, memory_order_acq_rel);
    }
}

static void create_tensors(worker *me, uint64_t count) {
    nd_with_manager(me->managers[0]) {
        for (uint64_t i = 0; i < count; i++) {
            nd_tensor *tensor = nd_empty(ND_SHAPE(16), ND_F32);
            nd_release(tensor);
        }
    }
}

static void create_objects(worker *me, uint64_t count) {
    nd_with_manager(me->managers[0]) {
        for (uint64_t i = 0; i < count; i++)
            nd_release(cell_new());
    }
}

static void attach(worker *me, uint64_t count) {
    for (uint64_t i = 0; i < count; i++)
        nd_manager_attach(me->managers[i % 2], me->object);
}

static void boundaries(worker *me, uint64_t count) {
    (void)me;
    for (uint64_t i = 0; i < count; i++) {
        nd_manager *manager = nd_manager_new(NULL, "step");
        nd_with_manager(manager) nd_release(cell_new());
        nd_manager_close(manager, NULL);
        nd_release(manager);
    }
}

static void link_unlink(worker *me, uint64_t count) {
    cell *data = nd_object_get_data(me->object);
    for (uint64_t i = 0; i < count; i++) {
        nd_edge_set(&data->next, me->other);
        nd_edge_clear(&data->next);
    }
}

// --------------------------------------------------------------------------------------- measuring

/// Threads that do one kind of work side by side, batch after batch: what is measured are programs whose
/// threads stay, not what a new one sets up.
typedef struct crew {
    work function;
    unsigned threads; ///< that have started
    pthread_mutex_t lock;
    pthread_cond_t begins, ends;
    uint64_t batch; ///< its number
    uint64_t count; ///< operations of a thread in it; 0: they go home
    unsigned working;
    _Atomic unsigned ready;
} crew;

typedef struct member {
    pthread_t thread;
    crew *crew;
    worker *worker;
    double begin, end; ///< of the last batch
    bool preempted;    ///< somebody else wanted its core meanwhile
} member;

static long preemptions(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nivcsw : 0;
}

static void take_turn(member *me, uint64_t count) {
    crew *crew = me->crew;
    atomic_fetch_add(&crew->ready, 1);
    while (atomic_load_explicit(&crew->ready, memory_order_acquire) < crew->threads)
        sched_yield();
    long before = preemptions();
    me->begin = bench_seconds();
    crew->function(me->worker, count);
    me->end = bench_seconds();
    me->preempted = preemptions() != before;
}

static void *stay(void *data) {
    member *me = data;
    crew *crew = me->crew;
    uint64_t done = 0;
    for (;;) {
        pthread_mutex_lock(&crew->lock);
        while (crew->batch == done)
            pthread_cond_wait(&crew->begins, &crew->lock);
        done = crew->batch;
        uint64_t count = crew->count;
        pthread_mutex_unlock(&crew->lock);
        if (count == 0)
            return NULL;
        take_turn(me, count);
        pthread_mutex_lock(&crew->lock);
        if (--crew->working == 0)
            pthread_cond_signal(&crew->ends);
        pthread_mutex_unlock(&crew->lock);
    }
}

static void begin_batch(crew *crew, uint64_t count) {
    pthread_mutex_lock(&crew->lock);
    crew->batch++;
    crew->count = count;
    crew->working = crew->threads;
    atomic_store(&crew->ready, 0);
    pthread_cond_broadcast(&crew->begins);
    pthread_mutex_unlock(&crew->lock);
}

static unsigned cores(void) {
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online < 1 ? 1 : (unsigned)online;
}

/// Seconds from the first thread's begin to the last one's end; *ret_disturbed: not side by side.
static double run_batch(crew *crew, const member *members, uint64_t count, bool *ret_disturbed) {
    begin_batch(crew, count);
    pthread_mutex_lock(&crew->lock);
    while (crew->working > 0)
        pthread_cond_wait(&crew->ends, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
    double begin = INFINITY, last_begin = 0, end = 0;
    *ret_disturbed = false;
    for (unsigned i = 0; i < crew->threads; i++) {
        begin = fmin(begin, members[i].begin);
        last_begin = fmax(last_begin, members[i].begin);
        end = fmax(end, members[i].end);
        *ret_disturbed |= members[i].preempted;
    }
    *ret_disturbed |= last_begin - begin > 0.1 * (end - begin);
    return end - begin;
}

static double measure_crew(crew *crew, const member *members) {
    bool crowded = crew->threads > cores();
    double shortest = crowded ? long_batch_seconds : short_batch_seconds;
    size_t repeats = crowded ? LONG_REPEATS : SHORT_REPEATS;
    uint64_t count = 64;
    bool disturbed;
    while (run_batch(crew, members, count, &disturbed) < shortest)
        count *= 2;
    double figures[SHORT_REPEATS];
    double share = (double)(crowded ? cores() : crew->threads) / crew->threads;
    size_t done = 0;
    for (int tries = 0; done < repeats && tries < MOST_TRIES; tries++) {
        double seconds = run_batch(crew, members, count, &disturbed);
        if (crowded || !disturbed)
            figures[done++] = seconds * 1e9 * share / (double)count;
    }
    return bench_median(figures, done);
}

/// Median core-nanoseconds of one operation; NaN when a thread could not start.
static double measure(work function, worker *workers, unsigned threads) {
    crew crew = {.function = function,
                 .lock = PTHREAD_MUTEX_INITIALIZER,
                 .begins = PTHREAD_COND_INITIALIZER,
                 .ends = PTHREAD_COND_INITIALIZER};
    member members[MOST_THREADS];
    for (; crew.threads < threads; crew.threads++) {
        member *next = &members[crew.threads];
        *next = (member){.crew = &crew, .worker = &workers[crew.threads]};
        if (pthread_create(&next->thread, NULL, stay, next) != 0)
            break;
    }
    double ns = crew.threads == threads ? measure_crew(&crew, members) : (double)NAN;
    begin_batch(&crew, 0);
    for (unsigned i = 0; i < crew.threads; i++)
        pthread_join(members[i].thread, NULL);
    return ns;
}

// --------------------------------------------------------------------------------------- the table

typedef struct table {
    bench_metric metrics[METRICS];
    char names[METRICS][64], works[METRICS][64];
    size_t count, planned;
} table;

static bench_metric *add(table *table, const char *name, const char *what, unsigned threads,
                         double ours) {
    size_t row = table->count++;
    if (threads) {
        snprintf(table->names[row], sizeof table->names[row], "T16_%s_ns_%u", name, threads);
        snprintf(table->works[row], sizeof table->works[row], "%s, %u thread%s", what, threads,
                 threads == 1 ? "" : "s");
    } else {
        snprintf(table->names[row], sizeof table->names[row], "T16_%s", name);
        snprintf(table->works[row], sizeof table->works[row], "%s", what);
    }
    bench_progress_show(table->works[row], (double)row / (double)table->planned);
    table->metrics[row] = (bench_metric){
        .name = table->names[row], .work = table->works[row], .unit = "ns", .ours = ours};
    return &table->metrics[row];
}

/// Workers with an object each in managers of their own, or all in two shared ones.
static void begin(worker *workers, unsigned threads, nd_manager **managers, bool own) {
    for (unsigned i = 0; i < threads; i++) {
        for (unsigned k = 0; k < 2; k++) {
            if (own || i == 0)
                managers[2 * i + k] = nd_manager_new(NULL, own ? "own" : "shared");
            workers[i].managers[k] = managers[own ? 2 * i + k : k];
        }
        nd_with_manager(workers[i].managers[0]) {
            workers[i].object = cell_new();
            workers[i].other = cell_new();
        }
    }
}

static void end(worker *workers, unsigned threads, nd_manager **managers, bool own) {
    for (unsigned i = 0; i < threads; i++) {
        nd_release(workers[i].object);
        nd_release(workers[i].other);
    }
    for (unsigned i = 0; i < (own ? 2 * threads : 2); i++)
        nd_release(managers[i]);
}

static void measure_works(table *table, worker *workers, unsigned most) {
    static const struct {
        const char *name, *what;
        work function;
        bool own;    ///< managers of their own
        bool shared; ///< the first worker's object for all
        bool linear; ///< more threads shall take no longer
    } rows[] = {
        {"locked_pair", "two locked instructions", locked_pair, true, false, false},
        {"distinct", "retain + release, distinct objects", retain_release, true, false, true},
        {"one_object", "retain + release, one object", retain_release, true, true, false},
        {"create_own_manager", "16 floats, own manager", create_tensors, true, false, true},
        {"create_shared_manager", "16 floats, one manager", create_tensors, false, false, true},
        {"objects_shared_manager", "user object, one manager", create_objects, false, false, true},
        {"attach", "attach between two managers", attach, false, false, true},
        {"boundary", "manager with an object, made and closed", boundaries, true, false, false},
    };
    static nd_manager *managers[2 * MOST_THREADS];
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        double alone = NAN;
        for (unsigned threads = 1; threads <= most; threads *= 2) {
            begin(workers, threads, managers, rows[row].own);
            nd_object *mine[MOST_THREADS];
            for (unsigned i = 0; i < threads; i++) {
                mine[i] = workers[i].object;
                if (rows[row].shared)
                    workers[i].object = workers[0].object;
            }
            double ns = measure(rows[row].function, workers, threads);
            for (unsigned i = 0; i < threads; i++)
                workers[i].object = mine[i];
            end(workers, threads, managers, rows[row].own);
            if (threads == 1)
                alone = ns;
            bench_metric *metric = add(table, rows[row].name, rows[row].what, threads, ns);
            if (threads > 1) {
                metric->rivals[ONE_THREAD] = alone;
                metric->ratio = rows[row].linear ? BENCH_FLAT : 0;
            }
        }
    }
}

// --------------------------------------------------------------------------------- beside the gate

enum { TRACKED = 100000, RING = 10, CLOSES = 11 };

static bool make_rings(const nd_manager *manager) {
    bool made = true;
    nd_with_manager(manager) {
        for (int i = 0; i < TRACKED / RING && made; i++) {
            nd_object *first = cell_new(), *last = nd_retain(first);
            for (int k = 1; k < RING && last; k++) {
                nd_object *next = cell_new();
                if (next)
                    nd_edge_set(&((cell *)nd_object_get_data(next))->next, last);
                nd_release(last);
                last = next;
            }
            made = first && last;
            if (made)
                nd_edge_set(&((cell *)nd_object_get_data(first))->next, last);
            nd_release(first);
            nd_release(last);
        }
    }
    return made;
}

typedef struct linker {
    pthread_t thread;
    worker *worker;
    const _Atomic bool *stop;
} linker;

static void *link_without_pause(void *data) {
    linker *me = data;
    while (!atomic_load_explicit(me->stop, memory_order_relaxed))
        link_unlink(me->worker, 1000);
    return NULL;
}

/// Closed nanoseconds of the gate for each object of a manager of dead rings, beside `threads` that
/// link elsewhere.
static double gate_closed_ns(worker *workers, unsigned threads) {
    _Atomic bool stop = false;
    linker linkers[MOST_THREADS];
    unsigned started = 0;
    for (; started < threads; started++) {
        linkers[started] = (linker){.worker = &workers[started], .stop = &stop};
        if (pthread_create(&linkers[started].thread, NULL, link_without_pause, &linkers[started]))
            break;
    }
    double figures[CLOSES];
    bool right = started == threads;
    for (int i = 0; i < CLOSES && right; i++) {
        nd_manager *manager = nd_manager_new(NULL, "closing");
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        // Off until then, so that all of it is left to the boundary.
        right = manager && make_rings(manager) &&
                nd_manager_set_gc_mode(manager, ND_GC_ON) == ND_OK &&
                nd_manager_close(manager, &report) == ND_OK && report.collected_objects == TRACKED;
        figures[i] = (double)report.gate_closed_ns / TRACKED;
        nd_release(manager);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < started; i++)
        pthread_join(linkers[i].thread, NULL);
    return right ? bench_median(figures, CLOSES) : (double)NAN;
}

typedef struct collector {
    const nd_manager *manager;
    _Atomic bool stop;
} collector;

static void *collect_without_pause(void *data) {
    collector *me = data;
    while (!atomic_load_explicit(&me->stop, memory_order_relaxed))
        nd_gc_collect(me->manager, NULL);
    return NULL;
}

/// Linking beside a thread that looks at a thousand live objects again and again.
static double link_ns(worker *workers, unsigned threads) {
    enum { LIVE = 1000 };
    nd_object *live[LIVE];
    collector collector = {.manager = nd_manager_new(NULL, "looked at")};
    nd_with_manager(collector.manager) for (int i = 0; i < LIVE; i++) live[i] = cell_new();
    pthread_t thread;
    double ns = NAN;
    if (pthread_create(&thread, NULL, collect_without_pause, &collector) == 0) {
        ns = measure(link_unlink, workers, threads);
        atomic_store(&collector.stop, true);
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < LIVE; i++)
        nd_release(live[i]);
    nd_release((nd_manager *)(uintptr_t)collector.manager);
    return ns;
}

static void measure_gate(table *table, worker *workers, unsigned most) {
    static nd_manager *managers[2 * MOST_THREADS];
    for (unsigned threads = 1; threads <= most; threads *= 2) {
        begin(workers, threads, managers, true);
        add(table, "link", "set + clear an edge, no collector", threads,
            measure(link_unlink, workers, threads));
        add(table, "link_beside_collector", "the same beside a collector", threads,
            link_ns(workers, threads));
        end(workers, threads, managers, true);
    }
    begin(workers, 1, managers, true);
    add(table, "gate_closed_ns_per_object", "gate closed per object, one linking thread", 0,
        gate_closed_ns(workers, 1))
        ->target = 50;
    end(workers, 1, managers, true);
}

int main(int argc, char **argv) {
    bench_files files;
    int answer = bench_metrics_options(
        argc, argv, "T16: counts, managers and the gate with several threads.", &files);
    if (answer >= 0)
        return answer;
    unsigned most = 2 * cores() < 4 ? 4 : 2 * cores();
    most = most < MOST_THREADS ? most : MOST_THREADS;
    worker *workers = aligned_alloc(LINE, MOST_THREADS * sizeof *workers);
    table *table = calloc(1, sizeof *table);
    if (!workers || !table) {
        fprintf(stderr, "managers: no memory\n");
        return 2;
    }
    for (unsigned i = 0; i < MOST_THREADS; i++)
        workers[i] = (worker){0};
    // Ten kinds of work by numbers of threads, and the gate.
    for (unsigned threads = 1; threads <= most; threads *= 2)
        table->planned += 10;
    table->planned++;
    measure_works(table, workers, most);
    measure_gate(table, workers, most);
    bench_table figures = {
        .bench = "managers",
        .metrics = table->metrics,
        .count = table->count,
        .rivals = {
            [ONE_THREAD] = {
                "one thread", NULL, NULL,
                "the same work on one thread, a line above; linear is a ratio of 1.1 at most"}}};
    int status = bench_table_finish(&figures, &files);
    free(table);
    free(workers);
    return status;
}
