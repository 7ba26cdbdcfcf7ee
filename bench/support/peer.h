// Runs the same work in another library, as another process, and reads the figures it prints.
//
// A rival prints one flat JSON object: {"NAME": number, ...}, or {"skipped": "why"} where its
// library is not installed. Skipping is a normal answer, never a failure.
#ifndef ND_BENCH_PEER_H
#define ND_BENCH_PEER_H
#include <stdbool.h>
#include <stddef.h>

typedef struct bench_peer {
    bool ran;
    char skipped[160]; ///< why it did not run
    char output[8192]; ///< what it printed
} bench_peer;

/// Runs `arguments` (NULL-terminated, the program first) and waits for it.
void bench_peer_run(bench_peer *peer, const char *const *arguments);

/// Runs a program of bench/peers with one argument (NULL: none): the one, and scripts (*.py) under
/// the Python, that bench/peers/newest.sh has installed; without it the one that was built here and
/// the system's Python, where Debian's packages are. A program that is in neither place, because
/// what it needs was not installed, is skipped with `package` named.
void bench_peer_run_own(bench_peer *peer, const char *name, const char *argument,
                        const char *package);

/// The number printed under `name`; NaN when there is none.
double bench_peer_number(const bench_peer *peer, const char *name);

/// The text printed under `name`, copied into `buffer`; empty when there is none. Returns `buffer`.
const char *bench_peer_text(const bench_peer *peer, const char *name, char *buffer, size_t size);

#endif
