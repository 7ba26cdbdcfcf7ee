// How a kernel becomes a launch: the only file that knows threads and blocks.
//
// A kernel is a *body*, a plain struct whose member functions say what one thread does. nvcc makes
// a CUDA kernel of it. A host compiler makes loops of it that visit the same blocks, threads and
// steps in the same grouping, which is how the tests run every kernel on machines without a GPU. So
// a body must use nothing but its own members and arguments, and no thread may depend on what
// another one does at the same time.
//
//   run_threads(queue, blocks, body)        body(block, thread), `block_threads` threads per block
//   run_elements(queue, count, body)        body(index) for 0 <= index < count
//   run_groups(queue, groups, shape, body)  `lanes` threads work together on each group:
//       State start, accumulate(group, lane, lanes)   every lane's share
//       State combine(State, State)                   joins them in a tree
//       void finish(group, lane, lanes, State)        every lane sees the joined state
#ifndef ND_KERNELS_CUDA_GRID_CUH
#define ND_KERNELS_CUDA_GRID_CUH
#include "kernels/cuda/cuda.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define ND_BOTH __host__ __device__ __forceinline__
#define ND_BOTH_CALLED inline __host__ __device__ __noinline__
#else
#define ND_BOTH inline
#define ND_BOTH_CALLED inline
#endif

#ifdef __CUDA_ARCH__
#define ND_UNROLL _Pragma("unroll")
#define ND_UNROLL_4 _Pragma("unroll 4")
#else
#define ND_UNROLL
#define ND_UNROLL_4
#endif

namespace nd_cuda {

constexpr int block_threads = 256;

ND_BOTH int64_t divide_up(int64_t count, int64_t by) {
    return (count + by - 1) / by;
}

/// How the threads of a block share groups. `lanes` is a power of two, at most block_threads. With
/// lanes_adjacent neighbouring threads are lanes of one group (they walk an axis of stride 1), else
/// they are neighbouring groups.
struct GroupShape {
    int lanes;
    bool lanes_adjacent;
};

/// What one thread of a block of groups is.
struct GroupPlace {
    int64_t group;
    int lane;
    int step; ///< distance in threads between a lane and the next one of its group

