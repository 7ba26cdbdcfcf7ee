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
//   run_rows(queue, rows, body)             Body::lanes threads, a warp's or a block's, work together
//                                           on each row and keep what they read of it:
//       Kept kept; load(kept, row, lane)              in registers
//       State share<round>(kept, lane, state)         for each of Body::rounds, after the joined
//       State combine<round>(State, State)            state of the last one
//       void finish(kept, row, lane, state)
//   run_phases(queue, blocks, body)         a block works in Shared memory, Body::threads threads:
//       begin(block, thread, own)                     Own is a thread's registers
//       int64_t steps(block)                          each step is Body::phases phases, which all
//       phase<number>(block, thread, step, shared, own)    threads end before one begins the next
//       finish(block, thread, shared, own)
#ifndef ND_KERNELS_CUDA_GRID_CUH
#define ND_KERNELS_CUDA_GRID_CUH
#include "kernels/cuda/cuda.h"
#include <string.h>

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
#define ND_UNROLL_2 _Pragma("unroll 2")
#define ND_UNROLL_4 _Pragma("unroll 4")
#define ND_ROLLED _Pragma("unroll 1")
#else
#define ND_UNROLL
#define ND_UNROLL_2
#define ND_UNROLL_4
#define ND_ROLLED
#endif

namespace nd_cuda {

constexpr int block_threads = 256;
constexpr int warp_threads = 32;
/// Blocks that a multiprocessor holds at least: 65,536 registers for theirs. Without a number the
/// compiler spills a few registers to come down to a multiple of 8 that lets in one more. A body of
/// run_threads or run_groups may have a number of its own.
constexpr int least_element_blocks = 4;
template <class Body, class = void> constexpr int least_thread_blocks = 2;
template <class Body>
constexpr int least_thread_blocks<Body, decltype((void)Body::least_blocks)> = Body::least_blocks;
template <class Body, class = void> constexpr int least_group_blocks = 3;
template <class Body>
constexpr int least_group_blocks<Body, decltype((void)Body::least_blocks)> = Body::least_blocks;

ND_BOTH int64_t divide_up(int64_t count, int64_t by) {
    return (count + by - 1) / by;
}

/// Of a power of two.
ND_BOTH int exponent_of(int power) {
#ifdef __CUDA_ARCH__
    return __ffs(power) - 1;
#else
    int exponent = 0;
    while (power >> exponent != 1)
        exponent++;
    return exponent;
#endif
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
        // Both are powers of two: a division would be a good part of a short kernel.
        int groups_per_block = block_threads >> exponent_of(shape.lanes);
        int inside;
        if (shape.lanes_adjacent) {
            lane = thread & (shape.lanes - 1);
            inside = thread >> exponent_of(shape.lanes);
            step = 1;
        } else {
            lane = thread >> exponent_of(groups_per_block);
            inside = thread & (groups_per_block - 1);
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

/// The first thing that every kernel does. Its blocks may be there before the kernel in front of it on the
/// stream has ended (launch_with_shared): here they wait for its end and see all that it wrote, and so
/// what came before that one, which waited likewise. Those of the next may come from now on.
__device__ __forceinline__ void begin_kernel() {
#if defined CUDART_FAKE || __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
#endif
}

template <class Body>
__global__ void __launch_bounds__(block_threads, least_thread_blocks<Body>)
    thread_kernel(Body body) {
    begin_kernel();
    body((int64_t)blockIdx.x, (int)threadIdx.x);
}

template <class Body>
__global__ void __launch_bounds__(block_threads, least_element_blocks)
    element_kernel(Body body, int64_t count) {
    begin_kernel();
    int64_t index = (int64_t)blockIdx.x * block_threads + threadIdx.x;
    if (index < count)
        body(index);
}

/// What a thread of this warp has, read by all at once.
template <class State, class Exchange>
__device__ __forceinline__ State exchanged(const State &state, const Exchange &exchange) {
    static_assert(sizeof(State) % sizeof(uint32_t) == 0, "states are exchanged in words");
    constexpr int words = (int)(sizeof(State) / sizeof(uint32_t));
    uint32_t word[words];
    memcpy(word, &state, sizeof word);
    ND_UNROLL
    for (int i = 0; i < words; i++)
        word[i] = exchange(word[i]);
    State result;
    memcpy(&result, word, sizeof result);
    return result;
}

/// The states of `lanes` neighbouring threads of a warp, joined; the same bits for all of them.
template <class Join, class State>
__device__ __forceinline__ State joined_in_warp(const Join &join, State state, int lanes) {
    ND_UNROLL
    for (int half = lanes / 2; half > 0; half /= 2)
        state = join(state, exchanged(state, [half](uint32_t word) {
                         return __shfl_xor_sync(0xFFFFFFFFu, word, half);
                     }));
    return exchanged(state,
                     [lanes](uint32_t word) { return __shfl_sync(0xFFFFFFFFu, word, 0, lanes); });
}

/// The same of a group of several warps; `states` has one for each warp of the block.
template <class Join, class State>
__device__ __forceinline__ State joined_in_block(const Join &join, State state, int lanes,
                                                 State *states) {
    state = joined_in_warp(join, state, warp_threads);
    int thread = (int)threadIdx.x, first = (thread & -lanes) / warp_threads;
    if (thread % warp_threads == 0)
        states[thread / warp_threads] = state;
    __syncthreads();
    state = states[first];
    for (int warp = 1; warp < lanes / warp_threads; warp++)
        state = join(state, states[first + warp]);
    return state;
}

/// The same of threads that stand `place.step` apart.
template <class Join, class State>
__device__ __forceinline__ State joined_apart(const Join &join, State state, GroupPlace place,
                                              int lanes, State *states) {
    int thread = (int)threadIdx.x;
    states[thread] = state;
    for (int half = lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        if (place.lane < half)
            states[thread] = join(states[thread], states[thread + half * place.step]);
    }
    __syncthreads();
    return states[thread - place.lane * place.step];
}

template <class Body>
__global__ void __launch_bounds__(block_threads, least_group_blocks<Body>)
    group_kernel(Body body, int64_t groups, GroupShape shape) {
    begin_kernel();
    typedef typename Body::State State;
    __shared__ State states[block_threads];
    GroupPlace place(shape, blockIdx.x, (int)threadIdx.x);
    bool inside = place.group < groups;
    State state = inside ? body.accumulate(place.group, place.lane, shape.lanes) : State();
    auto join = [&body](const State &a, const State &b) { return body.combine(a, b); };
    if (!shape.lanes_adjacent)
        state = joined_apart(join, state, place, shape.lanes, states);
    else if (shape.lanes <= warp_threads)
        state = joined_in_warp(join, state, shape.lanes);
    else
        state = joined_in_block(join, state, shape.lanes, states);
    if (inside)
        body.finish(place.group, place.lane, shape.lanes, state);
}

/// Round after round; recursion, because a round is a constant.
template <int round, class Body>
__device__ __forceinline__ typename Body::State
rows_joined(const Body &body, typename Body::Kept &kept, int lane, bool inside,
            const typename Body::State &before, typename Body::State *states) {
    typedef typename Body::State State;
    if constexpr (round == Body::rounds) {
        return before;
    } else {
        auto join = [&body](const State &a, const State &b) {
            return body.template combine<round>(a, b);
        };
        State state = inside ? body.template share<round>(kept, lane, before) : State();
        if constexpr (Body::lanes <= warp_threads)
            state = joined_in_warp(join, state, Body::lanes);
        else
            state = joined_in_block(join, state, Body::lanes,
                                    states + round * (Body::threads / warp_threads));
        return rows_joined<round + 1>(body, kept, lane, inside, state, states);
    }
}

template <class Body>
__global__ void __launch_bounds__(Body::threads, Body::least_blocks)
    row_kernel(Body body, int64_t rows) {
    begin_kernel();
    typedef typename Body::State State;
    __shared__ State states[Body::rounds * (Body::threads / warp_threads)];
    int thread = (int)threadIdx.x, lane = thread % Body::lanes;
    int64_t row = (int64_t)blockIdx.x * (Body::threads / Body::lanes) + thread / Body::lanes;
    bool inside = row < rows;
    typename Body::Kept kept;
    if (inside)
        body.load(kept, row, lane);
    State state = rows_joined<0>(body, kept, lane, inside, State(), states);
    if (inside)
        body.finish(kept, row, lane, state);
}

template <int number, class Body>
__device__ __forceinline__ void one_phase(const Body &body, int64_t step,
                                          typename Body::Shared &shared, typename Body::Own &own) {
    if constexpr (number < Body::phases) {
        body.template phase<number>((int64_t)blockIdx.x, (int)threadIdx.x, step, shared, own);
        __syncthreads();
        one_phase<number + 1>(body, step, shared, own);
    }
}

template <class Body>
__global__ void __launch_bounds__(Body::threads, Body::least_blocks) phase_kernel(Body body) {
    begin_kernel();
    __shared__ typename Body::Shared shared;
    typename Body::Own own;
    body.begin((int64_t)blockIdx.x, (int)threadIdx.x, own);
    int64_t steps = body.steps((int64_t)blockIdx.x);
    for (int64_t step = 0; step < steps; step++)
        one_phase<0>(body, step, shared, own);
    body.finish((int64_t)blockIdx.x, (int)threadIdx.x, shared, own);
}

/// `shared_bytes` of dynamic shared memory, more than every kernel may have without asking.
template <class... Parameters, class... Arguments>
nd_status launch_with_shared(const nd_cuda_queue *queue, int64_t blocks, int threads,
                             size_t shared_bytes, void (*kernel)(Parameters...),
                             const Arguments &...arguments) {
    if (blocks == 0)
        return ND_OK;
    if (blocks > INT32_MAX)
        return ND_ERROR_UNSUPPORTED;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = (cudaStream_t)queue->stream;
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &overlap;
    config.numAttrs = queue->overlaps ? 1 : 0;
    cudaError_t error = cudaSuccess;
    // For each launch, of the current device: nothing is kept between calls.
    if (shared_bytes > 0)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     (int)shared_bytes);
    if (error == cudaSuccess)
        error = cudaLaunchKernelEx(&config, kernel, arguments...);
    if (error != cudaSuccess)
        (void)cudaGetLastError();
    return status_of(error);
}

template <class... Parameters, class... Arguments>
nd_status launch(const nd_cuda_queue *queue, int64_t blocks, int threads,
                 void (*kernel)(Parameters...), const Arguments &...arguments) {
    return launch_with_shared(queue, blocks, threads, 0, kernel, arguments...);
}

template <class Body>
nd_status run_threads(const nd_cuda_queue *queue, int64_t blocks, const Body &body) {
    return launch(queue, blocks, block_threads, thread_kernel<Body>, body);
}

template <class Body>
nd_status run_elements(const nd_cuda_queue *queue, int64_t count, const Body &body) {
    return launch(queue, divide_up(count, block_threads), block_threads, element_kernel<Body>, body,
                  count);
}

template <class Body>
nd_status run_groups(const nd_cuda_queue *queue, int64_t groups, GroupShape shape,
                     const Body &body) {
    return launch(queue, divide_up(groups, block_threads / shape.lanes), block_threads,
                  group_kernel<Body>, body, groups, shape);
}

template <class Body>
nd_status run_rows(const nd_cuda_queue *queue, int64_t rows, const Body &body) {
    return launch(queue, divide_up(rows, Body::threads / Body::lanes), Body::threads,
                  row_kernel<Body>, body, rows);
}

template <class Body>
nd_status run_phases(const nd_cuda_queue *queue, int64_t blocks, const Body &body) {
    return launch(queue, blocks, Body::threads, phase_kernel<Body>, body);
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

/// The states of `lanes` threads in the place of each of them, joined in the order of the device:
/// those of a warp first, by halves, then warp after warp; those that stand apart by halves.
template <class Join, class State>
void join_states(const Join &join, State *states, int threads, int lanes, int step) {
    int together = step == 1 && lanes > warp_threads ? warp_threads : lanes;
    for (int half = together / 2; half > 0; half /= 2)
        for (int thread = 0; thread < threads; thread++)
            if (thread / step % together < half)
                states[thread] = join(states[thread], states[thread + half * step]);
    for (int thread = 0; thread < threads; thread++) {
        int lane = thread / step % lanes;
        if (lane == 0)
            for (int warp = together; warp < lanes; warp += together)
                states[thread] = join(states[thread], states[thread + warp]);
        else
            states[thread] = states[thread - lane * step];
    }
}

template <class Body>
nd_status run_groups(const nd_cuda_queue *, int64_t groups, GroupShape shape, const Body &body) {
    typedef typename Body::State State;
    State states[block_threads];
    int64_t blocks = divide_up(groups, block_threads / shape.lanes);
    for (int64_t block = 0; block < blocks; block++) {
        int step = 1;
        for (int thread = 0; thread < block_threads; thread++) {
            GroupPlace place(shape, block, thread);
            step = place.step;
            states[thread] = place.group < groups
                                 ? body.accumulate(place.group, place.lane, shape.lanes)
                                 : State();
        }
        auto join = [&body](const State &a, const State &b) { return body.combine(a, b); };
        join_states(join, states, block_threads, shape.lanes, step);
        for (int thread = 0; thread < block_threads; thread++) {
            GroupPlace place(shape, block, thread);
            if (place.group < groups)
                body.finish(place.group, place.lane, shape.lanes, states[thread]);
        }
    }
    return ND_OK;
}

template <int round, class Body>
void join_rows(const Body &body, typename Body::Kept *kept, int64_t threads,
               typename Body::State *states) {
    if constexpr (round < Body::rounds) {
        for (int thread = 0; thread < (int)threads; thread++)
            states[thread] =
                body.template share<round>(kept[thread], thread % Body::lanes, states[thread]);
        typedef typename Body::State State;
        auto join = [&body](const State &a, const State &b) {
            return body.template combine<round>(a, b);
        };
        join_states(join, states, (int)threads, Body::lanes, 1);
        join_rows<round + 1>(body, kept, threads, states);
    }
}

template <class Body> nd_status run_rows(const nd_cuda_queue *, int64_t rows, const Body &body) {
    typename Body::Kept kept[Body::threads];
    typename Body::State states[Body::threads];
    constexpr int rows_per_block = Body::threads / Body::lanes;
    for (int64_t first = 0; first < rows; first += rows_per_block) {
        int64_t here = rows - first < rows_per_block ? rows - first : rows_per_block;
        for (int thread = 0; thread < (int)here * Body::lanes; thread++) {
            states[thread] = typename Body::State();
            body.load(kept[thread], first + thread / Body::lanes, thread % Body::lanes);
        }
        join_rows<0>(body, kept, here * Body::lanes, states);
        for (int thread = 0; thread < (int)here * Body::lanes; thread++)
            body.finish(kept[thread], first + thread / Body::lanes, thread % Body::lanes,
                        states[thread]);
    }
    return ND_OK;
}

template <int number, class Body>
void all_phases(const Body &body, int64_t block, int64_t step, typename Body::Shared &shared,
                typename Body::Own *own) {
    if constexpr (number < Body::phases) {
        for (int thread = 0; thread < Body::threads; thread++)
            body.template phase<number>(block, thread, step, shared, own[thread]);
        all_phases<number + 1>(body, block, step, shared, own);
    }
}

template <class Body>
nd_status run_phases(const nd_cuda_queue *, int64_t blocks, const Body &body) {
    typename Body::Shared shared;
    typename Body::Own own[Body::threads];
    for (int64_t block = 0; block < blocks; block++) {
        for (int thread = 0; thread < Body::threads; thread++)
            body.begin(block, thread, own[thread]);
        for (int64_t step = 0; step < body.steps(block); step++)
            all_phases<0>(body, block, step, shared, own);
        for (int thread = 0; thread < Body::threads; thread++)
            body.finish(block, thread, shared, own[thread]);
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
