// serve: eight threads answer requests with one model. Each request has a manager of its own, with
// a quota: what it makes goes there, and what it may use ends there.
//
// Most requests ask which digits they have sent. Some ask for an explanation as well, which
// differentiates twice and leaves a cycle, image -grad-> slope -node-> graph -> image. A few send
// far too many digits: such a request gets its error, and the others must not notice. So every
// answer is held against the one that the model gave before anybody served.
//
// A step is a thousand requests. Of a million and more the process must not grow.
#include <nd/scoped.h>

#include "bench/support/digits.h"
#include "bench/support/measure.h"
#include "bench/workloads/begin_thread.h"
#include "bench/workloads/hand_over.h"
#include "bench/workloads/workload.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    THREADS = 8,
    REQUESTS = 1000 / WORKLOAD_SHRINK,    ///< of a step
    MOST_DIGITS = 8,                      ///< of a request
    TOO_MANY = 1000,                      ///< of one that overruns
    EXPLAINED = 32,                       ///< one request in so many
    OVERRUNNING = 1024 / WORKLOAD_SHRINK, ///< likewise
    PIXELS = 784,
    HIDDEN = 128,
    CLASSES = 10,
};
static const uint64_t quota = 1 << 20;

/// How long requests took: buckets whose bounds grow by a sixteenth of the power of two below.
enum { BUCKETS_LOG = 4, BUCKETS = 64 << BUCKETS_LOG };
typedef struct latencies {
    uint64_t count[BUCKETS];
} latencies;

typedef struct server server;

typedef struct worker {
    server *server;
    pthread_t thread;
    nd_manager *manager; ///< of what its requests leave behind
    nd_status status;    ///< of the first request that failed and should not have
    char error[WORKLOAD_TEXT];
    int64_t round; ///< the last one it has worked on
    int64_t digits, right, refused, explained;
    double steepness; ///< of all explanations, for something to have come of them
    latencies latencies;
} worker;

struct server {
    workload_strategy strategy;
    nd_device device;
    digits digits;
    nd_module *model;
    float *expected; ///< probabilities of all digits, [n, CLASSES]
    const uint8_t *labels;
    int64_t count;
    worker workers[THREADS];
    int threads;          ///< that were started
    pthread_mutex_t lock; ///< of what follows
    pthread_cond_t begun, done;
    int64_t round;
    int busy; ///< threads that still work on the round
    bool closing;
    atomic_int_fast64_t next; ///< number of the next request
    int64_t end;              ///< of the round
};

// ------------------------------------------------------------------------------------------ latencies

static size_t bucket_of(uint64_t ns) {
    if (ns < 1 << BUCKETS_LOG)
        return ns;
    int power = 63 - __builtin_clzll(ns);
    return ((size_t)(power - BUCKETS_LOG + 1) << BUCKETS_LOG) +
           ((ns >> (power - BUCKETS_LOG)) & ((1 << BUCKETS_LOG) - 1));
}

/// Microseconds that `share` of all requests took at most, as exactly as the buckets know.
static double quantile_us(const latencies *all, double share) {
    uint64_t total = 0, below = 0;
    for (size_t i = 0; i < BUCKETS; i++)
        total += all->count[i];
    size_t i = 0;
    while (i < BUCKETS - 1 && (double)(below + all->count[i]) < share * (double)total)
        below += all->count[i++];
    if (i < 1 << BUCKETS_LOG)
        return (double)i / 1e3;
    double first = ldexp(1, (int)(i >> BUCKETS_LOG) + BUCKETS_LOG - 1);
    double part = (double)((i & ((1 << BUCKETS_LOG) - 1)) + 1) / (1 << BUCKETS_LOG);
    return first * (1 + part) / 1e3;
}

// ------------------------------------------------------------------------------------------- requests

/// A request: its digits, as a client sends them, and what it wants.
typedef struct request {
    int64_t first, count;
    bool explained;
} request;

static request request_of(const server *self, int64_t number) {
    uint64_t mixed = (uint64_t)(number + 1) * 0x9E3779B97F4A7C15u;
    mixed ^= mixed >> 29;
    request request = {.count = 1 + (int64_t)(mixed >> 8) % MOST_DIGITS};
    request.explained = mixed % EXPLAINED == 0;
    if (number % OVERRUNNING == OVERRUNNING - 1)
        request.count = TOO_MANY;
    request.first = (int64_t)((mixed >> 16) % (uint64_t)(self->count - request.count + 1));
    return request;
}

