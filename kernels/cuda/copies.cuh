// Copies from device memory to shared memory beside which a thread goes on (cp.async, PTX ISA,
// "Asynchronous copy").
//
// Every copy belongs to a group of its thread's. What is copied is there for the thread behind a wait
// for its group, and for others behind a barrier after that. Where there is no such hardware a copy
// comes at the two worst times at once: what was there before is gone when it begins (NaN stands there
// as 16-bit float), and what is copied comes with the wait and not before.
#ifndef ND_KERNELS_CUDA_COPIES_CUH
#define ND_KERNELS_CUDA_COPIES_CUH
#include "kernels/cuda/grid.cuh"
#include <stdlib.h>
#include <string.h>

namespace nd_cuda {

/// 16 bytes to shared memory, or 16 bytes of 0 where `inside` is false; there behind the next
/// wait_for_copies() and barrier. Meanwhile the thread goes on. Both addresses are multiples of 16, and
/// `from` is one that may be read.
ND_BOTH void start_copy(void *to, const void *from, bool inside) {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(inside ? 16 : 0)
                 : "memory");
#else
    if (inside)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
#endif
}
ND_BOTH void wait_for_copies() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// A thread's copies that are on their way, `most` at a time, in groups. Empty on a GPU.
template <int most> struct CopiesUnderWay {
#ifndef __CUDA_ARCH__
    struct Copy {
        void *to;
        const void *from; ///< NULL: 16 bytes of 0
        int group;
    } copy[most];
    int count, group; ///< the one that copies are added to
#endif

    ND_BOTH void begin() {
#ifndef __CUDA_ARCH__
        count = group = 0;
#endif
    }
    /// As start_copy above, into the thread's present group.
    ND_BOTH void start(void *to, const void *from, bool inside) {
#ifdef __CUDA_ARCH__
        start_copy(to, from, inside);
#else
        if (count == most)
            abort();
        memset(to, 0xFF, 16);
        copy[count++] = Copy{to, inside ? from : nullptr, group};
#endif
    }
    /// Ends a group, which may be empty, and begins the next one.
    ND_BOTH void end_group() {
#ifdef __CUDA_ARCH__
        asm volatile("cp.async.commit_group;" ::: "memory");
#else
        group++;
#endif
    }
    /// Until no more than the last `pending` groups that were ended are under way.
    template <int pending> ND_BOTH void wait() {
#ifdef __CUDA_ARCH__
        asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#else
        int kept = 0;
        for (int i = 0; i < count; i++)
            if (copy[i].group >= group - pending)
                copy[kept++] = copy[i];
            else if (copy[i].from)
                memcpy(copy[i].to, copy[i].from, 16);
            else
                memset(copy[i].to, 0, 16);
        count = kept;
#endif
    }
    /// Copies for which nobody has waited come at the latest now.
    ND_BOTH void end() {
#ifndef __CUDA_ARCH__
        group++;
        wait<0>();
#endif
    }
};

} // namespace nd_cuda
#endif
