// Tiles of products whose operands are copied to shared memory ahead of their use: a ring of `stages`
// slots of shared memory, of which one is multiplied while the slices for the others are on their way
// (copies.cuh).
//
// run_pipelines(queue, blocks, body) is to a body with a ring what run_tiles (tile.cuh) is to one with
// two buffers. The body says what a thread does between two barriers:
//
//   struct Slot                            a slice of both operands; the ring has `stages` of them
//   struct Thread                          what a thread keeps in registers, `copies` among it
//   int begin(own, block, thread)          how many slices there are, at least 1
//   void start<part>(own, slot)            starts copies of the next slice, one of steps - 1 shares;
//                                          zeros where there is none
//   void advance(own)                      behind the last share of a slice
//   void load<step>(own, slot)             what is multiplied in that step, into registers
//   void multiply<step>(own, lanes)        adds its products to what the thread keeps
//   void keep(own, ring)                   sums to the warp's part of the ring
//   void finish(own, ring)                 writes what the warp has kept
//   stages, steps (even)                   slots of the ring; steps of a slice
//   threads, resident                      of a block; blocks that a multiprocessor is to hold
//
// A step's operands are loaded before those of the step before are multiplied: loads and products use
// registers in turns. A slice's last load lies in its last step but one, so there its slot is done
// with. There the block meets, once per slice: behind that the next slice is there (all threads have
// waited for their copies of it), and nobody reads the slot of this one any more, which the next
// iteration fills. Behind the last slice copies are zeros and loads are of no use: an iteration has no
// branch.
//
// A body that multiplies_beside starts the products of a whole slice, which read shared memory while the
// thread goes on (warpgroups.cuh). Instead of load and multiply in steps it has
//
//   void start(own, slot)                  copies of the next slice, and goes on to the one after it
//   void multiply(own, slot)               starts the products of a slice, a group of `products`
//   running                                so many slices before may still be multiplied then
//
// `products` is in its Thread. There the block meets once per slice, too: behind that the slice is there, and
// nobody reads the slot of the one that was multiplied running + 1 slices ago, which is filled next.
#ifndef ND_KERNELS_CUDA_PIPELINE_CUH
#define ND_KERNELS_CUDA_PIPELINE_CUH
#include "kernels/cuda/copies.cuh"
#include "kernels/cuda/warps.cuh"

