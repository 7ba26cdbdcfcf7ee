"""The calls of //bench:kernels in PyTorch, of one size and number of threads: SIZE:THREADS:PART, where PART is contained in the names of the
calls wanted.

Prints one JSON object: the median nanoseconds of each call, which makes a new result as ordinary calls do. {"skipped": ...} where PyTorch is
not installed. The operands are those of bench/kernels/operands.c.
"""

import json
import sys
import warnings

from clock import seconds

try:
    import torch
    import torch.nn.functional as functional
except ImportError:
    print(json.dumps({"skipped": "PyTorch is not installed for " + sys.executable}))
    sys.exit(0)

SIZES = {"1k": 32, "1m": 1024, "16m": 4096}


def uniform(low, high, *shape):
    return torch.rand(*shape) * (high - low) + low


def leaf(root, *shape):
    return uniform(-1 / root, 1 / root, *shape).requires_grad_()


def elementwise_calls(n):
    x, y = uniform(-1, 1, n, n), uniform(-1, 1, n, n)
    positive, above = uniform(0.1, 4, n, n), uniform(1, 4, n, n)
    x64, y64, positive64, xh, xb, yb = x.double(), y.double(), positive.double(), x.half(), x.bfloat16(), y.bfloat16()
    i, j = torch.randint(1, 100, (n, n)), torch.randint(1, 100, (n, n))
    mask, row, column = x > y, uniform(-1, 1, n), uniform(-1, 1, n, 1)
    work = {name: lambda f=getattr(torch, name): f(x) for name in "neg abs exp sin cos tanh sigmoid relu erf".split()}
    work.update({
        "add": lambda: x + y,
        "mul": lambda: x * y,
        "div": lambda: x / positive,
        "maximum": lambda: torch.maximum(x, y),
        "add_row": lambda: x + row,
        "add_column": lambda: x + column,
        "add_scalar": lambda: x + 0.5,
        "add_transposed": lambda: x + y.t(),
        "log": lambda: torch.log(positive),
        "sqrt": lambda: torch.sqrt(positive),
        "gelu": lambda: functional.gelu(x),
        "silu": lambda: functional.silu(x),
        "pow_3": lambda: x**3.0,
        "pow": lambda: positive**y,
        "hardtanh": lambda: functional.hardtanh(x, -0.5, 0.5),
        "remainder": lambda: torch.remainder(positive, above),
        "floor_divide": lambda: torch.floor_divide(positive, above),
        "where": lambda: torch.where(mask, x, y),
        "clip": lambda: torch.clip(x, -0.5, 0.5),
        "greater": lambda: x > y,
        "masked_fill": lambda: x.masked_fill(mask, 0.0),
        "cast_f32_bf16": lambda: x.to(torch.bfloat16),
        "cast_f32_f16": lambda: x.to(torch.float16),
        "cast_f32_f64": lambda: x.to(torch.float64),
        "cast_f32_i64": lambda: above.to(torch.int64),
        "cast_f64_f16": lambda: x64.to(torch.float16),
        "cast_f64_bf16": lambda: x64.to(torch.bfloat16),
        "cast_f16_f64": lambda: xh.to(torch.float64),
        "cast_i64_f32": lambda: i.to(torch.float32),
        "add_f64": lambda: x64 + y64,
        "exp_f64": lambda: torch.exp(x64),
        "tanh_f64": lambda: torch.tanh(x64),
        "silu_f64": lambda: functional.silu(x64),
        "pow_f64": lambda: positive64**y64,
        "mul_bf16": lambda: xb * yb,
        "gelu_bf16": lambda: functional.gelu(xb),
        "add_i64": lambda: i + j,
        "floor_divide_i64": lambda: torch.floor_divide(i, j),
    })
    return work


