#!/usr/bin/env python3
"""What each group of CUDA kernels could do at best, computed from budget.txt: nothing of it was measured.

    roofline.py budget.txt             the table of docs/cuda.md to standard output
    roofline.py budget.txt cuda.md     fails where the document has another table

Bytes and operations of an element are counted by hand below; registers and shared memory are the compiler's.
"""
import re
import sys

# An H200 as its data sheet has it, and the part of its memory's speed that a copy reaches on such devices.
MULTIPROCESSORS, REGISTERS, SHARED, THREADS, BLOCKS = 132, 65536, 227 * 1024, 2048, 32
BYTES_PER_SECOND = 4.3e12
F32_PER_SECOND = 132 * 128 * 2 * 1.785e9
SLOW_PER_SECOND = 132 * 16 * 1.785e9
SHARED_PER_SECOND = 132 * 128 * 1.785e9
TENSOR_PER_SECOND = 989e12  # f16 and bf16

# name, the kernel, threads of a block; of an element: its bytes, about how many f32 operations (a product that is added is 2) and how
# many that are done 16 in a cycle (powers of 2, conversions to f64 and back); what is read and written
ROWS = [
    ("add, f32", "thread PackedElementwise<binary_add<f32>, f32, f32, f32>", 256, 12, 1, 0, "2 read, 1 written"),
    ("add, bf16", "thread PackedElementwise<OnHalves<binary_add<f32>>, u16, u16, u16>", 256, 6, 1, 0, "2 read, 1 written"),
    ("exp, f32", "thread PackedElementwise<unary_exp<f32>, f32, f32>", 256, 8, 8, 1, "1 read, 1 written"),
    ("gelu, f32", "thread PackedElementwise<unary_gelu<f32>, f32, f32>", 256, 8, 36, 2, "1 read, 1 written"),
    ("copy of a transpose, f32", "phase Transpose<u32, 64>", 256, 8, 0, 0, "1 read, 1 written"),
    ("sum of all, f32", "group ReduceRows<FloatSource<f32>, Sum<f32>>", 256, 4, 1, 1, "1 read"),
    ("sum of all, bf16", "group ReduceRows<HalfSource, Sum<f32>>", 256, 2, 1, 1, "1 read"),
    ("sum of columns, f32", "group ReduceColumns<FloatSource<f32>, Sum<f32>>", 256, 4, 1, 1, "1 read"),
    ("softmax, 1,024 f32", "row SoftmaxRow<Plain<f32>, RowShape<32, 128, 6, 32, true>, false>", 128, 8, 12, 1, "1 read, 1 written"),
    ("softmax, 8,192 f32", "row SoftmaxRow<Plain<f32>, RowShape<256, 256, 3, 32, true>, false>", 256, 8, 12, 1, "1 read, 1 written"),
    ("softmax, 1,024 bf16", "row SoftmaxRow<Halves, RowShape<32, 128, 6, 32, true>, false>", 128, 4, 14, 1, "1 read, 1 written"),
    ("softmax with a mask, 1,024 f32", "row MaskedSoftmaxRow<Plain<f32>, RowShape<32, 128, 6, 32, true>>", 128, 9, 14, 1, "1 read and the mask, 1 written"),
    ("softmax with a mask, 1,024 bf16", "row MaskedSoftmaxRow<Halves, RowShape<32, 128, 6, 32, true>>", 128, 5, 16, 1, "1 read and the mask, 1 written"),
    ("gradient of softmax, 1,024 bf16", "row SoftmaxGradRow<Halves, RowShape<256, 256, 3, 16, true>>", 256, 6, 7, 0, "2 read, 1 written"),
    ("cross entropy, 32,768 f32", "row HeldRowLoss<Plain<f32>, RowShape<1024, 1024, 1, 32, true>>", 1024, 4, 11, 1, "1 read"),
    ("cross entropy, 32,768 bf16", "row HeldRowLoss<Halves, RowShape<1024, 1024, 1, 32, true>>", 1024, 2, 13, 1, "1 read"),
    ("its gradient, 32,768 bf16", "row HeldRowLossGrad<Halves, RowShape<1024, 1024, 1, 32, true>>", 1024, 4, 16, 1, "1 read, 1 written"),
    ("layer norm, 1,024 f32", "row NormRowResult<Plain<f32>, RowShape<32, 128, 6, 32, true>>", 128, 8, 10, 2, "1 read, 1 written"),
    ("layer norm, 4,096 f32", "row NormRowResult<Plain<f32>, RowShape<256, 256, 3, 32, true>>", 256, 8, 10, 2, "1 read, 1 written"),
    ("layer norm, 4,096 bf16", "row NormRowResult<Halves, RowShape<256, 256, 3, 32, true>>", 256, 4, 12, 2, "1 read, 1 written"),
    ("layer norm, 4,096 bf16 to f32", "row NormRowResult<HalvesToFloats, RowShape<256, 256, 3, 32, true>>", 256, 6, 11, 2, "1 read, 1 written"),
    ("its gradient of x, 4,096 f32", "row NormRowGrad<Plain<f32>, RowShape<256, 256, 3, 16, true>>", 256, 12, 16, 4, "2 read, 1 written"),
    ("its gradient of x, 4,096 bf16", "row NormRowGrad<Halves, RowShape<256, 256, 3, 16, true>>", 256, 6, 19, 4, "2 read, 1 written"),
    ("its gradients of weight and bias", "group NormParameters<Plain<f32>>", 256, 8, 6, 2, "2 read"),
    ("dropout, f32", "element Dropout<Plain<f32>, true>", 256, 8, 30, 0, "1 read, 1 written"),
    ("dropout, bf16", "element Dropout<Halves, true>", 256, 4, 32, 0, "1 read, 1 written"),
    ("matrix by a column, f32", "group AlongLines<PlainStore<f32>, true>", 256, 4, 2, 0, "1 read"),
    ("matrix by a column, bf16", "group AlongLines<HalfStore, true>", 256, 2, 4, 0, "1 read"),
    ("row by a matrix, f32", "group AcrossLines<PlainStore<f32>, 4>", 256, 4, 2, 0, "1 read"),
    ("row by a matrix, bf16", "group AcrossLines<HalfStore, 8>", 256, 2, 3, 0, "1 read"),
    ("AdamW of a chain, f32", "phase Chains<f32>", 128, 28, 16, 0, "4 read, 3 written"),
    ("max pool, windows of 2 × 2, f32", "element MaxPool<f32>", 256, 28, 40, 0, "4 read, 1 and its place written"),
]
# m, n, k: squares of 4,096; 3 by 3 over 32 images of 28 by 28, 128 channels in and out
SQUARE, IMAGES = (4096, 4096, 4096), (128, 32 * 28 * 28, 128 * 9)
# Products in tiles: the kernel, threads of a block, bytes of shared memory that it asks for when it is launched, rows and columns of a tile,
# packs or fragments that all warps of a block load of a slice, how many rows of the sum that slice has, and cycles of a load, which is 128
# bytes; bytes of an element; m, n and k
TILES = [
    ("product, f32", "tile FmaTile<Strided<PlainLoad<f32>>, Strided<PlainLoad<f32>>, MatrixResult<PlainStore<f32>>, 8, 8, 16, 2>", 256, 0, 128, 128, 8 * 4, 1, 1, 4, SQUARE),
    ("product, f32, few tiles", "tile FmaTile<Strided<PlainLoad<f32>>, Strided<PlainLoad<f32>>, MatrixResult<PlainStore<f32>>, 4, 4, 16, 2>", 256, 0, 64, 64, 8 * 2, 1, 1, 4, SQUARE),
    ("product, bf16, operands of any strides", "tile TensorTile<true, Strided<PlainLoad<u16>>, Strided<PlainLoad<u16>>, MatrixResult<HalfStore>, 4, 2>", 256, 0, 128, 128, 8 * 6, 16, 4, 2, SQUARE),
    ("product, bf16, pipelined", "pipeline PipelinedTile<true, true, false, MatrixResult<HalfStore>, 2, 4, 4, 4, 1>", 256, 3 * 128 * (128 + 256), 128, 256, 8 * 8, 16, 4, 2, SQUARE),
    ("likewise, 128 × 128", "pipeline PipelinedTile<true, true, false, MatrixResult<HalfStore>, 2, 2, 4, 4, 2>", 128, 3 * 128 * (128 + 128), 128, 128, 4 * 8, 16, 4, 2, SQUARE),
    ("likewise, 64 × 128", "pipeline PipelinedTile<true, true, false, MatrixResult<HalfStore>, 2, 2, 2, 4, 3>", 128, 3 * 128 * (64 + 128), 64, 128, 4 * 6, 16, 4, 2, SQUARE),
    ("convolution, f32", "tile FmaTile<BlockedLines<f32>, WindowMatrix<f32, (Windows)1>, ImageResult<PlainStore<f32>>, 8, 8, 16, 1>", 256, 0, 128, 128, 8 * 4, 1, 1, 4, IMAGES),
    ("convolution, bf16", "tile TensorTile<true, BlockedLines<u16>, WindowMatrix<u16, (Windows)1>, ImageResult<HalfStore>, 4, 2>", 256, 0, 128, 128, 8 * 6, 16, 4, 2, IMAGES),
]
# heads of 64 and 128, queries and keys 4,096, causal or not: of each score so many products of a head's length, 2 operations a number, and
# an exponential; threads of a block; bytes of shared memory that a score's products read where tensor cores multiply, 512 for each fragment
# of 16 by 16 that a warp loads, or None
ATTENTION = [
    ("attention, head of 64, f32", "warp AttentionFloats<64, 64, true>", 64, 2, 128, None),
    ("attention, head of 128, f32", "warp AttentionFloats<128, 32, false>", 128, 2, 64, None),
    ("attention, head of 64, bf16", "warp AttentionTensor<true, 64, 4, 2>", 64, 2, 128, 8),
    ("attention, head of 128, bf16", "warp AttentionTensor<true, 128, 8, 1>", 128, 2, 256, 32),
    ("gradient of queries, head of 64, f32", "warp AttentionGradFloats<64, false, true>", 64, 3, 64, None),
    ("gradients of keys and values, head of 64, f32", "warp AttentionGradFloats<64, true, true>", 64, 4, 64, None),
    ("gradient of queries, head of 64, bf16", "phase AttentionGradTensor<true, 64, 64, false>", 64, 3, 256, 36),
    ("gradients of keys and values, head of 64, bf16", "phase AttentionGradTensor<true, 64, 64, true>", 64, 4, 256, 48),
    ("gradient of queries, head of 128, bf16", "phase AttentionGradTensor<true, 128, 32, false>", 128, 3, 128, 84),
    ("gradients of keys and values, head of 128, bf16", "phase AttentionGradTensor<true, 128, 32, true>", 128, 4, 128, 104),
]


