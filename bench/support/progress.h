// A progress bar: on standard error, and only when that is a terminal.
#ifndef ND_BENCH_PROGRESS_H
#define ND_BENCH_PROGRESS_H

/// Draws the bar, at most some times a second. fraction: 0 to 1.
void bench_progress_show(const char *text, double fraction);
/// Takes the bar away, before a line is printed.
void bench_progress_clear(void);

#endif