def reduction_calls(n):
    x, row = uniform(-1, 1, n, n), uniform(-1, 1, n)
    mask, i, xb = x > uniform(-1, 1, n, n), torch.randint(1, 100, (n, n)), x.bfloat16()
    short_rows = x.view(-1, 16)
    y, positive, above = uniform(-1, 1, n, n), uniform(0.1, 4, n, n), uniform(1, 4, n, n)
    rows = torch.randint(0, n, (n,))
    return {
        "sum": lambda: x.sum(),
        "sum_axis0": lambda: x.sum(0),
        "sum_axis1": lambda: x.sum(1),
        "mean": lambda: x.mean(),
        "max": lambda: x.max(),
        "max_axis0": lambda: x.amax(0),
        "max_axis1": lambda: x.amax(1),
        "argmax_axis0": lambda: x.argmax(0),
        "argmax_axis1": lambda: x.argmax(1),
        "var_axis0": lambda: x.var(0),
        "var_axis1": lambda: x.var(1),
        "norm": lambda: torch.linalg.vector_norm(x),
        "logsumexp": lambda: torch.logsumexp(x, 1),
        "cumsum_axis0": lambda: x.cumsum(0),
        "cumsum_axis1": lambda: x.cumsum(1),
        "any_axis1": lambda: mask.any(1),
        "sum_i64": lambda: i.sum(),
        "sum_bf16": lambda: xb.sum(),
        "softmax": lambda: torch.softmax(x, 1),
        "softmax_axis0": lambda: torch.softmax(x, 0),
        "softmax_16": lambda: torch.softmax(short_rows, 1),
        "log_softmax": lambda: torch.log_softmax(x, 1),
        "layer_norm": lambda: functional.layer_norm(x, (n,), row, row),
        "rms_norm": lambda: functional.rms_norm(x, (n,), row, 1e-5),
        "cross_entropy": lambda: functional.cross_entropy(x, rows),
        "nll_loss": lambda: functional.nll_loss(x, rows),
        "mse_loss": lambda: functional.mse_loss(x, y),
        "l1_loss": lambda: functional.l1_loss(x, y),
        "smooth_l1": lambda: functional.smooth_l1_loss(x, y),
        "huber": lambda: functional.huber_loss(x, y),
        "bce_with_logits": lambda: functional.binary_cross_entropy_with_logits(x, above),
        "kl_div": lambda: functional.kl_div(x, positive),
    }


def layout_calls(n):
    x, y, row = uniform(-1, 1, n, n), uniform(-1, 1, n, n), uniform(-1, 1, n)
    mask, index, rows = x > y, torch.randint(0, n, (n, n)), torch.randint(0, n, (n,))
    side = {32: 8, 1024: 32, 4096: 64}[n]
    images = x.view(-1, 64 if n == 1024 else 2 * side, side, side)
    return {
        "transpose": lambda: x.t().contiguous(),
        "nhwc": lambda: images.permute(0, 2, 3, 1).contiguous(),
        "every_second_column": lambda: x[:, ::2].contiguous(),
        "concat": lambda: torch.cat((x, y), 1),
        "stack": lambda: torch.stack((x, y)),
        "repeat": lambda: row.repeat_interleave(n),
        "flip": lambda: x.flip(1),
        "roll": lambda: x.roll(3, 1),
        "pad": lambda: functional.pad(x, (1, 1, 1, 1)),
        "tril": lambda: x.tril(),
        "take_axis0": lambda: x.index_select(0, rows),
        "take_axis1": lambda: x.index_select(1, rows),
        "gather_axis0": lambda: x.gather(0, index),
        "gather_axis1": lambda: x.gather(1, index),
        "scatter_add_axis1": lambda: x.scatter_add(1, index, y),
        "masked_select": lambda: x.masked_select(mask),
        "nonzero": lambda: mask.nonzero(),
        "sort": lambda: x.sort(dim=1, stable=True)[0],
        "argsort": lambda: x.argsort(dim=1, stable=True),
        "topk": lambda: x.topk(10, 1),
        "one_hot": lambda: functional.one_hot(rows, n),
    }