/// [n, PIXELS] of bytes -> the same from 0 to 1, where the model is.
static const nd_tensor *scale(const server *self, const nd_tensor *pixels) {
    return nd_mul_scalar(nd_cast(nd_to(pixels, self->device), ND_F32), 1.0 / 255);
}

/// How fast the slope of the answers changes with the pixels.
static nd_status explain(const server *self, const nd_tensor *pixels, double *ret_steepness) {
    nd_auto_scope;
    nd_auto nd_tensor *images = nd_retain(scale(self, pixels));
    nd_backward_options recorded = ND_BACKWARD_OPTIONS_INIT;
    recorded.create_graph = true;
    nd_status status = nd_set_requires_grad(images, true);
    if (status != ND_OK)
        return status;
    const nd_tensor *logits = nd_module_forward(self->model, images);
    const nd_tensor *best = nd_sum(nd_max(logits, 1, (const int[]){1}, false), 0, NULL, false);
    status = nd_backward(best, &recorded);
    if (status != ND_OK)
        return status;
    const nd_tensor *squares = nd_sum(nd_square(nd_get_grad(images)), 0, NULL, false);
    nd_tensor *curvature = NULL;
    status = nd_grad(squares, 1, (const nd_tensor *const[]){images}, NULL, &curvature);
    if (status != ND_OK)
        return status;
    *ret_steepness = nd_get_item(nd_sum(nd_abs(curvature), 0, NULL, false));
    nd_release(curvature);
    return ND_OK;
}

/// Compares the probabilities of a request's digits with those of before, and counts right answers.
static nd_status check(worker *worker, const request *request, const nd_tensor *probabilities) {
    const server *self = worker->server;
    float answers[MOST_DIGITS * CLASSES];
    if (request->count > MOST_DIGITS) {
        snprintf(worker->error, sizeof worker->error, "a request was answered beyond its quota");
        return ND_ERROR_STATE;
    }
    size_t bytes = (size_t)request->count * CLASSES * sizeof *answers;
    nd_status status = nd_copy_to_host(probabilities, answers, bytes);
    if (status != ND_OK)
        return status;
    for (int64_t i = 0; i < request->count; i++) {
        const float *expected = &self->expected[(request->first + i) * CLASSES];
        const float *answer = &answers[i * CLASSES];
        int64_t best = 0;
        for (int64_t k = 0; k < CLASSES; k++) {
            if (!(fabsf(answer[k] - expected[k]) < 1e-4F)) {
                snprintf(worker->error, sizeof worker->error, "an answer is another than before");
                return ND_ERROR_STATE;
            }
            best = answer[k] > answer[best] ? k : best;
        }
        worker->right += best == self->labels[request->first + i];
    }
    worker->digits += request->count;
    return ND_OK;
}

/// What the server does for one client, in the request's manager.
static nd_status respond(worker *worker, const request *request) {
    const server *self = worker->server;
    nd_auto_scope;
    const nd_tensor *pixels =
        nd_slice(self->digits.test_images, request->first, request->first + request->count, 1, 0);
    const nd_tensor *probabilities = NULL;
    nd_no_grad probabilities = nd_softmax(nd_module_forward(self->model, scale(self, pixels)), 1);
    if (!probabilities)
        return nd_error_get_status();
    nd_status status = check(worker, request, probabilities);
    double steepness = 0;
    if (status == ND_OK && request->explained) {
        status = explain(self, pixels, &steepness);
        worker->explained++;
        worker->steepness += steepness;
    }
    return status;
}

/// One request from its beginning to its end.
static nd_status serve(worker *worker, int64_t number) {
    request request = request_of(worker->server, number);
    double begin = bench_seconds();
    nd_auto nd_manager *manager = nd_manager_new(worker->manager, "request");
    nd_status status = nd_manager_set_quota(manager, worker->server->device.kind, quota);
    if (status != ND_OK)
        return status;
    nd_with_manager(manager) status = respond(worker, &request);
    if (request.count == TOO_MANY && status == ND_ERROR_QUOTA) {
        worker->refused++;
        nd_error_clear();
        status = ND_OK;
    }
    nd_status closed = ND_OK;
    if (worker->server->strategy == WORKLOAD_SCOPE)
        closed = nd_gc_collect(manager, NULL);
    if (closed == ND_OK)
        closed = worker->server->strategy == WORKLOAD_DISPOSE ? nd_manager_dispose(manager, NULL)
                                                              : nd_manager_close(manager, NULL);
    worker->latencies.count[bucket_of((uint64_t)((bench_seconds() - begin) * 1e9))]++;
    return status == ND_OK ? closed : status;
}

