// Draws over the bar that stands there.
#include "bench/support/progress.h"

#include "bench/support/measure.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BAR_CELLS = 24 };
static const double seconds_between_bars = 0.1;

static bool progress_shown;

static bool has_terminal(void);

void bench_progress_show(const char *text, double fraction) {
    static double shown_at;
    double now = bench_seconds();
    if (!has_terminal() || (progress_shown && now - shown_at < seconds_between_bars))
        return;
    shown_at = now;
    char bar[BAR_CELLS + 1];
    int full = (int)(fraction * BAR_CELLS + 0.5);
    full = full < 0 ? 0 : full > BAR_CELLS ? BAR_CELLS : full;
    memset(bar, '.', BAR_CELLS);
    memset(bar, '#', (size_t)full);
    bar[BAR_CELLS] = '\0';
    fprintf(stderr, "\r\033[K  [%s] %3.0f %%  %s", bar, fraction * 100, text);
    fflush(stderr);
    progress_shown = true;
}

void bench_progress_clear(void) {
    if (progress_shown)
        fprintf(stderr, "\r\033[K");
    progress_shown = false;
}

static bool has_terminal(void) {
    static int answer = -1;
    if (answer < 0)
        answer = isatty(STDERR_FILENO);
    return answer == 1;
}