def read(path):
    kernels = {}
    for line in open(path):
        row = re.match(r" *(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)  (.*)", line)
        if row:
            kernels[row[7]] = [int(number) for number in row.groups()[:6]]
    return kernels


def occupancy(registers, shared, threads):
    """Threads that a multiprocessor holds, of all that it could: registers are given to warps by 256, shared memory with 1 KiB more."""
    of_warp = (registers * 32 + 255) // 256 * 256
    by_registers = REGISTERS // of_warp * 32 // threads
    by_shared = SHARED // (shared + 1024)
    return min(by_registers, by_shared, THREADS // threads, BLOCKS) * threads / THREADS


def table(kernels):
    yield "| kernel | regs | shared | occupancy | bytes | operations | slow ones | memory | arithmetic |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, kernel, threads, moved, operations, slow, what in ROWS:
        registers, shared = kernels[kernel][:2]
        elements = 2**28 / moved
        by_memory = 2**28 / BYTES_PER_SECOND
        by_work = elements * (operations / F32_PER_SECOND + slow / SLOW_PER_SECOND)
        yield "| %s | %d | %d | %.0f %% | %d (%s) | %d | %d | %.0f µs | %.0f µs |" % (
            name, registers, shared, 100 * occupancy(registers, shared, threads), moved, what, operations, slow,
            1e6 * by_memory, 1e6 * by_work)
    yield ""
    yield "| kernel | regs | shared | occupancy | tile | m, n, k | bound | time | operations |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, kernel, threads, dynamic, rows, columns, loads, depth, cycles, size, (m, n, k) in TILES:
        registers, shared = kernels[kernel][:2]
        tiles = -(-m // rows) * -(-n // columns)
        rounds = -(-tiles // MULTIPROCESSORS)
        per_second = F32_PER_SECOND if size == 4 else TENSOR_PER_SECOND
        by_work = 2 * rows * columns * k * MULTIPROCESSORS / per_second
        by_shared = 128 * loads * cycles * k / depth * MULTIPROCESSORS / SHARED_PER_SECOND
        units = "f32 arithmetic" if size == 4 else "tensor cores"
        seconds = rounds * max(by_work, by_shared)
        yield "| %s | %d | %d | %.0f %% | %d × %d | %d, %d, %d | %s | %.0f µs | %.0f T/s |" % (
            name, registers, shared + dynamic, 100 * occupancy(registers, shared + dynamic, threads), rows, columns, m, n, k,
            "%s; fragments %.0f %%" % (units, 100 * by_shared / by_work) if by_work >= by_shared else
            "fragments; %s %.0f %%" % (units, 100 * by_work / by_shared), 1e6 * seconds, 2e-12 * m * n * k / seconds)
    yield ""
    yield "| kernel | regs | shared | occupancy | operations of a score | bound | 32 × 4,096 × 4,096 scores |"
    yield "|---|---|---|---|---|---|---|"
    for name, kernel, head, products, threads, moved in ATTENTION:
        registers, shared = kernels[kernel][:2]
        scores = 32 * 4096 * 4096
        work = 2 * products * head
        of_score = max(moved / SHARED_PER_SECOND, work / TENSOR_PER_SECOND) if moved else work / F32_PER_SECOND
        bound = "%d bytes of shared memory" % moved if moved else "f32 arithmetic"
        yield "| %s | %d | %d | %.0f %% | %d and an exponential | %s | %.1f ms |" % (
            name, registers, shared, 100 * occupancy(registers, shared, threads), 2 * products * head, bound,
            1e3 * scores * (of_score + 1 / SLOW_PER_SECOND))


def main():
    lines = list(table(read(sys.argv[1])))
    if len(sys.argv) == 2:
        print("\n".join(lines))
        return 0
    document = open(sys.argv[2]).read()
    if "\n".join(lines) in document:
        return 0
    print("docs/cuda.md has another table than budget.txt gives; kernels/cuda/roofline.py kernels/cuda/budget.txt prints it")
    return 1


if __name__ == "__main__":
    sys.exit(main())
