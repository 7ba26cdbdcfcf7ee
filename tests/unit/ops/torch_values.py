#!/usr/bin/env python3
"""torch_values.py >torch_values.inc: what PyTorch computes for the cases of the tests beside this file.

A case is a function of f64 tensors, which wave() makes of a formula that torch_case.h has too. Its row holds the result and then,
input by input, the gradient of the sum of result * wave(9), in row-major order.
"""

import warnings

import numpy as np
import torch
import torch.nn.functional as F

CASES = {}
warnings.simplefilter("ignore")


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


# ----------------------------------------------------------------------------------------------------------------- attention


SEEN = torch.tensor([[True, False, True, True], [False, False, False, False], [True, True, False, True]])


@case((2, 3, 2), (2, 4, 2), (2, 4, 3))
def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


@case((3, 2), (4, 2), (4, 2))
def attention_seen(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=SEEN, scale=0.5)


@case((1, 2, 3, 2), (1, 2, 4, 2), (1, 2, 4, 2), (2, 1, 4))
def attention_added(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@case((2, 4, 2), (2, 3, 2), (2, 3, 2))
def attention_causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@case((1, 4, 3, 2), (1, 2, 3, 2), (1, 2, 3, 2), (4, 3, 3))
def attention_grouped(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


# ------------------------------------------------------------------------------------------------------------ recurrent nets


def run(function, x, states, weights, layers=1, bias=True, bidirectional=False, batch_first=False):
    arguments = [x, states, list(weights), bias, layers, 0.0, False, bidirectional]
    output, *last = function(*arguments, batch_first)
    return torch.cat([part.flatten() for part in (output, *last)])


@case((3, 2, 2), (1, 2, 3), (3, 2), (3, 3), (3,), (3,))
def rnn(x, h, *weights):
    return run(torch.rnn_tanh, x, h, weights)


@case((2, 3, 2), (1, 2, 2), (2, 2), (2, 2))
def rnn_relu(x, h, *weights):
    return run(torch.rnn_relu, x, h, weights, bias=False, batch_first=True)


@case((3, 2, 2), (1, 2, 2), (1, 2, 2), (8, 2), (8, 2), (8,), (8,))
def lstm(x, h, c, *weights):
    return run(torch.lstm, x, (h, c), weights)


@case((3, 1, 1), (8, 1), (8, 2), (8, 1), (8, 2), (8, 4), (8, 2), (8, 4), (8, 2))
def lstm_deep(x, *weights):
    zeros = torch.zeros(4, 1, 2, dtype=torch.float64)
    return run(torch.lstm, x, (zeros, zeros), weights, layers=2, bias=False, bidirectional=True)


@case((2, 3, 2), (2, 2, 2), (6, 2), (6, 2), (6,), (6,), (6, 2), (6, 2), (6,), (6,))
def gru(x, h, *weights):
    return run(torch.gru, x, h, weights, bidirectional=True, batch_first=True)


# -------------------------------------------------------------------------------------------------------------------- losses


@case((3, 4), (3, 4))
def l1_loss(a, b):
    return F.l1_loss(a, b)


@case((3, 4), (4,))
def smooth_l1_loss(a, b):
    return F.smooth_l1_loss(a, b.expand(3, 4), reduction="sum", beta=0.7)


@case((3, 4), (3, 4))
def smooth_l1_loss_sharp(a, b):
    return F.smooth_l1_loss(a, b, reduction="none", beta=0)


@case((3, 4), (3, 4))
def huber_loss(a, b):
    return F.huber_loss(a, b, reduction="none", delta=0.7)


@case((3, 4), (3, 4))
def kl_div(a, b):
    return F.kl_div(F.log_softmax(a, 1), F.softmax(b, 1), reduction="batchmean")


@case((3, 4), (3, 4))
def kl_div_of_logarithms(a, b):
    return F.kl_div(F.log_softmax(a, 1), F.log_softmax(b, 1), reduction="none", log_target=True)


@case((3, 4))
def kl_div_of_zeros(a):
    return F.kl_div(a, torch.eye(4, dtype=torch.float64)[:3], reduction="mean")


@case((3, 4), (3, 4))
def bce_with_logits(x, t):
    return F.binary_cross_entropy_with_logits(5 * x, t, wave(2, 4), pos_weight=wave(3, 4))


@case((2, 3))
def bce_with_logits_extreme(x):
    big = torch.tensor([[0.0, 300.0, -300.0], [1000.0, -1000.0, 0.0]], dtype=torch.float64)
    t = torch.tensor([[0.25, 0, 1], [1, 0, 1]], dtype=torch.float64)
    return F.binary_cross_entropy_with_logits(big + 0 * x, t, reduction="none") + 0 * x


@case((4, 3), (3,))
def nll_loss(x, weight):
    return F.nll_loss(x, torch.tensor([2, -100, 0, 2]), weight.detach() + 2) + 0 * weight.sum()


@case((2, 3, 2))
def nll_loss_of_places(x):
    return F.nll_loss(x, torch.tensor([[0, 2], [1, 1]]), reduction="none", ignore_index=2)


@case((3,))
def nll_loss_of_one(x):
    return F.nll_loss(x, torch.tensor(1), reduction="sum")


@case((2, 3, 4), (3, 1))
def cosine_similarity(a, b):
    return F.cosine_similarity(a, b, dim=1)


@case((4, 3), (4, 3))
def cosine_embedding_loss(a, b):
    return F.cosine_embedding_loss(a, b, torch.tensor([1, -1, -1, 1]), margin=0.1, reduction="none")


# -------------------------------------------------------------------------------------------------------------- manipulation


@case((2, 3))
def pad_constant(x):
    return F.pad(x, (1, 2, 2, -1), value=1.5)


@case((1, 3, 4))
def pad_reflect(x):
    return F.pad(x, (3, 1), mode="reflect")


@case((1, 2, 2, 3))
def pad_replicate(x):
    return F.pad(x, (2, 1, 0, 3), mode="replicate")


@case((1, 2, 3))
def pad_circular(x):
    return F.pad(x, (3, 2), mode="circular")


@case((2, 3, 2))
def flip(x):
    return x.flip(0, 2)


@case((2, 5))
def roll(x):
    return x.roll(-2, 1)


@case((2, 3, 4))
def tril(x):
    return x.tril(1)


@case((4, 3))
def triu(x):
    return x.triu(-1)


@case((2, 3, 2))
def repeat(x):
    return x.repeat_interleave(3, 1)


@case((2, 3))
def tile(x):
    return x.tile(2, 1, 3)


@case((2, 3, 4))
def moveaxis(x):
    return x.moveaxis(-1, 0)


@case((2, 6))
def split(x):
    return torch.cat(x.split([1, 0, 3, 2], 1)[::-1], 1)


@case((2, 4, 3))
def diagonal(x):
    return x.diagonal(1, 2, 0)


@case((4, 3))
def diagonal_below(x):
    return x.diagonal(-2)


@case((2, 3, 4))
def trace(x):
    return x.diagonal(1, -2, -1).sum(-1)


@case((3,), (2,), (2,))
def meshgrid(x, y, z):
    a, b, c = torch.meshgrid(x, y, z, indexing="xy")
    return a * b + c


# ------------------------------------------------------------------------------------------------------------------ indexing


def pairs():
    return torch.tensor([[0, -1], [2, 0]]), torch.tensor([1, -4])


@case((3, 4, 2))
def index_pairs(x):
    return x[pairs()]


@case((3, 4, 2))
def index_mask(x):
    return x[torch.arange(12).reshape(3, 4) % 5 != 1]


@case((3, 4, 2))
def index_mask_behind(x):
    return x[torch.tensor([2, 0]), torch.tensor([True, False, False, True])]


@case((3, 4, 2), (2, 1, 2))
def index_put(x, values):
    return x.index_put(pairs(), values)


@case((3, 4, 2), (3, 2))
def index_put_accumulate(x, values):
    return x.index_put((torch.tensor([1, 1, 2]), torch.tensor(0)), values, accumulate=True)


@case((2, 3, 2), (2, 4, 2))
def index_add(x, source):
    return x.index_add(1, torch.tensor([2, 0, 2, 1]), source)


def scattered(x, source, reduction, include_self):
    index = torch.tensor([[0, 2, 2], [1, 0, 2], [0, 0, 2], [3, 0, 2], [1, 2, 2]])
    return x.scatter_reduce(0, index, source, reduction, include_self=include_self)


for _reduction in ("sum", "prod", "amin", "amax", "mean"):
    for _include_self in (True, False):

        def _scatter(x, source, reduction=_reduction, include_self=_include_self):
            return scattered(x, source, reduction, include_self)

        _scatter.__name__ = f"scatter_{_reduction}" + ("" if _include_self else "_alone")
        case((4, 3), (5, 3))(_scatter)


# ------------------------------------------------------------------------------------------------------------- windows, steps


@case((2, 7, 2))
def sliding_window(x):
    return x.unfold(1, 4, 2)


@case((3, 5))
def sliding_window_apart(x):
    return x.unfold(-1, 1, 3)


@case((2, 7, 2))
def slice_backwards(x):
    return x.flip(1)[:, 1::2]


@case((3, 2))
def unstack(x):
    first, second, third = x.unbind(0)
    return first * third + second


@case((2, 5))
def diff(x):
    return torch.diff(x, n=2, dim=-1)


@case((2, 3, 2), (3, 2))
def vecdot(a, b):
    return torch.linalg.vecdot(a, b, dim=-2)


@case((2, 3, 2), (3, 2))
def cross(a, b):
    return torch.linalg.cross(a, b.expand(2, 3, 2), dim=-2)


@case((6,))
def split_shared(x):
    first, second, third = x.split([3, 0, 3])
    return first * third + torch.cat([second, first]) * first


# -------------------------------------------------------------------------------------------------------------- contractions


@case((3,), (4,))
def outer(a, b):
    return torch.outer(a, b)


@case((2, 3, 4), (4, 2, 2))
def tensordot(a, b):
    return torch.tensordot(a, b, dims=([2, 0], [0, 1]))


@case((2, 2), (3,))
def tensordot_of_all(a, b):
    return torch.tensordot(a, b, dims=0)


@case((2, 3), (2, 1, 2))
def kron(a, b):
    return torch.kron(a, b)


@case((2, 3, 4), (2, 4, 2))
def einsum_batch(a, b):
    return torch.einsum("bij,bjk->bki", a, b)


@case((2, 3), (3, 4), (4, 2))
def einsum_chain(a, b, c):
    return torch.einsum("ij,jk,kl", a, b, c)


@case((3, 3, 2))
def einsum_diagonal(a):
    return torch.einsum("iij->ji", a)


@case((3, 3))
def einsum_trace(a):
    return torch.einsum("ii", a)


@case((2, 1, 3, 2), (3, 2, 3))
def einsum_ellipsis(a, b):
    return torch.einsum("...ij,...ji->i...", a, b)


@case((2, 3), (2, 3), (3,), (2,))
def einsum_bilinear(a, b, c, d):
    return torch.einsum("zB, zB, B, z -> B", a, b, c, d)


# ------------------------------------------------------------------------------------------------------------------- sorting


@case((2, 4, 3))
def sort_rows(x):
    return x.sort(1)[0]


@case((5, 3))
def sort_columns_down(x):
    return x.sort(0, descending=True)[0]


@case((2, 5, 3))
def topk(x):
    return x.topk(2, -2)[0]


@case((3, 7))
def topk_smallest(x):
    return x.topk(3, -1, largest=False)[0]


def quantile(x, q, *rest, **options):
    return torch.quantile(x, torch.tensor(q, dtype=torch.float64), *rest, **options)


@case((2, 5, 3))
def quantile_linear(x):
    return quantile(x, [0, 0.1, 0.5, 0.77, 1], 1)


@case((2, 5))
def quantile_lower(x):
    return quantile(x, [0.3, 0.8], interpolation="lower")


@case((3, 4))
def quantile_higher(x):
    return quantile(x, [0.3, 0.8], -1, keepdim=True, interpolation="higher")


@case((4, 2))
def quantile_midpoint(x):
    return quantile(x, [0.3, 0.5], 0, keepdim=True, interpolation="midpoint")


@case((6, 2))
def quantile_nearest(x):
    return quantile(x, [0.3, 0.5, 0.9], 0, interpolation="nearest")


METHODS = """linear lower higher midpoint nearest inverted_cdf averaged_inverted_cdf closest_observation
interpolated_inverted_cdf hazen weibull median_unbiased normal_unbiased""".split()


@case((8, 2))
def quantile_methods(x):
    """NumPy says of which places each quantile is made."""
    q = [0, 0.0625, 0.125, 0.1875, 0.3, 0.5, 0.6875, 0.8125, 0.97, 1]
    ranks = torch.tensor(np.concatenate([np.quantile(np.arange(8.0), q, method=method) for method in METHODS]))
    low, share = ranks.floor().long(), (ranks - ranks.floor())[:, None]
    x = x.sort(0)[0]
    return x[low] * (1 - share) + x[(low + 1).clamp(max=7)] * share


@case((2, 3, 5))
def median_even(x):
    return torch.quantile(x.movedim(1, 0).flatten(1), 0.5, 1, interpolation="midpoint")


@case((2, 5))
def median_odd(x):
    return x.median(1, keepdim=True)[0]


@case((6,))
def bincount_weighted(x):
    return torch.zeros(8, dtype=torch.float64).index_add(0, torch.tensor([3, 0, 3, 5, 1, 3]), x)


# ----------------------------------------------------------------------------------------------------------- linear algebra


def regular(x):
    return x + 2 * torch.eye(x.shape[-1], dtype=x.dtype)


def flat(*parts):
    return torch.cat([part.flatten() for part in parts])


@case((2, 3, 3), (3, 2))
def solve(a, b):
    return torch.linalg.solve(regular(a), b)


@case((3, 3), (3,))
def solve_vector(a, b):
    return torch.linalg.solve(regular(a), b)


@case((3, 3), (2, 3, 2))
def solve_upper(a, b):
    return torch.linalg.solve_triangular(regular(a).expand(2, 3, 3), b, upper=True)


@case((2, 3, 3), (3, 2))
def solve_unit_lower(a, b):
    return torch.linalg.solve_triangular(a, b.expand(2, 3, 2), upper=False, unitriangular=True)


@case((2, 3, 3))
def inv(x):
    return torch.linalg.inv(regular(x))


@case((2, 3, 3))
def matrix_power(x):
    return torch.linalg.matrix_power(x, 5)


@case((3, 3))
def matrix_power_inverse(x):
    return torch.linalg.matrix_power(regular(x), -3)


@case((4, 2), (4, 3))
def lstsq_tall(a, b):
    return torch.linalg.lstsq(a, b).solution


@case((2, 4), (2,))
def lstsq_wide(a, b):
    return torch.linalg.lstsq(a, b.unsqueeze(1)).solution.squeeze(1)


@case((2, 3, 2))
def pinv_tall(x):
    return torch.linalg.pinv(x)


@case((2, 3))
def pinv_wide(x):
    return torch.linalg.pinv(x)


@case((2, 3, 3))
def cholesky(x):
    return torch.linalg.cholesky(x @ x.mT + torch.eye(3, dtype=x.dtype))


# Of decompositions the squares: their columns may point either way.


@case((2, 3, 2))
def qr_tall(x):
    q, r = torch.linalg.qr(x)
    return flat(q**2, r**2)


@case((2, 4))
def qr_wide(x):
    q, r = torch.linalg.qr(x)
    return flat(q**2, r**2)


def squares_of_svd(x):
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    return flat(u**2, s, vt**2)


@case((2, 3, 2))
def svd_tall(x):
    return squares_of_svd(x)


@case((2, 4))
def svd_wide(x):
    return squares_of_svd(x)


@case((3, 3))
def svd_square(x):
    return squares_of_svd(regular(x))


@case((2, 3, 3))
def svdvals(x):
    return torch.linalg.svdvals(regular(x))


@case((2, 3, 3))
def eigh(x):
    values, vectors = torch.linalg.eigh((x + x.mT) / 2)
    return flat(values, vectors**2)


@case((3, 3))
def eigvalsh(x):
    return torch.linalg.eigvalsh((x + x.mT) / 2)


@case((2, 3, 3))
def det(x):
    return torch.linalg.det(regular(x))


@case((2, 3, 3))
def slogdet(x):
    return torch.linalg.slogdet(regular(x)).logabsdet


@case((2, 3, 2))
def matrix_norms(x):
    return torch.stack([torch.linalg.matrix_norm(x, kind) for kind in ("fro", "nuc", 2, 1, float("inf"))])


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
