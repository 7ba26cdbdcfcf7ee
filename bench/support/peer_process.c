// Two pipes and a process between them.
#include "bench/support/peer_process.h"

#include "bench/support/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { ARGUMENTS_MAX = 16 };

struct bench_peer_process {
    pid_t process;
    int to;
    int from;
    size_t used; ///< of `line`
    char line[4096];
    bool outdated;
};

static bool start(bench_peer_process *peer, const char *const *arguments);

bench_peer_process *bench_peer_open(const char *name, const char *const *arguments,
                                    bench_peer *ret_answer) {
    *ret_answer = (bench_peer){0};
    char path[256];
    char script[4096];
    char python[4096];
    snprintf(path, sizeof path, "bench/peers/%s", name);
    bench_peer_process *peer = calloc(1, sizeof *peer);
    if (!peer || !bench_find_file(path, script, sizeof script)) {
        snprintf(ret_answer->skipped, sizeof ret_answer->skipped,
                 "%.100s is not beside this program", path);
        free(peer);
        return NULL;
    }
    peer->outdated = !bench_peer_find_python(python, sizeof python);
    const char *all[ARGUMENTS_MAX] = {python, script};
    for (size_t i = 0; arguments[i] && i + 3 < ARGUMENTS_MAX; i++)
        all[i + 2] = arguments[i];
    if (start(peer, all))
        return peer;
    snprintf(ret_answer->skipped, sizeof ret_answer->skipped, "%.100s cannot be started", python);
    free(peer);
    return NULL;
}

bool bench_peer_tell(bench_peer_process *process, const char *line) {
    void (*previous)(int) = signal(SIGPIPE, SIG_IGN);
    bool told = dprintf(process->to, "%s\n", line) > 0;
    signal(SIGPIPE, previous);
    return told;
}

int bench_peer_hear(bench_peer_process *process, int milliseconds, bench_peer *ret_answer) {
    char *end = memchr(process->line, '\n', process->used);
    if (!end) {
        struct pollfd from = {.fd = process->from, .events = POLLIN};
        int ready = poll(&from, 1, milliseconds);
        if (ready == 0 || (ready < 0 && errno == EINTR))
            return 0;
        size_t room = sizeof process->line - process->used;
        ssize_t count = read(process->from, process->line + process->used, room);
        if (count <= 0)
            return -1;
        process->used += (size_t)count;
        end = memchr(process->line, '\n', process->used);
        if (!end)
            return process->used < sizeof process->line ? 0 : -1;
    }
    size_t length = (size_t)(end - process->line);
    *ret_answer = (bench_peer){.ran = true, .outdated = process->outdated};
    memcpy(ret_answer->output, process->line, length);
    process->used -= length + 1;
    memmove(process->line, end + 1, process->used);
    return 1;
}

void bench_peer_close(bench_peer_process *process) {
    if (!process)
        return;
    close(process->to);
    close(process->from);
    int status = 0;
    while (waitpid(process->process, &status, 0) < 0 && errno == EINTR) {
    }
    free(process);
}

static bool start(bench_peer_process *peer, const char *const *arguments) {
    int in[2];
    int out[2];
    if (pipe2(in, O_CLOEXEC) != 0)
        return false;
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return false;
    }
    posix_spawn_file_actions_t actions;
    bool started = posix_spawn_file_actions_init(&actions) == 0;
    if (started) {
        started = posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO) == 0 &&
                  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO) == 0 &&
                  posix_spawnp(&peer->process, arguments[0], &actions, NULL,
                               (char **)(void *)arguments, environ) == 0;
        posix_spawn_file_actions_destroy(&actions);
    }
    close(in[0]);
    close(out[1]);
    peer->to = in[1];
    peer->from = out[0];
    if (!started) {
        close(peer->to);
        close(peer->from);
    }
    return started;
}
