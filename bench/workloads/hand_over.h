// What a workload begins with, in files that PyTorch's side reads, so that both do the same steps:
// FOLDER/NAME.safetensors for each model (its parameters and buffers), and FOLDER/drawn.safetensors for
// what the seed draws for the first steps, such as batches and noise, each as one tensor with an axis
// of draws in front.
//
// Invariant: what is handed over comes from the functions that the steps call themselves, so that it
// cannot say anything else than they do.
#ifndef ND_BENCH_WORKLOADS_HAND_OVER_H
#define ND_BENCH_WORKLOADS_HAND_OVER_H
#include <nd/nd.h>

/// Room for what is drawn, and for the names.
enum { HAND_OVER_DRAWS = 64, HAND_OVER_NAMES = 8 };

/// Draws so far, by name; begins as zeros.
typedef struct hand_over {
    const char *names[HAND_OVER_NAMES];
    size_t name_count;
    nd_tensor *draws[HAND_OVER_NAMES][HAND_OVER_DRAWS];
    size_t counts[HAND_OVER_NAMES];
} hand_over;

/// Writes FOLDER/NAME.safetensors.
nd_status hand_over_module(const char *folder, const char *name, const nd_module *module);
/// Notes one more draw of that name (which must outlive the hand_over), of the shape of those before
/// it. The tensor is retained.
nd_status hand_over_draw(hand_over *self, const char *name, const nd_tensor *draw);
/// Writes FOLDER/drawn.safetensors, unless a status says that something has failed, and releases all
/// draws. Returns that status or its own.
nd_status hand_over_finish(hand_over *self, const char *folder, nd_status status);

#endif
