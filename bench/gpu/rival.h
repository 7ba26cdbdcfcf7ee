// What the GPU does for whoever calls CUDA and cuBLAS directly: a copy in its memory, a product.
//
// cuBLAS is opened at run time as the library does it (ND_CUBLAS, else its usual names), and by its usual
// names, too, where ND_CUBLAS names nothing that opens: then ndarc's own kernels are measured beside it. In
// a build without CUDA nothing here works, and says so.
#ifndef ND_BENCH_GPU_RIVAL_H
#define ND_BENCH_GPU_RIVAL_H
#include <nd/nd.h>

typedef struct rival rival;

/// What does it, or why it cannot ("SKIPPED: …"). Static text.
const char *rival_open(rival **ret_rival);
/// NULL is fine.
void rival_close(rival *self);
/// Whether this process runs on the runtime without a GPU (tests/cudart).
bool rival_is_fake(void);

/// Takes memory for two blocks of so many bytes, or for two factors and a product of n x n, filled
/// with random numbers. False when there is none, or the dtype is not served.
bool rival_take_blocks(rival *self, size_t bytes);
/// f32, where `tf32` says so multiplied as TF32; f16, bf16; i8, added up in i32.
bool rival_take_matrices(rival *self, nd_dtype dtype, int64_t n, bool tf32);

/// Work for bench_measure_sides(): data is the rival; waits for the last.
bool rival_copies(void *data, uint64_t count);
bool rival_products(void *data, uint64_t count);

#endif