def creation_calls(n):
    x = uniform(-1, 1, n, n)
    return {
        "zeros": lambda: torch.zeros(n, n),
        "full": lambda: torch.full((n, n), 2.5),
        "arange": lambda: torch.arange(n * n),
        "arange_f32": lambda: torch.arange(0.0, float(n * n)),
        "linspace": lambda: torch.linspace(0, 1, n * n),
        "rand": lambda: torch.rand(n, n),
        "randn": lambda: torch.randn(n, n),
        "randint": lambda: torch.randint(0, 100, (n, n)),
        "randperm": lambda: torch.randperm(n * n),
        "dropout": lambda: functional.dropout(x, 0.5),
    }


def differentiated(call, *inputs):
    """The call and its gradients; what comes in for the result is made once. Gradients have elements of their own, as ndarc's have: of a sum
    PyTorch hands out what came in, or a view that repeats it, which nobody may write, and which backward() copies."""
    seed = torch.ones_like(call())

    def own(gradient):
        return gradient.clone() if gradient.untyped_storage().data_ptr() == seed.untyped_storage().data_ptr() else gradient.contiguous()

    return lambda: [own(gradient) for gradient in torch.autograd.grad(call(), inputs, seed)]


def gradient_calls(n):
    x, y = leaf(1, n, n), leaf(1, n, n)
    plain, above, positive = uniform(-1, 1, n, n), uniform(1, 4, n, n), uniform(0.1, 4, n, n)
    weight, bias, high = leaf(1, n), leaf(1, n), uniform(1, 4, n, n).requires_grad_()
    mask, index, rows = plain > above - 2.5, torch.randint(0, n, (n, n)), torch.randint(0, n, (n,))
    work = {
        "mul": (lambda: x * y, x, y),
        "div": (lambda: x / above, x),
        "exp": (lambda: torch.exp(x), x),
        "tanh": (lambda: torch.tanh(x), x),
        "sigmoid": (lambda: torch.sigmoid(x), x),
        "relu": (lambda: torch.relu(x), x),
        "gelu": (lambda: functional.gelu(x), x),
        "gelu_tanh": (lambda: functional.gelu(x, approximate="tanh"), x),
        "silu": (lambda: functional.silu(x), x),
        "softplus": (lambda: functional.softplus(x), x),
        "add_row": (lambda: x + bias, x, bias),
        "sum_axis1": (lambda: x.sum(1), x),
        "max_axis1": (lambda: x.amax(1), x),
        "softmax": (lambda: torch.softmax(x, 1), x),
        "log_softmax": (lambda: torch.log_softmax(x, 1), x),
        "layer_norm": (lambda: functional.layer_norm(x, (n,), weight, bias), x, weight, bias),
        "rms_norm": (lambda: functional.rms_norm(x, (n,), weight, 1e-5), x, weight),
        "cross_entropy": (lambda: functional.cross_entropy(x, rows), x),
        "mse_loss": (lambda: functional.mse_loss(x, plain), x),
        "bce_with_logits": (lambda: functional.binary_cross_entropy_with_logits(x, above), x),
        "smooth_l1": (lambda: functional.smooth_l1_loss(x, plain), x),
        "huber": (lambda: functional.huber_loss(x, plain), x),
        "l1_loss": (lambda: functional.l1_loss(x, plain), x),
        "kl_div": (lambda: functional.kl_div(x, positive), x),
        "nll_loss": (lambda: functional.nll_loss(x, rows), x),
        "where": (lambda: torch.where(mask, x, y), x, y),
        "take_axis0": (lambda: x.index_select(0, rows), x),
        "gather_axis1": (lambda: x.gather(1, index), x),
        "add": (lambda: x + y, x, y),
        "maximum": (lambda: torch.maximum(x, y), x, y),
        "mul_row": (lambda: x * weight, x, weight),
        "abs": (lambda: x.abs(), x),
        "log": (lambda: high.log(), high),
        "sqrt": (lambda: high.sqrt(), high),
        "sin": (lambda: x.sin(), x),
        "cos": (lambda: x.cos(), x),
        "erf": (lambda: torch.erf(x), x),
        "pow_3": (lambda: x**3, x),
        "pow": (lambda: high**x, high, x),
        "hardtanh": (lambda: functional.hardtanh(x, -0.5, 0.5), x),
        "clip": (lambda: x.clamp(-0.5, 0.5), x),
        "masked_fill": (lambda: x.masked_fill(mask, 0.0), x),
        "mean": (lambda: x.mean(), x),
        "sum_axis0": (lambda: x.sum(0), x),
        "max_axis0": (lambda: x.amax(0), x),
        "var_axis0": (lambda: x.var(0), x),
        "var_axis1": (lambda: x.var(1), x),
        "norm": (lambda: torch.linalg.vector_norm(x), x),
        "logsumexp": (lambda: torch.logsumexp(x, 1), x),
        "cumsum_axis0": (lambda: x.cumsum(0), x),
        "cumsum_axis1": (lambda: x.cumsum(1), x),
        "softmax_axis0": (lambda: torch.softmax(x, 0), x),
        "transpose": (lambda: x.t().contiguous(), x),
        "concat": (lambda: torch.cat((x, y), 1), x, y),
        "stack": (lambda: torch.stack((x, y)), x, y),
        "flip": (lambda: x.flip(1), x),
        "roll": (lambda: x.roll(3, 1), x),
        "tril": (lambda: x.tril(), x),
        "take_axis1": (lambda: x.index_select(1, rows), x),
        "gather_axis0": (lambda: x.gather(0, index), x),
        "scatter_add_axis1": (lambda: x.scatter_add(1, index, y), x, y),
        "sort": (lambda: x.sort(dim=1, stable=True)[0], x),
        "dropout": (lambda: functional.dropout(x, 0.5), x),
    }
    return {name + "_backward": call for name, call in work.items()}