/// Answers until the round has no more requests.
static void serve_round(worker *worker) {
    server *self = worker->server;
    for (;;) {
        int64_t number = atomic_fetch_add(&self->next, 1);
        if (number >= self->end)
            return;
        nd_status status = serve(worker, number);
        if (status == ND_OK || worker->status != ND_OK)
            continue;
        worker->status = status;
        if (!*worker->error)
            snprintf(worker->error, sizeof worker->error, "%s", nd_error_get_message());
    }
}

static void *serve_rounds(void *data) {
    worker *worker = data;
    server *self = worker->server;
    pthread_mutex_lock(&self->lock);
    while (!self->closing) {
        if (worker->round == self->round) {
            pthread_cond_wait(&self->begun, &self->lock);
            continue;
        }
        worker->round = self->round;
        pthread_mutex_unlock(&self->lock);
        serve_round(worker);
        pthread_mutex_lock(&self->lock);
        if (--self->busy == 0)
            pthread_cond_signal(&self->done);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

// ---------------------------------------------------------------------------------------- the model

/// A few hundred steps on the digits to train on.
static nd_status learn(const server *self, nd_key key) {
    enum { STEPS = 400 };
    nd_dataset_options batches = ND_DATASET_OPTIONS_INIT;
    batches.batch = 64;
    batches.key = key;
    batches.shuffle = true;
    batches.device = self->device;
    nd_auto nd_dataset *data =
        nd_dataset_new(self->digits.train_images, self->digits.train_labels, &batches);
    nd_auto nd_optimizer *optimizer = nd_adam(self->model, NULL);
    nd_status status = data && optimizer ? ND_OK : nd_error_get_status();
    for (int64_t step = 0, epoch = 0; step < STEPS && status == ND_OK; step++) {
        nd_auto_scope;
        nd_auto nd_tensor *images = NULL;
        nd_auto nd_tensor *labels = NULL;
        if (step % nd_dataset_get_batches(data) == 0)
            status = nd_dataset_start(data, (uint64_t)epoch++);
        if (status == ND_OK)
            status = nd_dataset_next_batch(data, &images, &labels);
        if (status == ND_OK)
            status =
                nd_backward(nd_cross_entropy(nd_module_forward(self->model, images), labels), NULL);
        if (status == ND_OK)
            status = nd_optimizer_step(optimizer);
        nd_optimizer_zero_grad(optimizer);
    }
    return status;
}

/// From now on the parameters are numbers: no request gives them gradients.
static nd_status freeze(const nd_module *model) {
    nd_status status = ND_OK;
    for (size_t i = 0; i < nd_module_get_parameter_count(model) && status == ND_OK; i++) {
        nd_auto nd_tensor *parameter = nd_retain(nd_module_get_parameter_at(model, i, NULL));
        status = nd_set_requires_grad(parameter, false);
    }
    return status;
}

/// What the model says of every digit.
static nd_status answer_all(server *self) {
    nd_auto_scope;
    self->count = nd_get_size(self->digits.test_images, 0);
    self->labels = nd_get_data(self->digits.test_labels);
    size_t bytes = (size_t)self->count * CLASSES * sizeof(float);
    self->expected = malloc(bytes);
    if (!self->expected)
        return ND_ERROR_OUT_OF_MEMORY;
    const nd_tensor *all = nd_module_forward(self->model, scale(self, self->digits.test_images));
    return nd_copy_to_host(nd_softmax(all, 1), self->expected, bytes);
}

static nd_status start_threads(server *self) {
    if (pthread_mutex_init(&self->lock, NULL) != 0 || pthread_cond_init(&self->begun, NULL) != 0 ||
        pthread_cond_init(&self->done, NULL) != 0)
        return ND_ERROR_OUT_OF_MEMORY;
    for (; self->threads < THREADS; self->threads++) {
        worker *worker = &self->workers[self->threads];
        worker->server = self;
        worker->manager = nd_manager_new(NULL, "worker");
        if (!worker->manager)
            return nd_error_get_status();
        if (begin_thread(&worker->thread, serve_rounds, worker) != ND_OK)
            return ND_ERROR_OUT_OF_MEMORY;
    }
    return ND_OK;
}

// -------------------------------------------------------------------------------- beginning and end

static nd_status serve_open(const workload_options *options, void **ret_state) {
    server *self = *ret_state = calloc(1, sizeof *self);
    if (!self)
        return ND_ERROR_OUT_OF_MEMORY;
    self->strategy = options->strategy;
    self->device = options->device;
    nd_status status = digits_load(&self->digits, options->data, 0);
    if (status != ND_OK)
        return status;
    nd_key key = nd_key_new(options->seed);
    self->model =
        ND_SEQUENTIAL(nd_linear_module(nd_key_fold(key, 0), PIXELS, HIDDEN, true), nd_tanh_module(),
                      nd_linear_module(nd_key_fold(key, 1), HIDDEN, CLASSES, true));
    status = nd_module_to(self->model, options->device);
    if (status == ND_OK)
        status = learn(self, nd_key_fold(key, 2));
    if (status == ND_OK)
        status = freeze(self->model);
    if (status == ND_OK)
        status = answer_all(self);
    return status == ND_OK ? start_threads(self) : status;
}

static nd_status serve_hand_over(void *state, const char *folder) {
    const server *self = state;
    hand_over out = {0};
    nd_status status = hand_over_module(folder, "model", self->model);
    return hand_over_finish(&out, folder, status);
}

/// Lets the threads answer a step's requests.
static nd_status serve_step(void *state, int64_t step, double *ret_value) {
    server *self = state;
    pthread_mutex_lock(&self->lock);
    atomic_store(&self->next, step * REQUESTS);
    self->end = (step + 1) * REQUESTS;
    self->busy = THREADS;
    self->round++;
    pthread_cond_broadcast(&self->begun);
    while (self->busy > 0)
        pthread_cond_wait(&self->done, &self->lock);
    pthread_mutex_unlock(&self->lock);
    int64_t digits = 0, right = 0;
    for (int i = 0; i < THREADS; i++) {
        const worker *worker = &self->workers[i];
        if (worker->status != ND_OK) {
            snprintf(workload_problem, sizeof workload_problem, "a worker: %.1000s", worker->error);
            return worker->status;
        }
        digits += worker->digits;
        right += worker->right;
    }
    *ret_value = (double)right / (double)digits;
    return ND_OK;
}

static nd_status serve_finish(void *state, workload_outcome *ret_outcome) {
    server *self = state;
    latencies *all = &self->workers[0].latencies;
    int64_t digits = 0, right = 0, refused = 0, explained = 0;
    for (int i = 0; i < THREADS; i++) {
        const worker *worker = &self->workers[i];
        for (size_t k = 0; k < BUCKETS && i > 0; k++)
            all->count[k] += worker->latencies.count[k];
        digits += worker->digits;
        right += worker->right;
        refused += worker->refused;
        explained += worker->explained;
    }
    const double p50 = quantile_us(all, 0.5), p99 = quantile_us(all, 0.99);
    const double p999 = quantile_us(all, 0.999);
    ret_outcome->figures[0] = (workload_figure){"p50_us", p50};
    ret_outcome->figures[1] = (workload_figure){"p99_us", p99};
    ret_outcome->figures[2] = (workload_figure){"p999_us", p999};
    ret_outcome->score = (double)right / (double)digits;
    snprintf(ret_outcome->text, sizeof ret_outcome->text,
             "%lld requests, %lld explained, %lld refused by their quota alone; "
             "p50 %.0f us, p99 %.0f us, p99.9 %.0f us",
             (long long)self->end, (long long)explained, (long long)refused, p50, p99, p999);
    return refused == self->end / OVERRUNNING ? ND_OK : ND_ERROR_STATE;
}

static void serve_close(void *state) {
    server *self = state;
    if (!self)
        return;
    pthread_mutex_lock(&self->lock);
    self->closing = true;
    pthread_cond_broadcast(&self->begun);
    pthread_mutex_unlock(&self->lock);
    for (int i = 0; i < self->threads; i++)
        pthread_join(self->workers[i].thread, NULL);
    for (int i = 0; i < THREADS; i++)
        nd_release(self->workers[i].manager);
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->begun);
    pthread_cond_destroy(&self->done);
    nd_release(self->model);
    digits_release(&self->digits);
    free(self->expected);
    free(self);
}

const workload workload_serve = {
    .name = "serve",
    .summary = "eight threads answer requests, each under a quota; explanations leave cycles",
    .steps = 40,
    .lasts = 1000000 / REQUESTS,
    .value = "right",
    .score = "accuracy",
    .least_score = 0.9,
    .tolerance = 1e-3,
    .first_tolerance = 1e-3,
    .refuses = true,
    .makes_cycles = true,
    .has_peer = true,
    .open = serve_open,
    .step = serve_step,
    .hand_over = serve_hand_over,
    .finish = serve_finish,
    .close = serve_close,
};
