// ownership: who releases what, across functions, structs and threads.
//
// The types say it: a T * is owned and owes one nd_release(), a const T * is borrowed. A thread that
// is to use a tensor for as long as it likes gets a count of its own.
#include <nd/nd.h>
#include <pthread.h>
#include <stdio.h>

/// What a thread is given, and what it leaves.
typedef struct job {
    pthread_t thread;
    nd_tensor *samples; ///< owned by the job until the thread takes it
    nd_tensor *result;  ///< owned; NULL on error
    char error[160];    ///< errors belong to threads: one that others shall see is handed over
} job;

/// The largest distance from the mean. Borrows x while it runs; the caller owns the result.
static nd_tensor *get_spread(const nd_tensor *x) {
    nd_auto nd_tensor *mean = nd_mean(x, 0, NULL, false);
    nd_auto nd_tensor *deviation = nd_sub(x, mean);
    nd_auto nd_tensor *distance = nd_abs(deviation);
    return nd_max(distance, 0, NULL, false);
}

static void *run(void *data) {
    job *mine = data;
    nd_auto nd_tensor *samples = nd_steal(&mine->samples); // taken: released when this returns
    mine->result = get_spread(samples);
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
    nd_release(work->samples); // nobody will take it
    return false;
}

/// Waits for the thread, and prints what came of it.
static void finish(job *work) {
    pthread_join(work->thread, NULL);
    nd_auto nd_tensor *result = nd_steal(&work->result);
    if (result)
        printf("spread %g\n", nd_get_item(result));
    else
        printf("failed: %s\n", work->error);
}

static void show(void) {
    job some, none;
    bool started_some, started_none;
    {
        nd_auto nd_tensor *samples = nd_arange(0, 11, 1, ND_F32);
        nd_auto nd_tensor *empty = nd_slice(samples, 0, 0, 1, 0); // which has no largest element
        started_some = start(&some, samples);
        started_none = start(&none, empty);
    } // our handles end here; the threads have theirs
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
