// serving: threads answer requests with one model. Each request has a manager of its own, with a quota:
// one that asks for too much gets its error, and the others do not notice.
#include <nd/scoped.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { THREADS = 4, REQUESTS = 400, WIDTH = 64, QUOTA = 1 << 20 };

typedef struct server {
    const nd_module *model;
    nd_manager *requests; ///< above those of all requests
    atomic_int next;      ///< number of the next request
    atomic_int answered, refused, wrong;
} server;

/// How many rows a request has: every hundredth has far too many.
static int64_t rows_of(int request) {
    return request % 100 == 99 ? 100000 : 1 + request % 8;
}

/// The mean of the model's answers to rows of ones, which is the same for any number of them.
static nd_status answer(const server *self, int request, double *ret_mean) {
    nd_auto_scope;
    const nd_tensor *rows = nd_ones(ND_SHAPE(rows_of(request), WIDTH), ND_F32);
    const nd_tensor *mean = nd_mean(nd_module_forward(self->model, rows), 0, NULL, false);
    *ret_mean = mean ? nd_get_item(mean) : 0;
    return mean ? ND_OK : nd_error_get_status();
}

/// Answers a request below a manager of its own.
static nd_status serve(server *self, int request, double *ret_mean) {
    nd_auto nd_manager *manager = nd_manager_new(self->requests, "request");
    nd_status status = nd_manager_set_quota(manager, ND_CPU, QUOTA);
    if (status == ND_OK)
        nd_with_manager(manager) {
            nd_no_grad status = answer(self, request, ret_mean);
        }
    nd_manager_close(manager, NULL); // the boundary, at which the collector looks, if it is on
    return status;
}

static void *work(void *data) {
    server *self = data;
    double expected = 0;
    if (serve(self, 0, &expected) != ND_OK)
        return NULL;
    for (int request; (request = atomic_fetch_add(&self->next, 1)) < REQUESTS;) {
        double mean = 0;
        nd_status status = serve(self, request, &mean);
        if (status == ND_ERROR_QUOTA) { // this request's alone, and errors are each thread's own
            nd_error_clear();
            atomic_fetch_add(&self->refused, 1);
        } else if (status == ND_OK && mean - expected < 1e-4 && expected - mean < 1e-4) {
            atomic_fetch_add(&self->answered, 1);
        } else {
            atomic_fetch_add(&self->wrong, 1);
        }
    }
    return NULL;
}

static void show(void) {
    nd_auto nd_module *model =
        ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), WIDTH, WIDTH, true), nd_relu_module(),
                      nd_linear_module(nd_key_new(2), WIDTH, 8, true));
    nd_auto nd_manager *requests = nd_manager_new(NULL, "requests");
    server all = {.model = model, .requests = requests};
    pthread_t threads[THREADS];
    int started = 0;
    while (started < THREADS && pthread_create(&threads[started], NULL, work, &all) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    printf("%d requests answered, %d refused, %d wrong\n", atomic_load(&all.answered),
           atomic_load(&all.refused), atomic_load(&all.wrong));
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    nd_manager_get_stats(requests, &stats);
    printf("no more than %d requests' quotas in use at once: %s; %d bytes left\n", THREADS,
           stats.peak_bytes[ND_CPU] <= (uint64_t)THREADS * QUOTA ? "yes" : "no",
           (int)stats.subtree_bytes[ND_CPU]);
    nd_manager_close(requests, NULL);
}

int main(void) {
    show();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
