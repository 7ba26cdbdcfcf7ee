// The work of //bench:refcount (argument T1) and //bench:dispatch (T2) in libtorch. Prints one JSON
// object of medians in nanoseconds.
//
// What records nothing is also measured in inference mode, which saves libtorch some bookkeeping.
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int64_t elements = 16;
constexpr size_t repeats = 401;

double seconds() {
    using clock = std::chrono::steady_clock;
    return std::chrono::duration<double>(clock::now().time_since_epoch()).count();
}

template <typename Work> double batch_seconds(const Work &work, uint64_t iterations) {
    double begin = seconds();
    for (uint64_t i = 0; i < iterations; i++)
        work();
    return seconds() - begin;
}

// Median nanoseconds of one call, over batches of at least 0.2 milliseconds.
template <typename Work> double measure_ns(const Work &work) {
    uint64_t iterations = 1;
    while (batch_seconds(work, iterations) < 2e-4)
        iterations *= 2;
    std::vector<double> batches(repeats);
    for (double &batch : batches)
        batch = batch_seconds(work, iterations) * 1e9 / static_cast<double>(iterations);
    std::nth_element(batches.begin(), batches.begin() + repeats / 2, batches.end());
    return batches[repeats / 2];
}

// Keeps the compiler from leaving out a copy that nobody reads.
void use(const torch::Tensor &tensor) {
    asm volatile("" : : "g"(&tensor) : "memory");
}

template <typename Work> void print_ns(const char *name, const Work &work) {
    std::printf(", \"%s\": %.2f", name, measure_ns(work));
}

void measure_handle() {
    torch::Tensor x = torch::rand({elements});
    print_ns("T1_rival_libtorch_ns", [&] {
        torch::Tensor handle = x;
        use(handle);
    });
}

void measure_operations() {
    torch::Tensor x = torch::rand({elements});
    torch::Tensor y = torch::rand({elements});
    torch::Tensor p = torch::rand({elements}, torch::requires_grad());
    auto create = [] { use(torch::empty({elements})); };
    auto add = [&] { use(torch::add(x, y)); };
    auto slice = [&] { use(x.slice(0, 4, 12)); };

    print_ns("T2_rival_libtorch_ns", create);
    print_ns("T3_rival_libtorch_ns", add);
    print_ns("T4_rival_libtorch_ns", slice);
    print_ns("T5_rival_libtorch_ns", [&] { use(torch::add(p, y)); });
    print_ns("T6_rival_libtorch_ns", [&] {
        torch::sum(p * y).backward();
        p.mutable_grad().reset();
    });
    c10::InferenceMode inference;
    print_ns("T2_rival_libtorch_inference_ns", create);
    print_ns("T3_rival_libtorch_inference_ns", add);
    print_ns("T4_rival_libtorch_inference_ns", slice);
}

} // namespace

int main(int argc, char **argv) {
    std::printf("{\"library\": \"libtorch %s\"", TORCH_VERSION);
    if (argc > 1 && std::strcmp(argv[1], "T1") == 0)
        measure_handle();
    else
        measure_operations();
    std::printf("}\n");
    return 0;
}
