#!/usr/bin/env python3
"""schedule_values.py: writes the rates that PyTorch's schedulers give step by step, as schedule_values.h.

Run it with a Python that has PyTorch: python3 tests/unit/nn/schedule_values.py >tests/unit/nn/schedule_values.h
"""

import warnings

import torch

STEPS = 24
METRICS = [5, 4, 3.9999, 4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, float("nan"), 2, 2, 2, 2, 2]
s = torch.optim.lr_scheduler
CASES = {
    "step": lambda o: s.StepLR(o, 5, 0.5),
    "multi_step": lambda o: s.MultiStepLR(o, [3, 4, 11], 0.25),
    "exponential": lambda o: s.ExponentialLR(o, 0.9),
    "cosine": lambda o: s.CosineAnnealingLR(o, STEPS, eta_min=0),
    "linear": lambda o: s.LinearLR(o, 0.125, 1.0, 9),
    "one_cycle": lambda o: s.OneCycleLR(o, 0.1, total_steps=STEPS + 1, cycle_momentum=False),
    "one_cycle_linear": lambda o: s.OneCycleLR(o, 0.1, total_steps=STEPS + 1, cycle_momentum=False, anneal_strategy="linear",
                                               pct_start=0.4, div_factor=10, final_div_factor=100),
    "plateau": lambda o: s.ReduceLROnPlateau(o, factor=0.5, patience=2, threshold=1e-3, cooldown=2),
    "plateau_maximize": lambda o: s.ReduceLROnPlateau(o, mode="max", factor=0.5, patience=3, threshold=0.5,
                                                      threshold_mode="abs", min_lr=0.02),
    "product": lambda o: s.ChainedScheduler([s.LinearLR(o, 0.25, 1.0, 6), s.ExponentialLR(o, 0.9)]),
    "sequence": lambda o: s.SequentialLR(o, [s.LinearLR(o, 0.25, 1.0, 6), s.CosineAnnealingLR(o, STEPS - 6, eta_min=0.01)], [6]),
}


def main():
    warnings.simplefilter("ignore")
    print(f"// Rates of PyTorch {torch.__version__.split('+')[0]}, step by step. Written by schedule_values.py.")
    print(f"enum {{ SCHEDULE_STEPS = {STEPS} }};")
    print(f"static const double schedule_metrics[] = {{{', '.join('NAN' if m != m else str(m) for m in METRICS)}}};")
    print("static const struct {\n    const char *name;\n    double rates[SCHEDULE_STEPS + 1];\n} expected_rates[] = {")
    for name, make in CASES.items():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        schedule = make(optimizer)
        rates = [optimizer.param_groups[0]["lr"]]
        for step in range(STEPS):
            optimizer.step()
            schedule.step(*([METRICS[step]] if name.startswith("plateau") else []))
            rates.append(optimizer.param_groups[0]["lr"])
        print(f'    {{"{name}", {{{", ".join(map(repr, rates))}}}}},')
    print("};")


if __name__ == "__main__":
    main()
