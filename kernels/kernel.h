// One call of one kernel: plain data that every backend understands.
//
// lib/ops checks arguments, broadcasts, promotes and collapses dimensions, then fills an
// nd_kernel_call and hands it to the backend of the operands' device. A kernel trusts its call; it
// checks only what needs the data (an index out of range). Strides are in elements; operand[0] is
// the output, unless a family says otherwise.
#ifndef ND_KERNELS_KERNEL_H
#define ND_KERNELS_KERNEL_H
#include <nd/base.h>

#define ND_MAX_OPERANDS 10

/// Every row of ops.inc as an enumerator: ND_OP_add, ND_OP_exp, ...
typedef enum nd_op {
    ND_OP_none = 0,
#define ND_OP(name, family, inputs, differentiable, saves) ND_OP_##name,
#include "kernels/ops.inc"
#undef ND_OP
    ND_OP_COUNT,
} nd_op;

/// What an operation is parametrised with, beyond its operands. Which entries mean what stands with
/// each family.
typedef struct nd_op_attrs {
    double f[4];
    int64_t i[12];
} nd_op_attrs;

/// What scatter_reduce makes of an element and of what is scattered there.
typedef enum nd_scatter_kind {
    ND_SCATTER_PRODUCT = 0,
    ND_SCATTER_LEAST,
    ND_SCATTER_GREATEST,
    ND_SCATTER_KINDS,
} nd_scatter_kind;

/// What nll_loss makes: -x weight of each target, their sum, or that divided by the weights' sum.
typedef enum nd_nll_result {
    ND_NLL_EACH = 0,
    ND_NLL_SUM,
    ND_NLL_MEAN,
} nd_nll_result;

/// Cells of recurrent nets: what a step of a sequence makes of its input and of the state before it.
typedef enum nd_cell {
    ND_CELL_TANH = 0, ///< h = tanh(sum)
    ND_CELL_RELU,     ///< h = max(sum, 0)
    ND_CELL_LSTM,
    ND_CELL_GRU,
    ND_CELLS,
} nd_cell;

/// Gates of a row.
static inline int64_t nd_cell_gates(nd_cell cell) {
    return cell == ND_CELL_LSTM ? 4 : cell == ND_CELL_GRU ? 3 : 1;
}

/// Losses of pairs of numbers.
typedef enum nd_pair_loss {
#define ND_PAIR_LOSS(name, ...) ND_PAIR_LOSS_##name,
#include "kernels/losses.inc"
    ND_PAIR_LOSSES,
} nd_pair_loss;

typedef struct nd_operand {
    void *data; ///< address of the first element
    nd_dtype dtype;
    int64_t strides[ND_MAX_DIMS];
} nd_operand;

typedef struct nd_kernel_call {
    nd_op op;
    int noperands;
    int ndim; ///< of the iteration space; 0 means one element
    int64_t shape[ND_MAX_DIMS];
    nd_operand operand[ND_MAX_OPERANDS];
    nd_op_attrs attrs;
} nd_kernel_call;

