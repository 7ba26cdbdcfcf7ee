// The CPU backend's kernels.
#ifndef ND_KERNELS_CPU_CPU_H
#define ND_KERNELS_CPU_CPU_H
#include "kernels/kernel.h"

/// Runs one call on the calling thread and the pool's; done when it returns. Safe from any thread.
nd_status nd__cpu_launch(const nd_kernel_call *call);

/// A call for which nd__cpu_launch() found no working memory, in another way with less of it, which is
/// slower and may differ in the last bits. ND_ERROR_OUT_OF_MEMORY where there is none.
nd_status nd__cpu_launch_sparing(const nd_kernel_call *call);

/// Runs chains that do not write what another of them reads, in one go over all of them.
nd_status nd__cpu_chains(size_t count, const nd_chain *chains);

/// Whether products of that 16-bit dtype take less time than the same of f32: the processor multiplies
/// it in pairs, which are added as f32.
bool nd__cpu_multiplies(nd_dtype dtype);

/// Gives back what is kept for the next call: the calling thread's working memory, and the pool's
/// threads with theirs. Bytes.
uint64_t nd__cpu_trim(void);
/// Gives back plans of transforms and convolutions that nobody is running. How many bytes their
/// libraries have for them is not known.
void nd__cpu_trim_plans(void);
/// Bytes of all threads' working memory.
uint64_t nd__cpu_workspace_bytes(void);

/// Makes every later call use the loops of one instruction set ("baseline", "x86_64_v3",
/// "x86_64_v4", "x86_64_v4_halves"); NULL: the best this machine has. False when the machine cannot
/// run it. For tests and benchmarks. Programs choose by ND_CPU_ISA in their environment, which the
/// first call reads.
bool nd__cpu_use_isa(const char *name);
/// Name of the instruction set in use.
const char *nd__cpu_isa(void);

/// Whether oneDNN is asked for f32 products and convolutions; on at first where it is built in. For
/// tests and benchmarks.
void nd__cpu_use_onednn(bool use);
#endif
