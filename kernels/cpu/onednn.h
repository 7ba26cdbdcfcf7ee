// oneDNN behind two questions that may be answered "not me": then the portable kernels do the work.
#ifndef ND_KERNELS_CPU_ONEDNN_H
#define ND_KERNELS_CPU_ONEDNN_H
#include "kernels/cpu/isa.h"
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/// False when it is not built in or switched off (nd__cpu_use_onednn).
bool nd__onednn_is_used(void);

/// What the calling thread had before.
typedef struct nd__onednn_before {
    int threads; ///< of OpenMP
    sigset_t blocked;
    int cancel_state;
    uint32_t kind;
    bool first; ///< nobody has left such a computation yet
} nd__onednn_before;

/// Kinds of computations, for nd__onednn_enter(): as many of products of f32, then as many of those
/// of bf16, then as many of convolutions, then as many of products of 8-bit integers.
#define ND__ONEDNN_FAMILY 32768
#define ND__ONEDNN_KINDS (4 * ND__ONEDNN_FAMILY)

/// Between these two oneDNN starts no threads on behalf of the calling one, and signals to it wait:
/// the code that oneDNN generates for products of AVX-512 uses the stack pointer for data, and a
/// handler would write its frame there, into the heap. Nor is the thread cancelled there, in the
/// middle of C++.
/// `kind`: below ND__ONEDNN_KINDS; equal for computations that oneDNN does alike. False: the
/// process ends, and oneDNN with it, or there is no room; compute without it, and do not leave.
bool nd__onednn_enter(uint32_t kind, nd__onednn_before *ret_before);
void nd__onednn_leave(const nd__onednn_before *before);
/// Whether fork() or exit() waits for who is inside: who does many computations leaves between two.
bool nd__onednn_is_waited_for(void);
/// The same for who only gives back what oneDNN has made, and computes nothing.
bool nd__onednn_enter_to_end(nd__onednn_before *ret_before);

/// From here on exit() by this thread waits for who is inside of the first computation of a kind. For
/// every thread that computes what oneDNN might, also where the loops do it.
void nd__onednn_watch_thread(void);

/// Between these two oneDNN may generate code. False, and nothing to end: there is no room; oneDNN
/// writes its code also where the system has given it no memory. nd__onednn_enter() has begun for
/// what is met first, whoever makes a primitive later begins himself.
bool nd__onednn_begin_code(void);
void nd__onednn_end_code(void);
/// Whether there is as much address space as what oneDNN generates at once may take.
bool nd__onednn_has_room(void);
/// The same for code that takes so many bytes more than is usual.
bool nd__onednn_has_room_beside(size_t bytes);

/// Multiplications from which a product of the dtype is oneDNN's; INT64_MAX where none is.
int64_t nd__onednn_least_product(nd_dtype dtype);
/// The same of 8-bit integers that are added up in 32.
int64_t nd__onednn_least_bytes(void);

/// Whether oneDNN multiplies bf16 by tiles (AMX).
bool nd__onednn_has_tiles_of_halves(void);

/// Lines a multiple of so many bytes apart share few places of the nearest cache.
#define ND__CROWDED_BYTES 2048
/// Whether oneDNN reads so many lines that share places of a cache, across them and without a copy, that
/// it computes a product of f32 at half its rate or less, and the loops do not.
bool nd__onednn_is_crowded(const nd__product *product);

/// Products on this thread, one after the other: those of one kind are entered and left once. Begins
/// with `open` false.
typedef struct nd__onednn_session {
    bool open;
    nd__onednn_before before;
} nd__onednn_session;

/// One product of such a dtype, or of 8-bit integers where that is ND_I32. False, and nothing is written, when the strides do not suit it, when
/// it is switched off, or when it fails.
bool nd__onednn_product(const nd__product *product, nd_dtype dtype, nd__onednn_session *session);
/// Behind the last of them.
void nd__onednn_end(nd__onednn_session *session);

/// A convolution of f32 or bf16, or one of its gradients, shared between threads. ND_ERROR_UNSUPPORTED
/// where a product would be refused, and of bf16 where the processor does not multiply these, or f32 takes
/// less; ND_ERROR_OUT_OF_MEMORY where only working memory was missing. Some of the result may be written then.
nd_status nd__onednn_conv(const nd_kernel_call *call);
#endif
