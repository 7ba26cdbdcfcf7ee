// NCCL, opened, and its calls. Invariant: a call that fails for good has aborted the communicator, so
// that its work on the device ends.
#include "lib/distributed/nccl_call.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/base/optional.h"

#include <string.h>
#include <time.h>

nd_nccl_api nd__nccl_call_api;
#define api nd__nccl_call_api

// -------------------------------------------------------------------------------------------------
// opening

nd_status nd__nccl_call_open(const char *operation) {
#define NAME(name, type, parameters) #name,
    static const char *const names[] = {ND__NCCL_FUNCTIONS(NAME)};
#undef NAME
    static const char *const files[] = {"libnccl.so.2", NULL};
    static nd_optional nccl = {.what = "NCCL 2.14 or newer",
                               .package = "libnccl2",
                               .variable = "ND_NCCL",
                               .files = files,
                               .count = sizeof names / sizeof *names,
                               .names = names};
    static nd_lock lock;
    const void *found = nd__optional_functions(&nccl);
    if (!found) {
        char why[ND__OPTIONAL_TEXT];
        nd_status status = nd__optional_explain(&nccl, why);
        return nd__error(status, "%s: %s", operation, why);
    }
    nd__lock_acquire(&lock);
    static bool copied;
    if (!copied)
        memcpy(&api, found, sizeof api);
    copied = true;
    nd__lock_release(&lock);
    return ND_OK;
}

static int index_of(const nd_nccl *nccl) {
    return nccl->transport.device.index;
}

// -------------------------------------------------------------------------------------------------
// waiting

/// Gives up the communicator: its work on the device ends, and the device's memory is free.
static nd_status give_up(nd_nccl *nccl, const nd_transport_call *call, int answer) {
    if (nccl->comm)
        api.ncclCommAbort(nccl->comm);
    nccl->comm = NULL;
    if (answer != ND__NCCL_SUCCESS)
        return nd__error(ND_ERROR_IO, "%s: NCCL failed: %s", call->operation,
                         api.ncclGetErrorString(answer));
    return nd__error(ND_ERROR_IO, ND__TRANSPORT_SILENCE, call->operation, call->seconds);
}

/// What NCCL says now of a call that it has answered so.
static int ask_again(const nd_nccl *nccl, int answer) {
    int asynchronous = ND__NCCL_SUCCESS;
    if (!nd__nccl_call_is_well(answer))
        return answer;
    answer = api.ncclCommGetAsyncError(nccl->comm, &asynchronous);
    return answer != ND__NCCL_SUCCESS ? answer : asynchronous;
}

/// Seconds since then. Sleeps, unless that was a moment ago.
static double pause_since(uint64_t begin) {
    double waited = (double)(nd__clock_now_ns() - begin) * 1e-9;
    if (waited > 1e-3)
        nanosleep(&(struct timespec){0, waited > 1 ? 1000000 : 20000}, NULL);
    return waited;
}

/// Waits until NCCL has taken a call, which it has answered so.
static nd_status wait_for_nccl(nd_nccl *nccl, const nd_transport_call *call, int answer) {
    while ((answer = ask_again(nccl, answer)) == ND__NCCL_IN_PROGRESS)
        if (pause_since(nccl->begin) > call->seconds)
            return give_up(nccl, call, ND__NCCL_SUCCESS);
    return answer == ND__NCCL_SUCCESS ? ND_OK : give_up(nccl, call, answer);
}

nd_status nd__nccl_call_device(const nd_nccl *nccl, const nd_transport_call *call,
                               nd_status status) {
    return status == ND_OK ? ND_OK
                           : nd__error(status, "%s: work on %s failed with %s", call->operation,
                                       nd__registry_device_text(nccl->transport.device),
                                       nd_status_get_name(status));
}

/// Waits until the stream's work is done: this rank's own, for which there is no deadline, or with
/// `others` what other ranks have a part in.
static nd_status wait_for_work(nd_nccl *nccl, const nd_transport_call *call, bool others) {
    uint64_t begin = nd__clock_now_ns();
    for (;;) {
        int answer = others ? ask_again(nccl, ND__NCCL_SUCCESS) : ND__NCCL_SUCCESS;
        if (!nd__nccl_call_is_well(answer))
            return give_up(nccl, call, answer);
        bool done = false;
        nd_status status =
            nd__nccl_call_backend(nccl)->streams->query(index_of(nccl), nccl->stream, &done);
        if (status != ND_OK)
            return nd__nccl_call_device(nccl, call, status);
        if (done)
            return ND_OK;
        pause_since(begin);
        if (others && (double)(nd__clock_now_ns() - nccl->begin) * 1e-9 > call->seconds)
            return give_up(nccl, call, ND__NCCL_SUCCESS);
    }
}

// -------------------------------------------------------------------------------------------------
// a call of NCCL's

static nd_status do_nothing(void *stream, void *data) {
    (void)stream;
    (void)data;
    return ND_OK;
}

/// With the device current. What NCCL does later than it answers is done when it has taken the call.
static nd_status hand_over(void *stream, void *data) {
    nd_nccl_request *request = data;
    nd_nccl *nccl = request->nccl;
    nccl->begin = nd__clock_now_ns();
    nd_status status = wait_for_nccl(nccl, request->call, request->ask(request, stream));
    request->explained = status != ND_OK;
    return status;
}

nd_status nd__nccl_call_run(nd_nccl_request *request) {
    nd_nccl *nccl = request->nccl;
    const nd_stream_functions *streams = nd__nccl_call_backend(nccl)->streams;
    const int index = index_of(nccl);
    const nd_device_use uses[] = {{request->into, true}, {request->from, false}};
    const size_t count = request->into ? 2 : 0;
    void *before = streams->use(index, nccl->stream);
    nd_status status = streams->lend(index, count, uses, do_nothing, NULL);
    if (status == ND_OK) {
        status = wait_for_work(nccl, request->call, false);
        request->explained = status != ND_OK;
    }
    if (status == ND_OK)
        status = streams->lend(index, count, uses, hand_over, request);
    if (status == ND_OK) {
        status = wait_for_work(nccl, request->call, true);
        request->explained = status != ND_OK;
    }
    streams->use(index, before);
    return request->explained ? status : nd__nccl_call_device(nccl, request->call, status);
}
