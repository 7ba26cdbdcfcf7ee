// The work of //bench:basics in libtorch. Prints one JSON object of medians in nanoseconds.
//
// T3 is also measured in inference mode, which saves libtorch some of its bookkeeping.
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
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

} // namespace

int main() {
    torch::Tensor x = torch::rand({elements});
    torch::Tensor y = torch::rand({elements});
    torch::Tensor p = torch::rand({elements}, torch::requires_grad());

    std::printf("{\"library\": \"libtorch %s\"", TORCH_VERSION);
    std::printf(", \"T1_rival_ns\": %.2f", measure_ns([&] {
                    torch::Tensor handle = x;
                    use(handle);
                }));
    std::printf(", \"T2_rival_ns\": %.2f", measure_ns([&] { use(torch::empty({elements})); }));
    std::printf(", \"T3_rival_ns\": %.2f", measure_ns([&] { use(torch::add(x, y)); }));
    {
        c10::InferenceMode inference;
        std::printf(", \"T3_rival_inference_ns\": %.2f",
                    measure_ns([&] { use(torch::add(x, y)); }));
    }
    std::printf(", \"T4_rival_ns\": %.2f", measure_ns([&] { use(x.slice(0, 4, 12)); }));
    std::printf(", \"T5_rival_ns\": %.2f", measure_ns([&] { use(torch::add(p, y)); }));
    std::printf(", \"T6_rival_ns\": %.2f", measure_ns([&] {
                    torch::sum(p * y).backward();
                    p.mutable_grad().reset();
                }));
    std::printf("}\n");
    return 0;
}
