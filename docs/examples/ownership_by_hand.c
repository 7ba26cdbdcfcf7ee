// ownership, with counts by hand. Where a handle goes from one struct or thread to another there is
// no block at whose end it could be released: this is what the form is good at.
#include <nd/nd.h>
#include <pthread.h>
#include <stdio.h>

/// What a thread is given, and what it leaves.
typedef struct job {
    pthread_t thread;
    nd_tensor *samples; ///< owned; the thread releases them
    nd_tensor *result;  ///< owned; NULL on error
    char error[160];    ///< errors belong to threads: one that others shall see is handed over
} job;

/// The largest distance from the mean. Borrows x while it runs; the caller owns the result.
static nd_tensor *get_spread(const nd_tensor *x) {
    nd_tensor *mean = nd_mean(x, 0, NULL, false);
    nd_tensor *deviation = nd_sub(x, mean);
    nd_tensor *distance = nd_abs(deviation);
    nd_tensor *spread = nd_max(distance, 0, NULL, false);
    nd_release(distance);
    nd_release(deviation);
    nd_release(mean);
    return spread;
}

static void *run(void *data) {
    job *mine = data;
    mine->result = get_spread(mine->samples);
    nd_release(mine->samples); // on this thread, the last handle or not
    if (!mine->result)
        snprintf(mine->error, sizeof mine->error, "%s", nd_error_get_message());
    return NULL;
}

/// Starts a thread that computes the spread of the samples, which may be gone before it is done.
static bool start(job *work, const nd_tensor *samples) {
    work->samples = nd_retain(samples); // a count more, for the thread
    work->result = NULL;
    if (pthread_create(&work->thread, NULL, run, work) == 0)
        return true;
    nd_release(work->samples); // nobody else will
    return false;
}

/// Waits for the thread, and prints what came of it.
static void finish(job *work) {
    pthread_join(work->thread, NULL);
    if (work->result)
        printf("spread %g\n", nd_get_item(work->result));
    else
        printf("failed: %s\n", work->error);
    nd_release(work->result);
}

static void show(void) {
    job some, none;
    nd_tensor *samples = nd_arange(0, 11, 1, ND_F32);
    nd_tensor *empty = nd_slice(samples, 0, 0, 1, 0); // which has no largest element
    bool started_some = start(&some, samples);
    bool started_none = start(&none, empty);
    nd_release(empty); // beside threads that use it: they have handles of their own
    nd_release(samples);
    if (started_some)
        finish(&some);
    if (started_none)
        finish(&none);
}

int main(void) {
    show();
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