// Families (second column of ops.inc): operands and attributes.
//
// A number is f[k], and i[k] for operands of ND_I64 and (its bits) ND_U64, which a double cannot
// hold: "number k". For 16-bit floats it has more bits than they do: what is written rounds it
// once.
//
// UNARY      out, x. One dtype; scalar parameters are numbers 0 and 1.
// PREDICATE  out (bool), x.
// BINARY     out, a, b. One dtype (cast before); add_scaled: number 0 = alpha. out may be exactly a or b.
// COMPARE    out (bool), a, b. a and b of one dtype.
// LOGICAL    out (bool), a[, b]. All bool.
// TERNARY    out, condition, a, b. condition bool, the others one dtype.
// REDUCE     out, x. Iteration space = x's axes; out has stride 0 on reduced axes; i[0] = elements
//            per result. The kernel writes every result, whatever was in out. x of any dtype. out:
//            sum and prod x's own for floats, else the 64-bit integer of its signedness; max and min
//            x's own, NaN wins; any and all bool, count_nonzero i64; mean, var and std (f[0] =
//            correction), norm (f[0] = its order, finite and not 0) and logsumexp x's own for
//            floats, else f32. Never called for no elements.
// ARGREDUCE  out (i64), x. The reduced axis is the last of the iteration space, out's stride there
//            is 0.
// SCAN       out, x; recurrence: out, a, b, floats of one dtype. The axis is the last of the
//            iteration space; i[0] = 1: from its end to its beginning. cumsum and cumprod: out as
//            for sum; cummax and cummin x's own, NaN wins from where it stands.
// SORT       argsort: out (i64), x of any dtype. The axis is the last of the iteration space; i[0] = 1: descending,
//            i[1] = how many positions are written, all (or 1 to all) of out's last axis. Stable. NaN is above infinity. i[2] = 1,
//            where a backend selects_ranks: those at the ascending ranks i[3] ... i[2 + i[1]], ND__SORTING_RANKS at most; i[0] is 0, and of a row with
//            a NaN the last one's position is written for each.
//            searchsorted: out (i64), sorted, values of sorted's dtype. Iteration space = values' axes; sorted's operand is
//            the row's first element, i[0], i[1] = its size and stride along the row; i[2] = 1: behind equal ones.
// MATMUL     out, a, b. Iteration space = batch axes only; i[0..2] = m, n, k; row and column
//            strides: a i[3], i[4]; b i[5], i[6]; out i[7], i[8] (i[8] == 1); f[0] = beta (0 or 1):
//            out = a b + beta out. One dtype, not bool: f16 and bf16 are added up in f32 and rounded
//            once, integers wrap. In a and b one of the two strides is 1 (or the size is).
//            linear: ndim is 0; i[9] = 1 + an UNARY operation of floats that out then goes through,
//            or 0 for none; a fourth operand, a bias of n elements i[10] apart, is added to every
//            row (then f[0] is 0).
//            matmul_integer: out i32, a and b i8 or u8 each, and the zero points of a and of b, of its dtype, which may lack
//            data (then 0): their batch axes, and i[9] between those of a's rows, i[10] between those of b's columns. f[0] is 0.
//            out = (a - zero) (b - zero), modulo 2^32.
// QUANTIZED  quantized_linear: out [m, n], x [m, k], values [n, k] i8 or [n, k / 2] u8 (two int4 to
//            a byte, the first in its lower bits), scales [n, k / group] f32, f16 or bf16, and zeros
//            like them or no such operand (then 0 for i8, 8 for int4); all contiguous. ndim is 0;
//            i[0..3] = m, n, k, group, none of them 0; group is even for int4. out = x w^T, where w =
//            scales (values - zeros); out and x both f32 or f64, which is computed in.
// SOFTMAX    out, x, floats of one dtype, f16 and bf16 computed in f32. The axis is the last of the iteration space.
//            masked_softmax: out, x, mask (bool; any strides, 0 too): what is not kept is not looked at, and out is 0 there, also
//            in a row that is NaN. softmax_grad, where a backend takes the strides: out, g, y, all of one dtype: (g - sum(g y)) y.
// LOSS       cross_entropy: out [1], logits [n, c] contiguous, targets i64 [n]; i[0] = n, i[1] = c. Logits of 16 bits make an out of
//            f32, where a backend takes them. cross_entropy_grad, where a backend has it: out, the gradient of logits, of their
//            dtype; g, that of cross_entropy's result; logits, targets; the same attributes.
//            pair_loss: out, a, b, f32 or f64, contiguous; ndim is 0; i[0] = an nd_pair_loss (kernels/losses.inc), i[1] = elements
//            of a and b, not 0, i[2] = 1: out is one number, their sum times f[1], else each of them times f[1]; number 0 = p.
//            pair_loss_grad: out, the gradient of a; out, that of b; g, that of pair_loss's result; a, b; the same attributes.
//            A gradient without data is not wanted.
//            nll_loss: out, x [n, c, places], f32 or f64, targets i64 [n, places], weight [c] of x's dtype, which may lack data;
//            contiguous, ndim is 0; i[0..2] = n, c, places, none of them 0, i[3] = the target that counts nothing, i[4] = an
//            nd_nll_result, which says what out is. nll_loss_grad: out, the gradient of x; g, that of nll_loss's result; targets,
//            weight; the same attributes.
// NORM       x: [samples, channels, places], f32 or f64, contiguous; ndim is 0; i[0..2] = those sizes, i[3] = groups: a set of
//            numbers that is normalised is a group of the channels in one sample, or, where groups is 0, one channel in all samples;
//            i[4] = 1: the mean is taken away; f[0] = epsilon. An operand without data is one that is not there or not wanted.
//            layer_norm: out, statistics [2, sets] (the mean, 0 where it is not taken away, and the variance; written), x, weight
//            [channels], bias [channels]. layer_norm_grad: out, the gradient of x; sums [2, channels], those of weight and bias;
//            g, that of layer_norm's result; x, weight. channel_norm: out, x, weight, statistics [2, channels] (given), bias;
//            channel_norm_grad: out, sums, g, x, weight as in layer_norm_grad, statistics (given); in both groups and i[4] say nothing.
//            Where a backend takes it, x, g and operand 0 are f16 or bf16, or x and its gradient are and the result and g are f32,
//            and all other operands are f32.
// INDEX      An index outside 0 ... n-1 returns ND_ERROR_INVALID_ARGUMENT (negative ones are
//            resolved by lib/ops). Backends whose memory the host reads also take -n ... -1 in
//            gather, scatter_add and scatter_reduce, counted from the end.
//            take: out [outer, indices, inner], x [outer, n, inner], indices (i64), the first and last
//            contiguous; i[0] = outer, i[1] = number of indices, i[2] = inner, i[3] = n; i[4], i[5],
//            i[6] = x's strides.
//            gather: out, x, index (i64); iteration space = index's axes; i[0] = axis, i[1] = x's
//            size there; strides of out, index and x as given, x's stride along the axis is applied
//            to the index value.
//            scatter_add: out (holds x already), index (i64), source; iteration space = index's
//            axes; i[0], i[1] as gather, for out; repeated indices accumulate in iteration order on
//            the CPU, and on every backend in the same order each time where i[2] is not 0.
//            scatter_reduce: as scatter_add, numbers that are no 16-bit floats; i[3] = an
//            nd_scatter_kind. NaN wins.
//            one_hot: out, indices (i64), contiguous; i[0] = count, i[1] = classes.
//            masked_select: out, x, mask, contiguous; i[0] = numel of x, i[1] = numel of out.
//            nonzero: out (i64) [count, axes], where a mask holds, and the mask, contiguous; i[0] = numel of the mask, not 0,
//            i[1] = count, not 0, i[2] = axes, 1 ... 8, i[3 ...] = its sizes.
// CREATE     out only. fill number 0; arange f[0] = start, f[1] = step, for ND_I64 and ND_U64
//            i[0] and i[1] when i[2] is not 0; eye i[0] = n;
//            rand, randn i[0] = seed, i[1] = stream; randint the same and i[2] = low, i[3] = high.
//            randint: any number dtype. kernels/philox.h says which words of the generator make
//            element e (row-major), so that all backends agree.
// COPY       out, x. Any two dtypes, any strides. Floats become the nearest integer towards zero that
//            the dtype holds, NaN becomes 0; wider integers keep their low bits; bool is x != 0. What
//            becomes a float is rounded once, to nearest, ties to even; NaN stays NaN.
//            concat: out, operands 1 to ND_MAX_OPERANDS - 1, all of one dtype: rows of several behind each other. Iteration
//            space = the rows, one axis; i[k - 1] = elements of operand k's row, which lie one behind the other.
// CONV       Contiguous NC and three axes, depth, height and width; ndim is 0, shape[0..7] = n, ci, x's sizes, the window's
//            sizes; i[0..10] = strides, paddings, dilations, groups, co (kernels/windows.h). y has the sizes
//            (x + 2 padding - dilation (window - 1) - 1) / stride + 1. weight: [co, ci / groups, window].
//            conv: out, x, weight (bias is added by lib/ops). Where a backend takes it, all are f16 or bf16, and conv and
//            conv_grad_input may have a fourth operand, a bias of that dtype for each channel of out.
//            conv_grad_input: out (as x), grad, weight.
//            conv_grad_weight: out (as weight), x, grad.
//            Groups and co 1: unfold: out [n, ci window, y], x; fold, its adjoint: out (as x), columns.
// POOL       max_pool: out, positions (i64, position in the d*h*w block; written), x; three axes as in CONV; ndim is 0,
//            shape[0..6] = n*c, x's sizes, out's sizes; i[0..11] = windows (0: adaptive), strides, paddings, dilations.
//            Every window holds an element. max_pool_grad, where a backend has it: out, as x, the gradient of x; positions, g,
//            that of max_pool's result; the same numbers.
// RESAMPLE   Along one axis: resample: out [outer, out, inner], x [outer, in, inner]; resample_adjoint: out as x, grad as
//            resample's out. ndim is 0, i[0..8] = mode, outer, in, out, inner, window, stride, padding, flags; f[0] = step
//            (kernels/windows.h, which says what each result is made of).
// ATTENTION  out [l, v], log_sums [l], query [l, e], key [s, e], value [s, v], mask [l, s], which may lack data: batches of them.
//            Iteration space = batch axes only; i[0..3] = l, s, e, v, none of them 0; rows' strides i[4..7]: query, key, value, out;
//            the mask's i[8], i[9]; columns lie one behind the other, and so do log_sums. i[10] = 1: query i sees keys 0 ... i.
//            out, query, key and value of one float dtype; log_sums f64 where that is f64, else f32. mask: bool, true is seen, or of
//            log_sums' dtype, added. f[0] = what scores are multiplied with. log_sums: the logarithm of the sum of a row's
//            exponentials; infinity where a row sees nothing, and out is 0 there. A backend answers ND_ERROR_UNSUPPORTED where
//            its products and reductions are better: lib/ops takes these then.
//            attention_grad, where a backend has it: out, the gradients of query [l, e], key [s, e] and value [s, v], query, key, value,
//            mask, g, that of attention's result, that result and log_sums. The rows of the first three lie one behind
//            the other, and log_sums is dense; the first, or the second and the third, may lack data: not wanted. Where these two
//            have stride 0 along an axis they are sums over it. i[0..10] as for attention, but i[7] of g; i[11] the result's rows.
// DROPOUT    out, x, of one float dtype; out dense. i[0], i[1] = seed, stream, f[0] = p: x times 1 / (1 - p),
//            or times 0 where the number of f32 that rand makes of the element's place (row-major, in x's shape) is below p.
//            1 / (1 - p) and products are of the dtype, of f32 for 16 bits.
// CELL       One step of a recurrent net, f32 or f64; all contiguous; ndim is 0; i[0] = an nd_cell, i[1] = n, i[2] = size, not 0. G is 1
//            gate, of GRU 3 (r, z, n), of LSTM 4 (i, f, g, o); [n, G size] has the gates of a row one behind the other.
//            recurrent_cell: out, the state h [n, size]; the cell c [n, size] of an LSTM; kept [n, 4 size], what a gradient of LSTM
//            or GRU needs: its gates, behind their functions, and of a GRU what the state gives to n; what the input and the
//            state give to the gates, [n, G size] each; before [n, size], the c of the step before of an LSTM, the h of a GRU.
//            kept may lack data: not wanted; c may be exactly before. What a cell has not, lacks data. Two sums and
//            functions: include/nd/neural.h.
//            recurrent_cell_grad: out, the gradients of the last two, [n, G size] each, which are the same but of a GRU: the second
//            lacks data; carried [n, size], for the step before: of an LSTM the gradient of its c, of a GRU what of the
//            gradient of h has not gone through a gate; g [n, size], that of the step's h; what the step behind it gives through
//            its gates, and carried, [n, size] each, which is exactly the third or lacks data; kept; before; after [n, size], the
//            step's c of an LSTM, its h of TANH and RELU. Gradients that lack data are 0.
// LINALG     where a backend has it and does not leave it to the host as too little work; else lib/ops brings the operands there.
//            info (i32 [count], written), out, x [count, m, n] and, of systems, b [count, m, o]; f32 or f64, contiguous, not empty;
//            ndim is 0; i[0..6] = count, m, n, o, upper, unit, values only. What is computed: kernels/cpu/linalg.h; of pinv and
//            lstsq lib/ops asks for an svd. info is 0, or the pivot that is 0 (solve), the leading minor that is not positive
//            (cholesky), or not 0 where an iteration did not end; out is undefined then, except slogdet's. Operands of iterations
//            are finite, and no diagonal of a triangle has a 0.
// FFT        where a backend has it; else lib/ops brings the operand to the host. out, x, f32 or f64, contiguous, not empty; ndim is
//            0; i[0..5] = outer, inner, from, to, n, sign; f[0] = scale, f[1] = weight. What is computed: kernels/cpu/fft.h.
// VIEW       no kernel: the row names the gradient rule.

