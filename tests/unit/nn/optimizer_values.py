#!/usr/bin/env python3
"""optimizer_values.py: writes what PyTorch's optimizers make of fixed gradients, in double precision, as optimizer_values.h.

Each case starts from the same two parameters, takes the same gradients, and prints the first parameter and the second after
the last step. Lion is not in PyTorch; it is written here as its paper has it. Run it with a Python that has PyTorch:
    python3 tests/unit/nn/optimizer_values.py >tests/unit/nn/optimizer_values.h
"""

import torch

SIZES, STEPS = (5, 3), 12


def number(seed):
    """The same number in [-1, 1) as number() of optimizer_kinds_test.c."""
    return ((seed * 2654435761 + 12345) % 2**32) / 2**31 - 1


def numbers(step, parameter):
    return torch.tensor([number(1000 * step + 100 * parameter + i) for i in range(SIZES[parameter])], dtype=torch.float64)


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, lr, betas, weight_decay):
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                direction = torch.sign(beta1 * m + (1 - beta1) * p.grad)
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * direction)
                m.mul_(beta2).add_((1 - beta2) * p.grad)


o = torch.optim
CASES = {
    "sgd": lambda p: o.SGD(p, lr=0.1),
    "sgd_decay": lambda p: o.SGD(p, lr=0.1, weight_decay=0.05),
    "sgd_momentum": lambda p: o.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.05),
    "sgd_nesterov": lambda p: o.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "sgd_nesterov_decay": lambda p: o.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.05),
    "adam": lambda p: o.Adam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6),
    "adam_decay": lambda p: o.Adam(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    "adamw": lambda p: o.AdamW(p, lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
    "rmsprop": lambda p: o.RMSprop(p, lr=0.02, alpha=0.9, eps=1e-6),
    "rmsprop_all": lambda p: o.RMSprop(p, lr=0.02, alpha=0.9, eps=1e-2, weight_decay=0.1, momentum=0.7, centered=True),
    "adagrad": lambda p: o.Adagrad(p, lr=0.1, eps=1e-6),
    "adagrad_all": lambda p: o.Adagrad(p, lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, eps=1e-6),
    "lion": lambda p: Lion(p, lr=0.02, betas=(0.8, 0.95), weight_decay=0.1),
    "groups": lambda p: o.AdamW([{"params": p[:1]}, {"params": p[1:], "lr": 0.01, "weight_decay": 0.0}],
                                lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1),
}


def main():
    print(f"// What PyTorch {torch.__version__.split('+')[0]} makes of the steps of optimizer_kinds_test.c. Written by optimizer_values.py.")
    print("static const struct {\n    const char *name;\n    double values[8];\n} expected_values[] = {")
    for name, make in CASES.items():
        parameters = [torch.nn.Parameter(numbers(0, k)) for k in range(2)]
        optimizer = make(parameters)
        for step in range(1, STEPS + 1):
            for k, parameter in enumerate(parameters):
                parameter.grad = numbers(step, k)
            optimizer.step()
        values = ", ".join(repr(v) for p in parameters for v in p.tolist())
        print(f'    {{"{name}", {{{values}}}}},')
    print("};")


if __name__ == "__main__":
    main()