def product_calls():
    square = [uniform(-1, 1, 256 << i, 256 << i) for i in range(4)]
    square64, square_b = square[1].double(), square[1].bfloat16()
    bytes_of = [torch.randint(-128, 128, a.shape, dtype=torch.int8) for a in square]
    few_bytes = [torch.randint(-128, 128, (rows, 1024), dtype=torch.int8) for rows in (1, 64)]
    vector, long_vector = uniform(-1, 1, 1, 1024), uniform(-1, 1, 1 << 20)
    batch, layer, layer_bias = uniform(0, 1, 128, 784), leaf(28, 512, 784), leaf(28, 512)
    tokens, projection, projection_bias = leaf(1, 512, 768), leaf(28, 3072, 768), leaf(28, 3072)
    stack_a, stack_b = uniform(-1, 1, 64, 128, 64), uniform(-1, 1, 64, 64, 128)
    heads = uniform(-1, 1, 512, 64, 64)
    work = {"matmul_%d" % len(a): lambda a=a: a @ a for a in square}
    work.update({"matmul_integer_%d" % len(a): lambda a=a: torch._int_mm(a, a) for a in bytes_of})
    work.update({
        "matmul_integer_1x1024x1024": lambda: torch._int_mm(few_bytes[0], bytes_of[2]),
        "matmul_integer_64x1024x1024": lambda: torch._int_mm(few_bytes[1], bytes_of[2]),
        "matmul_f64_512": lambda: square64 @ square64,
        "matmul_bf16_512": lambda: square_b @ square_b,
        "matmul_transposed_512": lambda: square[1] @ square[1].t(),
        "matmul_batched": lambda: stack_a @ stack_b,
        "matmul_heads": lambda: heads @ heads,
        "linear_1x1024x1024": lambda: functional.linear(vector, square[2]),
        "linear_128x784x512": lambda: functional.linear(batch, layer, layer_bias),
        "linear_512x768x3072": lambda: functional.linear(tokens, projection, projection_bias),
        "linear_relu_128x784x512": lambda: torch.relu(functional.linear(batch, layer, layer_bias)),
        "linear_gelu_512x768x3072": lambda: functional.gelu(functional.linear(tokens, projection, projection_bias)),
        "vecdot": lambda: torch.dot(long_vector, long_vector),
        "outer": lambda: torch.outer(projection_bias, layer_bias),
    })
    leaf_square = leaf(1, 512, 512)
    gradients = {
        "matmul_512_backward": (lambda: leaf_square @ square[1], leaf_square),
        "linear_128x784x512_backward": (work["linear_128x784x512"], layer, layer_bias),
        "linear_512x768x3072_backward": (work["linear_512x768x3072"], tokens, projection, projection_bias),
        "linear_relu_128x784x512_backward": (work["linear_relu_128x784x512"], layer, layer_bias),
    }
    return work, gradients


