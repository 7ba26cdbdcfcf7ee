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
    /// It is the system's, of which bench/peers/newest.sh installs a newer one: its figures are shown
    /// and make no ratio.
    bool outdated;
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

/// The Python for scripts of bench/peers: the one that bench/peers/newest.sh has installed, else the
/// system's, and false.
bool bench_peer_find_python(char *buffer, size_t size);

/// The number printed under `name`; NaN when there is none.
double bench_peer_number(const bench_peer *peer, const char *name);

/// What a table says below itself: the library that ran, or "SKIPPED: " and why none did; and of an
/// outdated one that it is no rival, and what installs one. Copied into `buffer`, which is returned.
const char *bench_peer_line(const bench_peer *peer, char *buffer, size_t size);

/// The text printed under `name`, copied into `buffer`; empty when there is none. Returns `buffer`.
const char *bench_peer_text(const bench_peer *peer, const char *name, char *buffer, size_t size);

#endif