    ND_BOTH GroupPlace(GroupShape shape, int64_t block, int thread) {
        int groups_per_block = block_threads / shape.lanes;
        int inside;
        if (shape.lanes_adjacent) {
            lane = thread % shape.lanes;
            inside = thread / shape.lanes;
            step = 1;
        } else {
            lane = thread / groups_per_block;
            inside = thread % groups_per_block;
            step = groups_per_block;
        }
        group = block * groups_per_block + inside;
    }
};

#ifdef __CUDACC__

inline nd_status status_of(cudaError_t error) {
    if (error == cudaSuccess)
        return ND_OK;
    return error == cudaErrorMemoryAllocation ? ND_ERROR_OUT_OF_MEMORY : ND_ERROR_DEVICE;
}

template <class Body> __global__ void __launch_bounds__(block_threads) thread_kernel(Body body) {
    body((int64_t)blockIdx.x, (int)threadIdx.x);
}

template <class Body>
__global__ void __launch_bounds__(block_threads) element_kernel(Body body, int64_t count) {
    int64_t index = (int64_t)blockIdx.x * block_threads + threadIdx.x;
    if (index < count)
        body(index);
}

template <class Body>
__global__ void __launch_bounds__(block_threads)
    group_kernel(Body body, int64_t groups, GroupShape shape) {
    typedef typename Body::State State;
    __shared__ State states[block_threads];
    GroupPlace place(shape, blockIdx.x, (int)threadIdx.x);
    bool inside = place.group < groups;
    states[threadIdx.x] = inside ? body.accumulate(place.group, place.lane, shape.lanes) : State();
    for (int half = shape.lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (place.lane < half)
            states[threadIdx.x] =
                body.combine(states[threadIdx.x], states[threadIdx.x + half * place.step]);
    }
    __syncthreads();
    if (inside)
        body.finish(place.group, place.lane, shape.lanes,
                    states[(int)threadIdx.x - place.lane * place.step]);
}

template <class... Parameters, class... Arguments>
nd_status launch(const nd_cuda_queue *queue, int64_t blocks, void (*kernel)(Parameters...),
                 const Arguments &...arguments) {
    if (blocks == 0)
        return ND_OK;
    if (blocks > INT32_MAX)
        return ND_ERROR_UNSUPPORTED;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(block_threads);
    config.stream = (cudaStream_t)queue->stream;
    nd_status status = status_of(cudaLaunchKernelEx(&config, kernel, arguments...));
    if (status != ND_OK)
        (void)cudaGetLastError();
    return status;
}

template <class Body>
nd_status run_threads(const nd_cuda_queue *queue, int64_t blocks, const Body &body) {
    return launch(queue, blocks, thread_kernel<Body>, body);
}

template <class Body>
nd_status run_elements(const nd_cuda_queue *queue, int64_t count, const Body &body) {
    return launch(queue, divide_up(count, block_threads), element_kernel<Body>, body, count);
}

template <class Body>
nd_status run_groups(const nd_cuda_queue *queue, int64_t groups, GroupShape shape,
                     const Body &body) {
    return launch(queue, divide_up(groups, block_threads / shape.lanes), group_kernel<Body>, body,
                  groups, shape);
}

#else

template <class Body>
nd_status run_threads(const nd_cuda_queue *, int64_t blocks, const Body &body) {
    for (int64_t block = 0; block < blocks; block++)
        for (int thread = 0; thread < block_threads; thread++)
            body(block, thread);
    return ND_OK;
}

template <class Body>
nd_status run_elements(const nd_cuda_queue *, int64_t count, const Body &body) {
    for (int64_t index = 0; index < count; index++)
        body(index);
    return ND_OK;
}

template <class Body>
nd_status run_groups(const nd_cuda_queue *, int64_t groups, GroupShape shape, const Body &body) {
    typedef typename Body::State State;
    State states[block_threads];
    int64_t blocks = divide_up(groups, block_threads / shape.lanes);
    for (int64_t block = 0; block < blocks; block++) {
        for (int thread = 0; thread < block_threads; thread++) {
            GroupPlace place(shape, block, thread);
            states[thread] = place.group < groups
                                 ? body.accumulate(place.group, place.lane, shape.lanes)
                                 : State();
        }
        for (int half = shape.lanes / 2; half > 0; half /= 2)
            for (int thread = 0; thread < block_threads; thread++) {
                GroupPlace place(shape, block, thread);
                if (place.lane < half)
                    states[thread] =
                        body.combine(states[thread], states[thread + half * place.step]);
            }
        for (int thread = 0; thread < block_threads; thread++) {
            GroupPlace place(shape, block, thread);
            if (place.group < groups)
                body.finish(place.group, place.lane, shape.lanes,
                            states[thread - place.lane * place.step]);
        }
    }
    return ND_OK;
}

#endif

/// Lanes for groups of `length` elements: about four elements each, so that short rows waste few
/// threads.
inline int lanes_for(int64_t length) {
    int lanes = 1;
    while (lanes < block_threads && (int64_t)lanes * 4 < length)
        lanes *= 2;
    return lanes;
}

/// Temporary device memory until the end of the block it stands in; ordered on the queue's stream.
struct Scratch {
    const nd_cuda_queue *queue;
    void *data;
    nd_status status;

    Scratch(const nd_cuda_queue *from, int64_t bytes) : queue(from), data(nullptr), status(ND_OK) {
        status = queue->allocate(queue->context, (size_t)bytes, &data);
    }
    ~Scratch() {
        if (status == ND_OK)
            queue->release(queue->context, data);
    }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
};

} // namespace nd_cuda
#endif
