// Chains: random ones of what optimizers are made of, beside the CPU's, which rounds each product as the
// host's compiler does here.
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "tests/elements.h"
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"
#include <math.h>

enum { CHAINS = 30, GIVEN = 0, HALF = 7 };

static const nd_op unary[] = {ND_OP_mul_scalar, ND_OP_add_scalar, ND_OP_square,
                              ND_OP_sqrt,       ND_OP_sign,       ND_OP_div_scalar};
static const nd_op binary[] = {ND_OP_add, ND_OP_sub, ND_OP_mul, ND_OP_div, ND_OP_add_scaled};

/// Operand 0 is read alone; 1 to 3 are memory, 4 to 6 numbers in between, 7 of 16 bits, where `half`
/// is one.
static nd_chain random_chain(nd_dtype dtype, nd_dtype half, int64_t count, int64_t skip) {
    nd_chain chain = {.count = count, .steps = (int)(4 + pick(10))};
    for (int i = 0; i < ND_CHAIN_OPERANDS; i++) {
        chain.dtype[i] = (i == HALF || i == GIVEN) && half != dtype ? half : dtype;
        if (i < 4 || i == HALF)
            chain.data[i] = (char *)values(chain.dtype[i], count + skip) +
                            (size_t)skip * dtype_bytes(chain.dtype[i]);
    }
    int8_t known = 4; // places below hold numbers
    for (int i = 0; i < chain.steps; i++) {
        nd_chain_step *step = &chain.step[i];
        step->number = 0.25 * (double)(1 + pick(5));
        step->a = (int8_t)(1 + pick(known - 1));
        step->b = -1;
        bool last = i == chain.steps - 1;
        if (i == 0 || (last && half != dtype)) {
            step->op = half != dtype ? ND_OP_cast : ND_OP_square;
            step->a = i == 0 ? GIVEN : step->a;
            step->out = i == 0 ? 4 : HALF;
            known = i == 0 ? 5 : known;
            continue;
        }
        step->op = pick(3) ? binary[pick(5)] : unary[pick(6)];
        if (step->op == ND_OP_add || step->op == ND_OP_sub || step->op == ND_OP_mul ||
            step->op == ND_OP_div || step->op == ND_OP_add_scaled)
            step->b = (int8_t)(1 + pick(known - 1));
        step->out = (int8_t)(1 + pick(known < HALF ? known : known - 1));
        known = step->out == known ? (int8_t)(known + 1) : known;
    }
    return chain;
}

/// The chain on copies of its operands; operands of one address stay of one address.
static nd_chain on_copies(const nd_chain *chain) {
    nd_chain copy = *chain;
    for (int i = 0; i < ND_CHAIN_OPERANDS; i++) {
        if (!chain->data[i])
            continue;
        copy.data[i] = values(chain->dtype[i], chain->count);
        memcpy(copy.data[i], chain->data[i], (size_t)chain->count * dtype_bytes(chain->dtype[i]));
        for (int k = 0; k < i; k++)
            if (chain->data[k] == chain->data[i])
                copy.data[i] = copy.data[k];
    }
    return copy;
}

/// The same chain with its numbers in memory, and others in its steps.
static nd_chain with_numbers(const nd_chain *chain) {
    nd_chain copy = *chain;
    const nd_dtype dtype = chain->dtype[1]; // which is computed in
    char *numbers = values(dtype, ND_CHAIN_STEPS);
    for (int i = 0; i < chain->steps; i++) {
        const double number = chain->step[i].number;
        const float narrow = (float)number;
        memcpy(numbers + (size_t)i * dtype_bytes(dtype),
               dtype == ND_F64 ? (const void *)&number : &narrow, dtype_bytes(dtype));
        copy.step[i].number = -99;
    }
    copy.numbers = numbers;
    return copy;
}

