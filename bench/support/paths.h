// Where a benchmark finds what it reads and puts what it writes, under `bazel run` and without it.
//
// `bazel run` starts a program in the folder of its data files and names the folder the user stood
// in by BUILD_WORKING_DIRECTORY: paths that the user gave are meant from there.
#ifndef ND_BENCH_PATHS_H
#define ND_BENCH_PATHS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/// Finds a file or folder of this repository by its path from the root: in the working folder, or
/// beside the program. False when it is in none of these.
bool bench_find_file(const char *path, char *buffer, size_t size);

/// A path the user gave, as seen from here. False when it does not fit.
bool bench_user_path(const char *path, char *buffer, size_t size);

/// Whether a file that the user named can be written, asked before anything runs, so that a wrong path
/// costs no run; false with a printed message. What is there stays: a run that is interrupted leaves
/// the figures of the one before.
bool bench_check_result(const char *program, const char *path);
/// That file, emptied, when there is something to write. NULL with a printed message.
FILE *bench_open_result(const char *program, const char *path);

/// True when a program of this name is in PATH, or at this path.
bool bench_program_exists(const char *name);

#endif