def network_calls():
    pictures, photos = leaf(1, 8, 64, 56, 56), uniform(-1, 1, 8, 3, 112, 112)
    conv1, conv3, conv7, depthwise = leaf(8, 64, 64, 1, 1), leaf(24, 64, 64, 3, 3), leaf(12, 64, 3, 7, 7), leaf(3, 64, 1, 3, 3)
    scale, shift, mean, variance = leaf(1, 64), leaf(1, 64), torch.zeros(64), torch.ones(64)
    query, key, value = (leaf(1, 8, 8, 128, 64) for _ in range(3))
    table, words = leaf(1, 32000, 256), torch.randint(0, 32000, (32, 128))
    attention = functional.scaled_dot_product_attention
    calls = {
        "conv_3x3": (lambda: functional.conv2d(pictures, conv3, padding=1), pictures, conv3),
        "conv_1x1": (lambda: functional.conv2d(pictures, conv1), pictures, conv1),
        "conv_7x7_stride_2": (lambda: functional.conv2d(photos, conv7, stride=2, padding=3), conv7),
        "conv_depthwise": (lambda: functional.conv2d(pictures, depthwise, padding=1, groups=64), pictures, depthwise),
        "max_pool": (lambda: functional.max_pool2d(pictures, 2), pictures),
        "avg_pool": (lambda: functional.avg_pool2d(pictures, 2), pictures),
        "batch_norm": (lambda: functional.batch_norm(pictures, mean, variance, scale, shift, training=True), pictures, scale, shift),
        "batch_norm_eval": (lambda: functional.batch_norm(pictures, mean, variance, scale, shift, training=False), pictures, scale, shift),
        "group_norm": (lambda: functional.group_norm(pictures, 8, scale, shift), pictures, scale, shift),
        "attention": (lambda: attention(query, key, value), query, key, value),
        "attention_causal": (lambda: attention(query, key, value, is_causal=True), query, key, value),
        "embedding": (lambda: functional.embedding(words, table), table),
    }
    return {name: call for name, (call, *_) in calls.items()}, {name + "_backward": call for name, call in calls.items()}


def main():
    size, threads, part = sys.argv[1].split(":")
    torch.set_num_threads(int(threads))
    warnings.filterwarnings("ignore", message="reduction: 'mean' divides")  # which kl_div says of the mean that is measured
    forward, gradients = {}, {}
    if size == "shapes":
        for kind in (product_calls, network_calls):
            calls, differentiable = kind()
            forward.update(calls)
            gradients.update(differentiable)
    else:
        for kind in (elementwise_calls, reduction_calls, layout_calls, creation_calls):
            forward.update(kind(SIZES[size]))
        gradients = gradient_calls(SIZES[size])
    figures, repeats = {}, 5 if size == "16m" else 11
    with torch.no_grad():
        for name, work in forward.items():
            if part in name:
                figures[name] = 1e9 * seconds(work, repeats)
    for name, call in gradients.items():
        if part in name:
            figures[name] = 1e9 * seconds(differentiated(*call), repeats)
    figures["library"] = "PyTorch %s, %s, one thread and two" % (torch.__version__, torch.backends.cpu.get_cpu_capability())
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
