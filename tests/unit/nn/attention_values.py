#!/usr/bin/env python3
"""attention_values.py: writes what PyTorch's MultiheadAttention gives and its gradients, in double precision, as attention_values.h.

Parameters, operands and the gradient of the result are number() of a seed and an index. Run it with a Python that has PyTorch:
    python3 tests/unit/nn/attention_values.py >tests/unit/nn/attention_values.h
"""

import torch

SIZE, HEADS, BATCH, LENGTH, OTHER = 6, 2, 2, 3, 4
PARAMETERS = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")


def numbers(seed, *shape):
    """As numbers() of attention_test.c."""
    count = torch.Size(shape).numel()
    values = [(((1000 * seed + i) * 2654435761 + 12345) % 2**32) / 2**31 - 1 for i in range(count)]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def case(name, bias, causal, sources, masked):
    net = torch.nn.MultiheadAttention(SIZE, HEADS, bias=bias, batch_first=True, dtype=torch.float64)
    own = dict(net.named_parameters())
    with torch.no_grad():
        for seed, parameter in enumerate(PARAMETERS):
            if parameter in own:
                own[parameter].copy_(numbers(seed, *own[parameter].shape))
    x = [numbers(10, BATCH, LENGTH, SIZE), numbers(11, BATCH, OTHER, SIZE), numbers(12, BATCH, OTHER, SIZE)]
    for operand in x:
        operand.requires_grad_()
    query, key, value = (x[source] for source in sources)
    mask = None
    if causal:
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    if masked:  # True hides here
        mask = torch.tensor([[(i + 2 * j) % 3 == 0 for j in range(key.shape[1])] for i in range(LENGTH)])
    y, _ = net(query, key, value, attn_mask=mask, need_weights=False)
    (y * numbers(13, *y.shape)).sum().backward()
    found = [y.flatten(), x[0].grad.flatten()[:SIZE]]
    found += [own[parameter].grad.flatten()[:SIZE] for parameter in PARAMETERS if parameter in own]
    values = torch.cat(found).tolist()
    lines = [", ".join(repr(v) for v in values[i:i + 4]) for i in range(0, len(values), 4)]
    print(f'    {{"{name}",\n     {len(values)},\n     {{' + ",\n      ".join(lines) + "}},")


def main():
    print(f"// What PyTorch {torch.__version__.split('+')[0]} makes of the modules of attention_test.c. Written by attention_values.py.")
    print("static const struct {\n    const char *name;\n    int count;\n    double values[66];\n} expected_values[] = {")
    case("self", True, False, (0, 0, 0), False)
    case("causal", True, True, (0, 0, 0), False)
    case("cross", False, False, (0, 1, 1), True)
    case("three", True, False, (0, 1, 2), False)
    print("};")


main()
