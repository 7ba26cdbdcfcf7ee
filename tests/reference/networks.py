"""The operations of neural networks for compare.py: windows, norms, attention, recurrent nets, losses. Lines as in operations.py."""

import numpy as np
import torch
import torch.nn.functional as F
import operands
from operands import Long, call, options
from operations import FLOAT, broadcast, full_shape, op

REDUCTIONS = ["mean", "sum", "none", "batchmean"]  # in the order of nd_reduction


def size(random, low, high):
    return int(random.integers(low, high + 1))


def sizes(random, count, low, high):
    return [size(random, low, high) for _ in range(count)]


# windows ----------------------------------------------------------------------------------------------------------------------
def conv_shapes(axes, transposed):
    def shapes(random):
        groups, ci, co = size(random, 1, 2), size(random, 1, 2), size(random, 1, 2)
        kernel = sizes(random, axes, 1, 3)
        x = [size(random, 1, 2), groups * ci, *sizes(random, axes, 5, 6 if axes > 1 else 9)]
        weight = [groups * ci, co, *kernel] if transposed else [groups * co, ci, *kernel]
        return [x, weight, [groups * co]]

    return shapes


def conv_extra(axes, transposed):
    def extra(random, shapes):
        given = {"stride": sizes(random, axes, 1, 2), "padding": sizes(random, axes, 0, 1), "dilation": sizes(random, axes, 1, 2)}
        x, weight, _ = shapes
        given["groups"] = x[1] // weight[1] if not transposed else shapes[2][0] // weight[1]
        if transposed:
            most = [max(s, d) - 1 for s, d in zip(given["stride"], given["dilation"])]
            given["output_padding"] = [size(random, 0, m) for m in most]
        return given

    return extra


for axes in (1, 2, 3):
    op(f"nd_conv{axes}d", conv_shapes(axes, False), lambda t, e, n=axes: [*t, options(f"conv{n}d", **e)],
       lambda t, e, f=getattr(F, f"conv{axes}d"): f(*t, **e), FLOAT, conv_extra(axes, False))
    op(f"nd_conv_transpose{axes}d", conv_shapes(axes, True), lambda t, e, n=axes: [*t, options(f"conv_transpose{n}d", **e)],
       lambda t, e, f=getattr(F, f"conv_transpose{axes}d"): f(*t, **e), FLOAT, conv_extra(axes, True))


def image(axes, low=4, high=7):
    return lambda random: [[size(random, 1, 2), size(random, 1, 3), *sizes(random, axes, low, high)]]