static void chains_agree(size_t count, const nd_chain *given) {
    nd_chain expected[CHAINS], chains[CHAINS];
    for (size_t i = 0; i < count; i++) {
        expected[i] = on_copies(&given[i]);
        chains[i] = i % 2 || count == 2 ? with_numbers(&given[i]) : given[i];
    }
    nd_cuda_queue queue = {.multiprocessors = MULTIPROCESSORS};
    assert_true(nd__cpu_use_isa("baseline"));
    assert_int_equal(nd__cpu_chains(count, expected), ND_OK);
    assert_true(nd__cpu_use_isa(NULL));
    assert_int_equal(nd__cuda_chains(&queue, count, chains), ND_OK);
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < ND_CHAIN_OPERANDS; k++) {
            nd_kernel_call call = {.op = ND_OP_add_scaled};
            call.operand[0] = contiguous(&call, NULL, chains[i].dtype[k]);
            if (chains[i].data[k])
                compare_values(&call, 0, chains[i].count, expected[i].data[k], chains[i].data[k],
                               0);
        }
    free_values();
}

void test_chains_agree(void **state) {
    (void)state;
    static const int64_t counts[] = {1, 3, 4, 511, 512, 513, 1023, 1024, 2051, 4096, 4097, 9000};
    static const nd_dtype dtypes[][2] = {
        {ND_F32, ND_F32}, {ND_F32, ND_F16}, {ND_F32, ND_BF16}, {ND_F64, ND_F64}};
    nd_chain chains[CHAINS];
    for (size_t turn = 0; turn < 64; turn++) {
        size_t count = turn % 4 == 3 ? CHAINS : 1 + turn % 5;
        for (size_t i = 0; i < count; i++) {
            const nd_dtype *of = dtypes[turn < 32 ? turn % 4 : (size_t)pick(4)];
            chains[i] = random_chain(of[0], of[1], counts[pick(12)], turn % 3 == 1);
        }
        chains_agree(count, chains);
    }
}

/// What was rounded to 16 bits is what later steps read, in memory and in between.
void test_chains_of_a_rounded_number(void **state) {
    (void)state;
    static const nd_dtype halves[] = {ND_F16, ND_BF16};
    for (int which = 0; which < 4; which++) {
        nd_chain chain = {.count = 3000, .steps = 4};
        for (int i = 0; i < ND_CHAIN_OPERANDS; i++)
            chain.dtype[i] = i == 1 ? halves[which % 2] : ND_F32;
        for (int i = 0; i < 3; i++)
            if (i != 1 || which < 2)
                chain.data[i] = values(chain.dtype[i], chain.count);
        chain.step[0] = (nd_chain_step){ND_OP_mul_scalar, 3, 0, -1, 1.1};
        chain.step[1] = (nd_chain_step){ND_OP_cast, 1, 3, -1, 0};
        chain.step[2] = (nd_chain_step){ND_OP_cast, 3, 1, -1, 0};
        chain.step[3] = (nd_chain_step){ND_OP_sub, 2, 2, 3, 0};
        chains_agree(1, &chain);
    }
}

/// A gradient that is the parameter, and an operation that no optimizer has.
void test_chains_of_one_operand_twice(void **state) {
    (void)state;
    nd_chain chain = {.count = 100, .steps = 2};
    for (int i = 0; i < ND_CHAIN_OPERANDS; i++)
        chain.dtype[i] = ND_F32;
    chain.data[0] = chain.data[2] = values(ND_F32, 100);
    chain.data[1] = values(ND_F32, 100);
    chain.step[0] = (nd_chain_step){ND_OP_add_scaled, 0, 0, 1, 0.5};
    chain.step[1] = (nd_chain_step){ND_OP_add, 1, 1, 2, 0};
    chains_agree(1, &chain);
    nd_cuda_queue queue = {.multiprocessors = MULTIPROCESSORS};
    chain.data[0] = chain.data[1] = chain.data[2] = values(ND_F32, 100);
    chain.step[1].op = ND_OP_pow;
    assert_int_equal(nd__cuda_chains(&queue, 1, &chain), ND_ERROR_UNSUPPORTED);
    free_values();
}
