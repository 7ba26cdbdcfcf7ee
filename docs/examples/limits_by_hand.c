// limits, with counts by hand: what a piece of work may use. A manager owns nothing: its handle is
// released like any other, and it makes no release of an object unnecessary.
#include <nd/nd.h>
#include <stdio.h>

enum { MIB = 1 << 20 };

/// Answers a request that needs as many MiB, below the server's manager.
static void answer(const nd_manager *server, int mib) {
    nd_manager *request = nd_manager_new(server, "request");
    nd_with_manager(request) {
        nd_tensor *x = nd_ones(ND_SHAPE(mib, MIB / 4), ND_F32);
        nd_tensor *mean = nd_mean(x, 0, NULL, false);
        if (mean)
            printf("%d MiB: the mean is %g\n", mib, nd_get_item(mean));
        else
            printf("%d MiB: %s\n", mib, nd_error_get_message());
        nd_release(mean);
        nd_release(x);
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    nd_manager_close(request, &report);
    if (report.escaped_objects) // somebody still holds something of this request
        printf("%d objects escaped\n", (int)report.escaped_objects);
    nd_release(request);
}

/// Called in the middle of an operation that would fail otherwise, on its thread: drops the oldest of
/// the cache until there is enough. True when it gave something up. (Beside several threads the cache
/// would want a lock.)
static bool drop_cached(const nd_memory_pressure *pressure, void *data) {
    nd_list *cache = data;
    uint64_t dropped = 0;
    while (dropped < pressure->bytes && nd_list_get_size(cache) > 0) {
        nd_tensor *oldest = (nd_tensor *)nd_list_remove(cache, 0);
        dropped += nd_get_storage_bytes(oldest);
        nd_release(oldest); // what the list held is ours now
    }
    return dropped > 0;
}

/// Puts as many tensors of 2 MiB into the cache. They are the server's.
static nd_status fill(nd_list *cache, const nd_manager *server, int count) {
    nd_status status = ND_OK;
    nd_with_manager(server) {
        for (int i = 0; status == ND_OK && i < count; i++) {
            nd_tensor *entry = nd_full(ND_SHAPE(2, MIB / 4), i, ND_F32);
            status = nd_list_append(cache, entry); // which retains it
            nd_release(entry);
        }
    }
    return status;
}

static nd_status show(nd_manager *server, nd_list *cache) {
    nd_status status = nd_manager_set_quota(server, ND_CPU, 8 * MIB); // of it and all below it
    if (status == ND_OK)
        status = fill(cache, server, 3);
    if (status != ND_OK)
        return status;
    answer(server, 1);
    answer(server, 4);                           // 6 MiB are in the cache
    if (nd_error_get_status() == ND_ERROR_QUOTA) // that request has failed, and nothing else
        nd_error_clear();

    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = drop_cached;
    callback.data = cache; // which main() keeps until the server is closed
    status = nd_memory_set_callback(server, &callback);
    if (status != ND_OK)
        return status;
    answer(server, 4);
    printf("%d entries are left in the cache\n", (int)nd_list_get_size(cache));
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    status = nd_manager_get_stats(server, &stats);
    printf("at most %d MiB were in use\n", (int)(stats.peak_bytes[ND_CPU] / MIB));
    return status;
}

int main(void) {
    nd_manager *server = nd_manager_new(NULL, "server");
    nd_list *cache = nd_list_new();
    show(server, cache);
    nd_release(server); // the last handle of an open manager closes it; its callback goes with it
    nd_release(cache);
    printf("%d objects left; %s\n", (int)nd_manager_get_total_objects(NULL),
           nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