def pool_extra(axes, largest):
    def extra(random, _):
        kernel = sizes(random, axes, 1, 3)
        given = {"kernel": kernel, "stride": sizes(random, axes, 1, 3), "padding": [size(random, 0, k // 2) for k in kernel], "ceil_mode": bool(random.integers(2))}
        if largest:
            given["dilation"] = [size(random, 1, 2 if k < 3 else 1) for k in kernel]
        else:
            given["count_include_pad"] = bool(random.integers(2))
            if axes > 1 and random.integers(3) == 0:
                given["divisor"] = size(random, 1, 5)
        return given

    return extra


def torch_pool(function, e):
    given = {"kernel_size": e["kernel"], **{k: v for k, v in e.items() if k not in ("kernel", "divisor")}}
    if e.get("divisor"):
        given["divisor_override"] = e["divisor"]
    return lambda x: function(x, **given)


for axes in (1, 2, 3):
    op(f"nd_max_pool{axes}d", image(axes), lambda t, e, n=axes: [*t, options(f"max_pool{n}d", **e)],
       lambda t, e, f=getattr(F, f"max_pool{axes}d"): torch_pool(f, e)(*t), FLOAT, pool_extra(axes, True))
    op(f"nd_avg_pool{axes}d", image(axes), lambda t, e, n=axes: [*t, options(f"avg_pool{n}d", **e)],
       lambda t, e, f=getattr(F, f"avg_pool{axes}d"): torch_pool(f, e)(*t), FLOAT, pool_extra(axes, False))
    for which in ("avg", "max"):
        op(f"nd_adaptive_{which}_pool{axes}d", image(axes), lambda t, e: [*t, *(Long(n) for n in e)],
           lambda t, e, f=getattr(F, f"adaptive_{which}_pool{axes}d"): f(t[0], e), FLOAT, lambda random, _, n=axes: sizes(random, n, 1, 5))

MODES = ["nearest", "nearest-exact", "linear", "cubic"]


def interpolate_extra(random, shapes):
    axes = len(shapes[0]) - 2
    mode = size(random, 0, 3 if axes == 2 else 2)
    corners = mode >= 2 and bool(random.integers(2))
    if random.integers(2):
        return mode, corners, sizes(random, axes, 1, 9), None
    return mode, corners, None, [float(random.choice([0.5, 0.75, 1.5, 2.0, 2.3])) for _ in range(axes)]


def interpolate_options(t, e):
    mode, corners, target, scales = e
    return [*t, options("interpolate", mode=mode, align_corners=corners, sizes=[*(target or []), 0, 0, 0][:3], scales=[*(scales or []), 0.0, 0.0, 0.0][:3])]


def torch_interpolate(t, e):
    mode, corners, target, scales = e
    name = {2: ["linear", "bilinear", "trilinear"][t[0].ndim - 3], 3: "bicubic"}.get(mode, MODES[mode])
    return F.interpolate(t[0], size=target, scale_factor=scales, mode=name, align_corners=corners if mode >= 2 else None)


op("nd_interpolate", lambda random: image(size(random, 1, 3))(random), interpolate_options, torch_interpolate, FLOAT, interpolate_extra)
op("nd_pixel_shuffle", lambda random: [[size(random, 1, 2), 4 * size(random, 1, 2), *sizes(random, 2, 1, 3)]], lambda t, _: [*t, Long(2)],
   lambda t, _: F.pixel_shuffle(t[0], 2), FLOAT)
op("nd_pixel_unshuffle", lambda random: [[size(random, 1, 2), size(random, 1, 2), 2 * size(random, 1, 3), 2 * size(random, 1, 3)]],
   lambda t, _: [*t, Long(2)], lambda t, _: F.pixel_unshuffle(t[0], 2), FLOAT)


def unfold_extra(random, _):
    return {"kernel": sizes(random, 2, 1, 2), "stride": sizes(random, 2, 1, 2), "padding": sizes(random, 2, 0, 1), "dilation": sizes(random, 2, 1, 2)}


op("nd_unfold", image(2), lambda t, e: [*t, options("unfold", **e)],
   lambda t, e: F.unfold(t[0], e["kernel"], e["dilation"], e["padding"], e["stride"]), FLOAT, unfold_extra)


# norms ------------------------------------------------------------------------------------------------------------------------
def inner_norm(random):
    inner = [size(random, 2, 4) for _ in range(size(random, 1, 2))]
    return [full_shape(random)[:2] + inner, inner, inner]


def channels_norm(random):
    c = 2 * size(random, 1, 2)
    return [[size(random, 2, 3), c, *sizes(random, size(random, 1, 2), 2, 3)], [c], [c]]


# Of two elements a norm makes 1 and -1: its slopes are the epsilon's, and in f32 the second ones have no digit left.
for dtypes, order in ((["float64"], 2), (["float32"], 0)):
    how = {"dtypes": dtypes, "order": order}
    op("nd_layer_norm", inner_norm, lambda t, _: [*t, 1e-5, t[1].ndim], lambda t, _: F.layer_norm(t[0], t[1].shape, t[1], t[2], 1e-5), **how)
    op("nd_rms_norm", lambda random: inner_norm(random)[:2], lambda t, _: [*t, 1e-5, t[1].ndim], lambda t, _: F.rms_norm(t[0], t[1].shape, t[1], 1e-5), **how)
    op("nd_group_norm", channels_norm, lambda t, e: [*t, Long(e), 1e-5], lambda t, e: F.group_norm(t[0], e, t[1], t[2], 1e-5),
       extra=lambda random, shapes: int(random.choice([1, 2, shapes[0][1]])), **how)
    op("nd_batch_norm", channels_norm, lambda t, _: [*t, None, None, options("batch_norm", training=True)],
       lambda t, _: F.batch_norm(t[0], None, None, t[1], t[2], True, 0.1, 1e-5), **how)
    op("nd_instance_norm", channels_norm, lambda t, _: [*t, None, None, options("batch_norm")],
       lambda t, _: F.instance_norm(t[0], None, None, t[1], t[2], True, 0.1, 1e-5), **how)


# embedding, attention ---------------------------------------------------------------------------------------------------------
op("nd_embedding", lambda random: [[size(random, 1, 5), size(random, 1, 4)], full_shape(random)[:3]], lambda t, e: [*t, Long(e)],
   lambda t, e: F.embedding(t[1], t[0], padding_idx=e), FLOAT, lambda random, shapes: size(random, 0, shapes[0][0] - 1),
   index={1: lambda random, shapes, _: random.integers(0, shapes[0][0], shapes[1])})


def attention_shapes(random):
    batch, heads, length, seen, e, v = (size(random, 1, 3) for _ in range(6))
    return [[batch, heads, length, e], [batch, heads, seen, e], [batch, heads, seen, v], [length, seen]]


def torch_attention(t, e):
    """Written out: PyTorch's own has no second order."""
    query, key, value, mask = t
    scores = query @ key.transpose(-1, -2) / np.sqrt(query.shape[-1]) + mask
    if e:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    return torch.softmax(scores, -1) @ value


op("nd_attention", attention_shapes, lambda t, e: [*t, options("attention", causal=e)], torch_attention, FLOAT, lambda random, _: bool(random.integers(2)))


# recurrent nets ---------------------------------------------------------------------------------------------------------------
def first_output(name):
    """Runs a function that writes several tensors and returns a status; the first of them."""

    def run(arguments):
        return call(name, *arguments)[0]

    return run


def recurrent_shapes(gates, cells):
    def shapes(random):
        steps, batch, inner, hidden = size(random, 1, 4), size(random, 1, 3), size(random, 1, 3), size(random, 1, 3)
        layers, directions = size(random, 1, 2), size(random, 1, 2)
        weights = []
        for layer in range(layers):
            for _ in range(directions):
                weights += [[gates * hidden, inner if layer == 0 else directions * hidden], [gates * hidden, hidden], [gates * hidden], [gates * hidden]]
        return [[steps, batch, inner]] + [[layers * directions, batch, hidden]] * (1 + cells) + weights

    return shapes


def recurrent_extra(cells):
    def extra(random, shapes):
        count, hidden = shapes[1][0], shapes[1][2]
        first = 2 + cells
        # The second layer's weights are as wide as its directions.
        wide = [s for s in shapes[first::4]]
        directions = 2 if count == 4 or (count == 2 and wide[0] == wide[1] and bool(random.integers(2)) and shapes[0][2] == hidden) else 1
        if count == 2 and wide[1][1] == 2 * hidden:
            directions = 1
        if count == 2 and directions == 1 and wide[1][1] != hidden:
            directions = 2
        return count // directions, directions == 2

    return extra


def recurrent(name, gates, cells, function):
    op(name, recurrent_shapes(gates, cells),
       lambda t, e: [*t[: 2 + cells], t[2 + cells :], options("recurrent", layers=e[0], bidirectional=e[1])],
       lambda t, e: function(t[0], tuple(t[1:3]) if cells else t[1], list(t[2 + cells :]), True, e[0], 0.0, False, e[1], False)[0],
       FLOAT, recurrent_extra(cells), order=1, run=first_output(name))


recurrent("nd_rnn", 1, 0, torch._VF.rnn_tanh)
recurrent("nd_lstm", 4, 1, torch._VF.lstm)
recurrent("nd_gru", 3, 0, torch._VF.gru)


# losses -----------------------------------------------------------------------------------------------------------------------
def pair(random):
    return [full_shape(random, 1)] * 2


def reduction(random, _):
    return size(random, 0, 2)


op("nd_l1_loss", pair, lambda t, e: [*t, e], lambda t, e: F.l1_loss(*t, reduction=REDUCTIONS[e]), FLOAT, reduction)
op("nd_smooth_l1_loss", pair, lambda t, e: [*t, 0.7, e], lambda t, e: F.smooth_l1_loss(*t, reduction=REDUCTIONS[e], beta=0.7), FLOAT, reduction)
op("nd_huber_loss", pair, lambda t, e: [*t, 0.7, e], lambda t, e: F.huber_loss(*t, reduction=REDUCTIONS[e], delta=0.7), FLOAT, reduction)
op("nd_kl_div", pair, lambda t, e: [*t, e[1], e[0]], lambda t, e: F.kl_div(*t, reduction=REDUCTIONS[e[0]], log_target=e[1]), FLOAT,
   lambda random, _: (size(random, 0, 3), bool(random.integers(2))), low=0.1)
op("nd_bce_with_logits", lambda random: [full_shape(random, 1)] * 4, lambda t, e: [*t, e],
   lambda t, e: F.binary_cross_entropy_with_logits(t[0], t[1], t[2], reduction=REDUCTIONS[e], pos_weight=t[3]), FLOAT, reduction, low=0.0, high=1.0,
   index={2: lambda random, shapes, _: random.uniform(0.5, 2, shapes[2]), 3: lambda random, shapes, _: random.uniform(0.5, 2, shapes[3])})


def classes_shapes(random):
    n, c = size(random, 1, 4), size(random, 1, 4)
    places = sizes(random, size(random, 0, 2), 1, 3)
    return [[n, c, *places], [n, *places], [c]]


def labels(random, shapes, _):
    return random.integers(0, shapes[0][1], shapes[1])


op("nd_nll_loss", classes_shapes, lambda t, e: [*t, Long(-100), e], lambda t, e: F.nll_loss(t[0], t[1], t[2].detach(), reduction=REDUCTIONS[e]), FLOAT, reduction,
   low=0.1, index={1: labels, 2: lambda random, shapes, _: random.uniform(0.5, 2, shapes[2])}, order=2)
op("nd_cross_entropy_with", classes_shapes, lambda t, e: [*t, options("cross_entropy", reduction=e[0], label_smoothing=e[1])],
   lambda t, e: F.cross_entropy(t[0], t[1], t[2], reduction=REDUCTIONS[e[0]], label_smoothing=e[1]), FLOAT,
   lambda random, _: (size(random, 0, 2), float(random.choice([0.0, 0.2]))), index={1: labels, 2: lambda random, shapes, _: random.uniform(0.5, 2, shapes[2])})
op("nd_cross_entropy", lambda random: (lambda n, c: [[n, c], [n]])(size(random, 1, 5), size(random, 1, 5)), lambda t, _: t, lambda t, _: F.cross_entropy(*t), FLOAT,
   index={1: labels})
op("nd_cosine_similarity", lambda random: [full_shape(random, 1)] * 2, lambda t, e: [*t, 1e-8, e], lambda t, e: F.cosine_similarity(*t, dim=e), FLOAT,
   lambda random, shapes: int(random.integers(-len(shapes[0]), len(shapes[0]))), low=0.3)
