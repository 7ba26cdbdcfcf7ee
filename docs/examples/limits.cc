// limits, in C++: what a piece of work may use. The cache is the program's own container, of owners:
// to a manager it is all the same who holds its objects.
#include <cstdio>
#include <deque>
#include <nd/nd.hpp>

enum { MIB = 1 << 20 };

/// Answers a request that needs as many MiB, below the server's manager.
static void answer(const nd::manager &server, int mib) {
    nd::manager request(nd_manager_new(server, "request"));
    nd_with_manager(request) {
        nd::tensor mean = nd::mean(nd::ones(ND_SHAPE(mib, MIB / 4), ND_F32), 0, nullptr, false);
        if (mean)
            std::printf("%d MiB: the mean is %g\n", mib, nd_get_item(mean));
        else
            std::printf("%d MiB: %s\n", mib, nd_error_get_message());
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    nd_manager_close(request.get(), &report);
    if (report.escaped_objects) // somebody still holds something of this request
        std::printf("%d objects escaped\n", static_cast<int>(report.escaped_objects));
}

using cache = std::deque<nd::tensor>;

/// Called in the middle of an operation that would fail otherwise, on its thread: drops the oldest of
/// the cache until there is enough. True when it gave something up. (Beside several threads the cache
/// would want a lock.) No exception may leave it, for C is above.
static bool drop_cached(const nd_memory_pressure *pressure, void *data) noexcept {
    cache &entries = *static_cast<cache *>(data);
    uint64_t dropped = 0;
    while (dropped < pressure->bytes && !entries.empty()) {
        dropped += nd_get_storage_bytes(entries.front());
        entries.pop_front();
    }
    return dropped > 0;
}

/// Puts as many tensors of 2 MiB into the cache. They are the server's.
static nd_status fill(cache &entries, const nd::manager &server, int count) {
    nd_with_manager(server) {
        for (int i = 0; i < count; i++) {
            entries.push_back(nd::full(ND_SHAPE(2, MIB / 4), i, ND_F32));
            if (!entries.back())
                return nd_error_get_status(); // leaves the manager's block, too
        }
    }
    return ND_OK;
}

static nd_status show() {
    cache entries; // before the manager, whose callback uses it: that goes first
    nd::manager server(nd_manager_new(nullptr, "server"));
    nd_status status = nd_manager_set_quota(server.get(), ND_CPU, 8 * MIB); // of all below it, too
    if (status == ND_OK)
        status = fill(entries, server, 3);
    if (status != ND_OK)
        return status;
    answer(server, 1);
    answer(server, 4);                           // 6 MiB are in the cache
    if (nd_error_get_status() == ND_ERROR_QUOTA) // that request has failed, and nothing else
        nd_error_clear();

    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = drop_cached;
    callback.data = &entries;
    status = nd_memory_set_callback(server, &callback);
    if (status != ND_OK)
        return status;
    answer(server, 4);
    std::printf("%d entries are left in the cache\n", static_cast<int>(entries.size()));
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    status = nd_manager_get_stats(server, &stats);
    std::printf("at most %d MiB were in use\n", static_cast<int>(stats.peak_bytes[ND_CPU] / MIB));
    return status;
}

int main() {
    show();
    std::printf("%d objects left; %s\n", static_cast<int>(nd_manager_get_total_objects(nullptr)),
                nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
