#!/usr/bin/env bash
exec python3 kernels/cuda/roofline.py kernels/cuda/budget.txt docs/cuda.md
