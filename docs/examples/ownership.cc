// ownership, in C++. nd::tensor in the parameters is a handle of the function's own, const
// nd::tensor & a borrowed one. What a lambda captures by value is counted for the thread it runs on.
#include <cstdio>
#include <nd/nd.hpp>
#include <string>
#include <thread>

/// What a thread leaves.
struct outcome {
    nd::tensor spread;
    std::string error; ///< errors belong to threads: one that others shall see is handed over
};

/// The largest distance from the mean.
static nd::tensor get_spread(const nd::tensor &x) {
    return nd::max(nd::abs(x - nd::mean(x, 0, nullptr, false)), 0, nullptr, false);
}

/// Starts a thread that computes the spread of the samples, which may be gone before it is done.
static std::thread start(outcome &result, const nd::tensor &samples) {
    return std::thread([samples, &result] { // a copy: a count more, for the thread
        result.spread = get_spread(samples);
        if (!result.spread)
            result.error = nd_error_get_message();
    });
}

/// Waits for the thread, and prints what came of it.
static void finish(std::thread &thread, const outcome &result) {
    thread.join();
    if (result.spread)
        std::printf("spread %g\n", nd_get_item(result.spread));
    else
        std::printf("failed: %s\n", result.error.c_str());
}

static void show() {
    outcome some, none;
    nd::tensor samples = nd::arange(0, 11, 1, ND_F32);
    nd::tensor empty = nd::slice(samples, 0, 0, 1, 0); // which has no largest element
    std::thread first = start(some, samples);
    std::thread second = start(none, empty);
    empty.reset(); // our handles end here; the threads have theirs
    samples.reset();
    finish(first, some);
    finish(second, none);
}

int main() {
    show();
    std::printf("%d objects left; %s\n", static_cast<int>(nd_manager_get_total_objects(nullptr)),
                nd_error_get_message());
    return nd_error_get_status() != ND_OK;
}
