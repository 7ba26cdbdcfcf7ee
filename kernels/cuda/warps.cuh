// Kernels whose warps work together: a block in shared memory, as of run_phases (grid.cuh), whose lanes
// use what the others of their warp hold in registers.
//
//   run_warps(queue, blocks, body)          Body::threads threads, Body::phases phases of a step
//       begin(block, thread, shared, own)             Own is a thread's registers
//       int64_t steps(block)
//       phase<number>(block, thread, step, shared, own, lanes)
//       finish(block, thread, own, lanes)
//       ends_in_warp<number>                          the warp alone ends a phase together, else the block
//
// A lane may read of the others (`lanes`) what none of them writes in the same phase. Where there is
// hardware for it (shuffles, tensor cores) it reads nothing there. Behind each phase lies a barrier, of
// the warp or the block, so what a lane has left in shared memory is there for them.
#ifndef ND_KERNELS_CUDA_WARPS_CUH
#define ND_KERNELS_CUDA_WARPS_CUH
#include "kernels/cuda/copies.cuh"
#include "kernels/cuda/tile.cuh"

namespace nd_cuda {

/// The largest of what `count` neighbouring lanes have, or their sum: `mine` of this lane, `of(other)` of
/// another thread. The same bits in all of them.
template <int count, class Thread, class Of, class Join>
ND_BOTH float joined_among(int lane, const Lanes<Thread> &lanes, float mine, const Of &of,
                           const Join &join) {
#ifdef __CUDA_ARCH__
    (void)lane, (void)lanes, (void)of;
    ND_UNROLL
    for (int apart = 1; apart < count; apart *= 2)
        mine = join(mine, __shfl_xor_sync(0xFFFFFFFFu, mine, apart));
    return mine;
#else
    // In the order of the shuffles.
    (void)mine;
    float joined[count], before[count];
    for (int i = 0; i < count; i++)
        joined[i] = of(*lanes.thread[lane / count * count + i]);
    for (int apart = 1; apart < count; apart *= 2) {
        memcpy(before, joined, sizeof before);
        for (int i = 0; i < count; i++)
            joined[i] = join(before[i], before[i ^ apart]);
    }
    return joined[lane % count];
#endif
}

#ifdef __CUDACC__

/// What a lane has written to shared memory before, others of its warp read behind it.
#ifdef CUDART_FAKE
#define ND_WARP_BARRIER() ND_WARP_EXCHANGE()
#else
#define ND_WARP_BARRIER() __syncwarp()
#endif

template <int number, class Body>
__device__ __forceinline__ void
one_warp_phase(const Body &body, int64_t step, typename Body::Shared &shared,
               typename Body::Own &own, const Lanes<typename Body::Own> &lanes) {
    if constexpr (number < Body::phases) {
        body.template phase<number>((int64_t)blockIdx.x, (int)threadIdx.x, step, shared, own,
                                    lanes);
        if constexpr (Body::template ends_in_warp<number>)
            ND_WARP_BARRIER();
        else
            __syncthreads();
        one_warp_phase<number + 1>(body, step, shared, own, lanes);
    }
}

template <class Body>
__global__ void __launch_bounds__(Body::threads, Body::least_blocks) warp_kernel(Body body) {
    begin_kernel();
    typedef typename Body::Own Own;
    __shared__ typename Body::Shared shared;
    Own own;
    Lanes<Own> lanes = {nullptr};
#ifdef CUDART_FAKE
    __shared__ const Own *threads[Body::threads];
    threads[threadIdx.x] = &own;
    lanes.thread = threads + threadIdx.x / warp_threads * warp_threads;
#endif
    body.begin((int64_t)blockIdx.x, (int)threadIdx.x, shared, own);
    __syncthreads();
    const int64_t steps = body.steps((int64_t)blockIdx.x);
    for (int64_t step = 0; step < steps; step++)
        one_warp_phase<0>(body, step, shared, own, lanes);
    body.finish((int64_t)blockIdx.x, (int)threadIdx.x, own, lanes);
#ifdef CUDART_FAKE
    __syncthreads(); // the others read what this thread has
#endif
}

template <class Body>
nd_status run_warps(const nd_cuda_queue *queue, int64_t blocks, const Body &body) {
    return launch(queue, blocks, Body::threads, warp_kernel<Body>, body);
}

#else

template <int number, class Body>
void all_warp_phases(const Body &body, int64_t block, int64_t step, typename Body::Shared &shared,
                     typename Body::Own *own, const typename Body::Own *const *threads) {
    if constexpr (number < Body::phases) {
        for (int thread = 0; thread < Body::threads; thread++)
            body.template phase<number>(block, thread, step, shared, own[thread],
                                        {threads + thread / warp_threads * warp_threads});
        all_warp_phases<number + 1>(body, block, step, shared, own, threads);
    }
}

template <class Body> nd_status run_warps(const nd_cuda_queue *, int64_t blocks, const Body &body) {
    typedef typename Body::Own Own;
    typename Body::Shared shared;
    Own own[Body::threads];
    const Own *threads[Body::threads];
    for (int thread = 0; thread < Body::threads; thread++)
        threads[thread] = &own[thread];
    for (int64_t block = 0; block < blocks; block++) {
        memset((void *)&shared, 0xA5, sizeof shared);
        memset((void *)own, 0xA5, sizeof own);
        for (int thread = 0; thread < Body::threads; thread++)
            body.begin(block, thread, shared, own[thread]);
        for (int64_t step = 0; step < body.steps(block); step++)
            all_warp_phases<0>(body, block, step, shared, own, threads);
        for (int thread = 0; thread < Body::threads; thread++)
            body.finish(block, thread, own[thread],
                        {threads + thread / warp_threads * warp_threads});
    }
    return ND_OK;
}

#endif

} // namespace nd_cuda
#endif
