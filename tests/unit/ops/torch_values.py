#!/usr/bin/env python3
"""torch_values.py >torch_values.inc: what PyTorch computes for the cases of the tests beside this file.

A case is a function of f64 tensors, which wave() makes of a formula that torch_case.h has too. Its row holds the result and then,
input by input, the gradient of the sum of result * wave(9), in row-major order.
"""

import torch
import torch.nn.functional as F

CASES = {}


def wave(k, *shape):
    count = torch.arange(int(torch.tensor(shape).prod()) if shape else 1, dtype=torch.float64)
    return torch.sin(0.7 * count + 0.3 * (count % 5) * k + k + 1).reshape(shape)


def case(*shapes):
    def add(function):
        CASES[function.__name__] = (shapes, function)
        return function

    return add


# ------------------------------------------------------------------------------------------------------------- normalisation


@case((3, 2, 4), (2, 4), (2, 4))
def layer_norm(x, weight, bias):
    return F.layer_norm(x, (2, 4), weight, bias, 1e-3)


@case((2, 5))
def layer_norm_plain(x):
    return F.layer_norm(x, (5,))


@case((3, 4), (4,))
def rms_norm(x, weight):
    return F.rms_norm(x, (4,), weight, 1e-3)


@case((2, 4, 3), (4,), (4,))
def group_norm(x, weight, bias):
    return F.group_norm(x, 2, weight, bias, 1e-3)


@case((3, 2, 2, 2), (2,), (2,))
def batch_norm_training(x, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, True, 0.1, 1e-3)


@case((3, 2, 2), (2,), (2,))
def batch_norm_eval(x, weight, bias):
    return F.batch_norm(x, wave(5, 2), wave(6, 2) ** 2 + 0.5, weight, bias, False, 0.1, 1e-3)


@case((2, 3, 4), (3,), (3,))
def instance_norm(x, weight, bias):
    return F.instance_norm(x, None, None, weight, bias, True, 0.1, 1e-3)


@case((4, 2, 3))
def batch_norm_running(x):
    mean, var = wave(5, 2), wave(6, 2) ** 2 + 0.5
    F.batch_norm(x.detach(), mean, var, None, None, True, 0.3, 1e-5)
    return torch.cat([mean, var]) + 0 * x.sum()


@case((3, 2, 4))
def instance_norm_running(x):
    mean, var = wave(5, 2), wave(6, 2) ** 2 + 0.5
    F.instance_norm(x.detach(), mean, var, None, None, True, 0.3, 1e-5)
    return torch.cat([mean, var]) + 0 * x.sum()


# ----------------------------------------------------------------------------------------------------------------- embedding


@case((4, 3))
def embedding(weight):
    return F.embedding(torch.tensor([[0, 2, 2], [1, 0, 2]]), weight)


@case((4, 3))
def embedding_padding(weight):
    return F.embedding(torch.tensor([3, 0, 3, 1]), weight, padding_idx=-1)


# ------------------------------------------------------------------------------------------------------------------------


def numbers(function, shapes):
    inputs = [wave(k, *shape).requires_grad_() for k, shape in enumerate(shapes)]
    result = function(*inputs)
    yield from result.detach().flatten().tolist()
    gradients = torch.autograd.grad((result * wave(9, *result.shape)).sum(), inputs, allow_unused=True)
    for x, gradient in zip(inputs, gradients):
        yield from (torch.zeros_like(x) if gradient is None else gradient).flatten().tolist()


def main():
    print(f"// Made by torch_values.py with PyTorch {torch.__version__.split('+')[0]}.")
    for name, (shapes, function) in CASES.items():
        texts = [repr(number) for number in numbers(function, shapes)]
        texts = [{"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}.get(text, text) for text in texts]
        print(f"static const double torch_{name}[] = {{")
        for i in range(0, len(texts), 5):
            print("    " + " ".join(text + "," for text in texts[i : i + 5]))
        print("};")


if __name__ == "__main__":
    main()
