"""The work of //bench:elementwise in PyTorch, on one thread, for one dtype and number of elements: f32:1024.

Prints one JSON object: the median nanoseconds of each call for a thousand elements. Results go to memory that was there before, where
PyTorch takes one. {"skipped": ...} where PyTorch is not installed; a call that this PyTorch does not have for the dtype is left out.
"""

import json
import sys

from clock import seconds

try:
    import torch
    import torch.nn.functional as functional
except ImportError:
    print(json.dumps({"skipped": "PyTorch is not installed for " + sys.executable}))
    sys.exit(0)

DTYPES = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}


def uniform(elements, dtype, low, high):
    return (torch.rand(elements // 128, 128) * (high - low) + low).to(dtype)


def calls(elements, dtype):
    """Name and call, in the order and with the operands of bench/elementwise.c."""
    x, y = uniform(elements, dtype, -1, 1), uniform(elements, dtype, -1, 1)
    positive, above = uniform(elements, dtype, 0.1, 4), uniform(elements, dtype, 1, 4)
    out, sums = torch.zeros_like(x), torch.zeros_like(x[:, 0])
    nn = torch._C._nn  # the functions of torch.nn.functional that take a result's memory
    work = {}
    for name in "exp expm1 sin cos tan asin acos atan sinh cosh asinh atanh tanh sigmoid erf square floor round".split():
        work[name] = lambda f=getattr(torch, name): f(x, out=out)
    for name in "log log1p log2 log10 sqrt rsqrt reciprocal".split():
        work[name] = lambda f=getattr(torch, name): f(positive, out=out)
    work["acosh"] = lambda: torch.acosh(above, out=out)
    work["relu"] = lambda: torch.relu(x)
    work["gelu"] = lambda: nn.gelu(x, out=out)
    work["gelu_tanh"] = lambda: nn.gelu(x, approximate="tanh", out=out)
    work["silu"] = lambda: nn.silu(x, out=out)
    work["mish"] = lambda: nn.mish(x, out=out)
    work["softplus"] = lambda: nn.softplus(x, out=out)
    work["logsigmoid"] = lambda: nn.log_sigmoid(x, out=out)
    work["softsign"] = lambda: functional.softsign(x)
    work["relu6"] = lambda: functional.relu6(x)
    work["hardsigmoid"] = lambda: nn.hardsigmoid(x, out=out)
    work["hardswish"] = lambda: functional.hardswish(x)
    work["hardtanh"] = lambda: nn.hardtanh(x, out=out)
    work["leaky_relu"] = lambda: nn.leaky_relu(x, out=out)
    work["elu"] = lambda: nn.elu(x, out=out)
    work["selu"] = lambda: torch.selu(x)
    work["div_scalar"] = lambda: torch.div(x, 3.0, out=out)
    for name, of, power in (("pow_2", x, 2), ("pow_3", x, 3), ("pow_half", positive, 0.5), ("pow_scalar", positive, 2.3)):
        work[name] = lambda of=of, power=power: torch.pow(of, power, out=out)
    work["pow"] = lambda: torch.pow(positive, y, out=out)
    work["add"] = lambda: torch.add(x, y, out=out)
    work["div"] = lambda: torch.div(x, positive, out=out)
    for name in "atan2 hypot logaddexp".split():
        work[name] = lambda f=getattr(torch, name): f(x, y, out=out)
    for name in "remainder floor_divide".split():
        work[name] = lambda f=getattr(torch, name): f(positive, above, out=out)
    work["softmax"] = lambda: torch.softmax(x, 1)
    work["log_softmax"] = lambda: torch.log_softmax(x, 1)
    work["logsumexp"] = lambda: torch.logsumexp(x, 1, out=sums)
    return work


def main():
    name, elements = sys.argv[1].split(":")
    elements = int(elements)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    figures = {}
    for call, work in calls(elements, DTYPES[name]).items():
        try:
            figures[call] = 1e12 * seconds(work) / elements
        except (NotImplementedError, RuntimeError):
            continue
    figures["library"] = "PyTorch %s, %s, one thread" % (torch.__version__, torch.backends.cpu.get_cpu_capability())
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