#define ND_CHAIN_OPERANDS 8
#define ND_CHAIN_STEPS 16

/// One operation of a chain, by the places of its operands: UNARY (b is -1), BINARY, or ND_OP_cast,
/// which is a COPY.
typedef struct nd_chain_step {
    nd_op op;
    int8_t out, a, b;
    double number; ///< number 0
} nd_chain_step;

/// Elementwise operations one after the other over dense operands of as many elements, floats. The
/// same as a call for each; but an element goes through all of them while it is near. An operand
/// without data is a number in between, which nobody else sees. Two operands that overlap are the
/// same one.
typedef struct nd_chain {
    int64_t count; ///< elements
    int steps;
    void *data[ND_CHAIN_OPERANDS];
    nd_dtype dtype[ND_CHAIN_OPERANDS];
    nd_chain_step step[ND_CHAIN_STEPS];
    /// On CUDA: memory of the device from which a step's number is read when it runs, one for each
    /// step, in the dtype that is computed in; NULL: the numbers of the steps. So work that was
    /// captured once is done with other numbers each time.
    const void *numbers;
} nd_chain;

/// A backend's entry: runs (or queues) one call. ND_OK, ND_ERROR_UNSUPPORTED for a pair (op, dtype)
/// it has no kernel for, or what the data made impossible. Sets no error message: lib/ops composes
/// it.
typedef nd_status (*nd_kernel_launch)(const nd_kernel_call *call);
#endif