namespace nd_cuda {

#ifdef __CUDACC__
#define ND_BY_TEAM __device__ __forceinline__
#else
#define ND_BY_TEAM inline
#endif

/// Steps of a slice from `step` on; recursion, because a step is a constant.
template <int step, class Body, class Team>
ND_BY_TEAM void run_steps(const Body &body, const Team &team, typename Body::Slot &slot,
                          typename Body::Slot &next, typename Body::Slot &filled) {
    typedef typename Body::Thread Thread;
    typedef Lanes<Thread> Warp;
    if constexpr (step < Body::steps) {
        team.each([&](Thread &own, const Warp &) {
            // Behind the last slice this reads what nobody uses.
            body.template load<(step + 1) % Body::steps>(own, step + 1 < Body::steps ? slot : next);
        });
        team.each([&](Thread &own, const Warp &) {
            if constexpr (step + 1 < Body::steps)
                body.template start<step>(own, filled);
            else
                body.advance(own);
        });
        team.each(
            [&](Thread &own, const Warp &lanes) { body.template multiply<step>(own, lanes); });
        team.meet_in_warp();
        if constexpr (step == Body::steps - 2) {
            team.each([&](Thread &own, const Warp &) {
                own.copies.end_group();
                own.copies.template wait<Body::stages - 2>();
            });
            team.meet();
        }
        run_steps<step + 1>(body, team, slot, next, filled);
    }
}

template <int part, class Body>
ND_BY_TEAM void start_slice(const Body &body, typename Body::Thread &own,
                            typename Body::Slot &slot) {
    if constexpr (part + 1 < Body::steps) {
        body.template start<part>(own, slot);
        start_slice<part + 1>(body, own, slot);
    } else {
        body.advance(own);
    }
}

/// What the threads of a block do whose products run beside them.
template <class Body, class Team>
ND_BY_TEAM void run_slices_beside(const Body &body, const Team &team, typename Body::Slot *ring,
                                  int slices) {
    typedef typename Body::Thread Thread;
    typedef Lanes<Thread> Warp;
    constexpr int stages = Body::stages, ahead = stages - 1 - Body::running;
    static_assert(ahead > 0, "a slice is copied while others are multiplied");
    ND_UNROLL
    for (int slice = 0; slice < ahead; slice++)
        team.each([&](Thread &own, const Warp &) {
            body.start(own, ring[slice]);
            own.copies.end_group();
        });
    int slot = 0, filled = ahead;
    ND_ROLLED
    for (int slice = 0; slice < slices; slice++) {
        team.each([&](Thread &own, const Warp &) {
            own.copies.template wait<ahead - 1>();
            own.products.show_operands();
        });
        team.meet();
        team.each([&](Thread &own, const Warp &) {
            body.start(own, ring[filled]);
            own.copies.end_group();
            body.multiply(own, ring[slot]);
            own.products.template wait<Body::running>();
        });
        slot = slot + 1 < stages ? slot + 1 : 0;
        filled = filled + 1 < stages ? filled + 1 : 0;
    }
    // The ring takes the sums.
    team.each([&](Thread &own, const Warp &) {
        own.products.template wait<0>();
        own.copies.template wait<0>();
    });
    team.meet();
}

/// What the threads of a block do whose products are done when they go on.
template <class Body, class Team>
ND_BY_TEAM void run_slices(const Body &body, const Team &team, typename Body::Slot *ring,
                           int slices) {
    typedef typename Body::Thread Thread;
    typedef Lanes<Thread> Warp;
    constexpr int stages = Body::stages;
    ND_UNROLL
    for (int slice = 0; slice < stages - 1; slice++)
        team.each([&](Thread &own, const Warp &) {
            start_slice<0>(body, own, ring[slice]);
            own.copies.end_group();
        });
    team.each([&](Thread &own, const Warp &) { own.copies.template wait<stages - 2>(); });
    team.meet();
    team.each([&](Thread &own, const Warp &) { body.template load<0>(own, ring[0]); });
    team.meet_in_warp();
    int slot = 0, filled = stages - 1;
    ND_ROLLED
    for (int slice = 0; slice < slices; slice++) {
        const int next = slot + 1 < stages ? slot + 1 : 0;
        run_steps<0>(body, team, ring[slot], ring[next], ring[filled]);
        slot = next;
        filled = filled + 1 < stages ? filled + 1 : 0;
    }
    // The ring takes the sums.
    team.each([&](Thread &own, const Warp &) { own.copies.template wait<0>(); });
    team.meet();
}

/// What the threads of a block do, behind begin() and up to keep().
template <class Body, class Team>
ND_BY_TEAM void run_body(const Body &body, const Team &team, typename Body::Slot *ring,
                         int slices) {
    if constexpr (Body::multiplies_beside)
        run_slices_beside(body, team, ring, slices);
    else
        run_slices(body, team, ring, slices);
}

#ifdef __CUDACC__

#ifdef CUDART_FAKE
#define ND_RING_MEMORY(name) void *const name = cudart_shared_memory()
#else
#define ND_RING_MEMORY(name) extern __shared__ __align__(1024) unsigned char name[]
#endif

/// A block of threads, as one of them sees it.
template <class Thread> struct OwnThread {
    Thread &own;
    const Lanes<Thread> &lanes;

    template <class Do> __device__ __forceinline__ void each(const Do &act) const {
        act(own, lanes);
    }
    __device__ __forceinline__ void meet_in_warp() const {
        ND_WARP_EXCHANGE();
    }
    __device__ __forceinline__ void meet() const {
        __syncthreads();
    }
};

template <class Body>
__global__ void __launch_bounds__(Body::threads, Body::resident) pipeline_kernel(Body body) {
    begin_kernel();
    typedef typename Body::Thread Thread;
    typedef typename Body::Slot Slot;
    ND_RING_MEMORY(memory);
    Slot *const ring = (Slot *)(void *)memory;
    const int thread = (int)threadIdx.x;
    Thread own;
    Lanes<Thread> lanes = {nullptr};
#ifdef CUDART_FAKE
    __shared__ const Thread *threads[Body::threads];
    threads[thread] = &own;
    lanes.thread = threads + thread / warp_threads * warp_threads;
#endif
    const int slices = body.begin(own, (int64_t)blockIdx.x, thread);
    run_body(body, OwnThread<Thread>{own, lanes}, ring, slices);
    body.keep(own, ring);
    ND_WARP_BARRIER();
    body.finish(own, ring);
}

template <class Body>
nd_status run_pipelines(const nd_cuda_queue *queue, int64_t blocks, const Body &body) {
    // Launched to overlap, a product of 1,024 x 1,024 of bf16 took 27.8 us on an H200 instead of 17.3;
    // to larger ones it made no difference.
    nd_cuda_queue apart = *queue;
    apart.overlaps = false;
    return launch_with_shared(&apart, blocks, Body::threads,
                              Body::stages * sizeof(typename Body::Slot), pipeline_kernel<Body>,
                              body);
}

#else

/// A block of threads, one after the other.
template <class Thread> struct AllThreads {
    Thread *own;
    const Thread *const *threads;
    int count;

    template <class Do> void each(const Do &act) const {
        for (int thread = 0; thread < count; thread++)
            act(own[thread], Lanes<Thread>{threads + thread / warp_threads * warp_threads});
    }
    void meet_in_warp() const {
    }
    void meet() const {
    }
};

template <class Body>
nd_status run_pipelines(const nd_cuda_queue *, int64_t blocks, const Body &body) {
    typedef typename Body::Thread Thread;
    typedef typename Body::Slot Slot;
    struct Block {
        alignas(1024) Slot ring[Body::stages];
        Thread own[Body::threads];
        const Thread *threads[Body::threads];
    };
    Block *const all = (Block *)aligned_alloc(alignof(Block), sizeof(Block));
    if (!all)
        return ND_ERROR_OUT_OF_MEMORY;
    for (int64_t block = 0; block < blocks; block++) {
        memset((void *)all, 0xA5, sizeof *all);
        int slices = 0;
        for (int thread = 0; thread < Body::threads; thread++) {
            all->threads[thread] = &all->own[thread];
            slices = body.begin(all->own[thread], block, thread);
        }
        run_body(body, AllThreads<Thread>{all->own, all->threads, Body::threads}, all->ring,
                 slices);
        for (int thread = 0; thread < Body::threads; thread++)
            body.keep(all->own[thread], all->ring);
        for (int thread = 0; thread < Body::threads; thread++)
            body.finish(all->own[thread], all->ring);
    }
    free(all);
    return ND_OK;
}

#endif

} // namespace nd_cuda
#endif
