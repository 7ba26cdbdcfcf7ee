// A rival that stays: a script of bench/peers that is given lines and answers each with a line, a
// flat JSON object. So it can be measured in turns with ours.
#ifndef ND_BENCH_PEER_PROCESS_H
#define ND_BENCH_PEER_PROCESS_H
#include "bench/support/peer.h"

typedef struct bench_peer_process bench_peer_process;

/// Starts a script under the Python that bench_peer_run_own() takes, with arguments
/// (NULL-terminated). NULL when it cannot be started: then the answer's `skipped` says why.
bench_peer_process *bench_peer_open(const char *name, const char *const *arguments,
                                    bench_peer *ret_answer);
/// Writes a line to it. False when it has ended.
bool bench_peer_tell(bench_peer_process *process, const char *line);
/// Waits at most so long for its next line. 1: it is in `ret_answer`, for bench_peer_number() and
/// bench_peer_text(); 0: not yet; -1: it has ended.
int bench_peer_hear(bench_peer_process *process, int milliseconds, bench_peer *ret_answer);
/// Lets it end, and waits for that. NULL is fine.
void bench_peer_close(bench_peer_process *process);

#endif
