// Chains: several elementwise operations over the same elements, block by block, so that between
// the first and the last of them a block stays in the nearest cache.
//
// Invariant: each step is the loop that a call of its own would run, and elements of a chain depend
// on nothing else; so the result is that of the calls, in whatever pieces it is made.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "lib/base/float_mode.h"

/// Of one operand of a block: eight of them fit into the nearest cache.
#define BLOCK_BYTES 4096

typedef struct chain_work {
    size_t count;
    const nd_chain *chains;
} chain_work;

// A chain, ready to run.
typedef struct chain_loops {
    const nd_chain *chain;
    nd__loop loop[ND_CHAIN_STEPS];
    nd_op_attrs attrs[ND_CHAIN_STEPS];
    int64_t bytes[ND_CHAIN_OPERANDS]; ///< of an element
} chain_loops;

static nd__loop loop_of(const nd_chain *chain, const nd_chain_step *step) {
    const nd__cpu_loops *loops = nd__cpu_loops_now();
    const nd_dtype dtype = chain->dtype[step->a];
    if (step->op == ND_OP_cast)
        return loops->convert[dtype][chain->dtype[step->out]];
    const nd__loop *of_dtype = (step->b < 0 ? loops->unary : loops->binary)[dtype];
    return of_dtype ? of_dtype[step->op] : NULL;
}

/// Elements of a block.
static int64_t block_of(const nd_chain *chain) {
    int64_t most = 1;
    for (int i = 0; i < ND_CHAIN_OPERANDS; i++) {
        const int64_t bytes = nd__dtype_bytes(chain->dtype[i]);
        most = bytes > most ? bytes : most;
    }
    return BLOCK_BYTES / most;
}

static int64_t blocks_of(const nd_chain *chain) {
    const int64_t block = block_of(chain);
    return (chain->count + block - 1) / block;
}

static void prepare(const nd_chain *chain, chain_loops *ready) {
    ready->chain = chain;
    for (int i = 0; i < chain->steps; i++) {
        ready->loop[i] = loop_of(chain, &chain->step[i]);
        ready->attrs[i].f[0] = chain->step[i].number;
    }
    for (int i = 0; i < ND_CHAIN_OPERANDS; i++)
        ready->bytes[i] = nd__dtype_bytes(chain->dtype[i]);
}

/// All steps over the elements from `begin` on. The numbers in between lie in `room`.
static void run_block(const chain_loops *ready, int64_t begin, int64_t n,
                      char (*room)[BLOCK_BYTES]) {
    static const int64_t dense[3] = {1, 1, 1};
    const nd_chain *chain = ready->chain;
    char *at[ND_CHAIN_OPERANDS];
    for (int i = 0; i < ND_CHAIN_OPERANDS; i++)
        at[i] = chain->data[i] ? (char *)chain->data[i] + begin * ready->bytes[i] : room[i];
    for (int i = 0; i < chain->steps; i++) {
        const nd_chain_step *step = &chain->step[i];
        char *data[3] = {at[step->out], at[step->a], step->b < 0 ? NULL : at[step->b]};
        ready->loop[i](n, data, dense, &ready->attrs[i]);
    }
}

static void run_blocks(void *context, int64_t begin, int64_t end) {
    _Alignas(64) char room[ND_CHAIN_OPERANDS][BLOCK_BYTES];
    const chain_work *work = (const chain_work *)context;
    chain_loops ready;
    for (size_t i = 0; i < work->count && end > 0; i++) {
        const nd_chain *chain = &work->chains[i];
        const int64_t blocks = blocks_of(chain), block = block_of(chain);
        const int64_t last = end < blocks ? end : blocks;
        if (begin < last)
            prepare(chain, &ready);
        for (int64_t from = begin * block; from < last * block; from += block) {
            const int64_t left = chain->count - from;
            run_block(&ready, from, left < block ? left : block, room);
        }
        begin = begin > blocks ? begin - blocks : 0;
        end -= blocks;
    }
}

nd_status nd__cpu_chains(size_t count, const nd_chain *chains) {
    chain_work work = {count, chains};
    int64_t blocks = 0, operations = 0;
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < chains[i].steps; k++)
            if (!loop_of(&chains[i], &chains[i].step[k]))
                return ND_ERROR_UNSUPPORTED;
        blocks += blocks_of(&chains[i]);
        operations += chains[i].count * chains[i].steps;
    }
    nd__float_mode mode;
    nd__float_mode_begin(&mode);
    if (blocks > 0)
        nd__cpu_parallel(blocks, operations / blocks, 1, run_blocks, &work);
    nd__float_mode_end(&mode);
    return ND_OK;
}
