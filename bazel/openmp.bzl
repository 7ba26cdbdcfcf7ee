"""OpenMP, for programs that use it themselves, which the library does not: rivals in //bench, and tests beside such a program."""

load("@local_openmp//:defs.bzl", "HAVE_OPENMP")

OPENMP_COPTS = ["-fopenmp"] if HAVE_OPENMP else ["-Wno-unknown-pragmas"]
OPENMP = ["@local_openmp//:openmp"] if HAVE_OPENMP else []
