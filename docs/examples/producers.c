// producers: one thread makes batches, another one trains on them. A batch is made in a scope and below
// a manager of the thread that makes it, both of which are closed before anybody has seen it: only the
// handle goes over, with what it holds.
#include <nd/scoped.h>
#include <pthread.h>
#include <stdio.h>

enum { BATCHES = 100, ROWS = 32, AHEAD = 3 };

/// A queue of batches, each [ROWS, 3]: two numbers, and 2 a - b + 1.
typedef struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    nd_tensor *ready[AHEAD];   ///< owned; batch n is in place n % AHEAD; NULL: not there
    const nd_manager *manager; ///< whose the batches are
    char error[256];           ///< of the producer's thread, which has errors of its own
} queue;

/// Owned. What was needed on the way is gone when this returns; NULL on error.
static nd_tensor *make_batch(const queue *self, int number) {
    nd_auto nd_manager *making = nd_manager_new(self->manager, "making");
    nd_auto nd_tensor *made = NULL;
    nd_with_manager(making) {
        nd_auto_scope;
        nd_key key = nd_key_fold(nd_key_new(1), (uint64_t)number);
        const nd_tensor *a = nd_randn(nd_key_fold(key, 0), ND_SHAPE(ROWS), ND_F32);
        const nd_tensor *b = nd_randn(nd_key_fold(key, 1), ND_SHAPE(ROWS), ND_F32);
        const nd_tensor *wanted = nd_add_scalar(nd_sub(nd_mul_scalar(a, 2), b), 1);
        made = nd_retain(nd_stack(3, (const nd_tensor *[]){a, b, wanted}, 1));
    }
    // The batch outlives the manager that it was made below, so it becomes its parent's.
    return nd_manager_close(making, NULL) == ND_OK ? nd_steal(&made) : NULL;
}

static void *produce(void *data) {
    queue *self = data;
    bool fine = true;
    for (int i = 0; i < BATCHES && fine; i++) {
        nd_tensor *batch = make_batch(self, i);
        fine = batch != NULL;
        pthread_mutex_lock(&self->lock);
        while (self->ready[i % AHEAD])
            pthread_cond_wait(&self->changed, &self->lock);
        self->ready[i % AHEAD] = batch; // the handle goes over, and nothing is counted
        if (!fine)
            snprintf(self->error, sizeof self->error, "%s", nd_error_get_message());
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->lock);
    }
    return NULL;
}

/// The next batch, owned; NULL when the producer has failed.
static nd_tensor *take(queue *self, int number) {
    pthread_mutex_lock(&self->lock);
    while (!self->ready[number % AHEAD] && !self->error[0])
        pthread_cond_wait(&self->changed, &self->lock);
    nd_tensor *batch = nd_steal(&self->ready[number % AHEAD]);
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    return batch;
}

/// One step of training, on another thread than the batch was made on.
static nd_status train(const nd_module *model, nd_optimizer *optimizer, const nd_tensor *batch) {
    nd_auto_scope;
    const nd_tensor *x = nd_slice(batch, 0, 2, 1, 1), *wanted = nd_slice(batch, 2, 3, 1, 1);
    nd_status status = nd_backward(nd_mse_loss(nd_module_forward(model, x), wanted), NULL);
    if (status == ND_OK)
        status = nd_optimizer_step(optimizer);
    nd_optimizer_zero_grad(optimizer);
    return status;
}

int main(void) {
    queue batches = {
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}, nd_manager_get_root(), ""};
    nd_module *model = nd_linear_module(nd_key_new(2), 2, 1, true);
    nd_sgd_options options = ND_SGD_OPTIONS_INIT;
    options.rate = 0.1;
    nd_optimizer *optimizer = nd_sgd(model, &options);
    pthread_t producer;
    if (pthread_create(&producer, NULL, produce, &batches) != 0)
        return perror("producers"), 1;
    for (int i = 0; i < BATCHES; i++) {
        nd_auto nd_tensor *batch = take(&batches, i);
        if (!batch || train(model, optimizer, batch) != ND_OK)
            return fprintf(stderr, "producers: %s%s\n", batches.error, nd_error_get_message()), 1;
    }
    pthread_join(producer, NULL);
    const float *weight = nd_get_data(nd_module_get_parameter(model, "weight"));
    printf("learnt: %.2f a + %.2f b + ...\n", (double)weight[0], (double)weight[1]);
    nd_release(optimizer);
    nd_release(model);
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
