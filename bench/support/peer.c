// Starts a rival with its standard output in a pipe. Its standard error is the user's.
#include "bench/support/peer.h"

#include "bench/support/paths.h"

#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static bool find_rival(const char *name, char *buffer, size_t size);
static bool start(const char *const *arguments, int output, pid_t *ret_process);
static void read_all(int from, char *buffer, size_t size);
static const char *find_value(const bench_peer *peer, const char *name);

void bench_peer_run(bench_peer *peer, const char *const *arguments) {
    *peer = (bench_peer){0};
    int ends[2];
    if (pipe(ends) != 0) {
        snprintf(peer->skipped, sizeof peer->skipped, "no pipe: %s", strerror(errno));
        return;
    }
    pid_t process = 0;
    bool started = start(arguments, ends[1], &process);
    close(ends[1]);
    if (!started) {
        snprintf(peer->skipped, sizeof peer->skipped, "%s cannot be started", arguments[0]);
        close(ends[0]);
        return;
    }
    read_all(ends[0], peer->output, sizeof peer->output);
    close(ends[0]);
    int status = 0;
    while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    if (*bench_peer_text(peer, "skipped", peer->skipped, sizeof peer->skipped))
        return;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        snprintf(peer->skipped, sizeof peer->skipped, "%s failed", arguments[0]);
        return;
    }
    peer->ran = true;
}

void bench_peer_run_own(bench_peer *peer, const char *name, const char *argument,
                        const char *package) {
    char path[256];
    char program[4096];
    char python[4096];
    size_t length = strlen(name);
    bool script = length > 3 && strcmp(name + length - 3, ".py") == 0;
    bool newest = script ? bench_peer_find_python(python, sizeof python)
                         : find_rival(name, program, sizeof program);
    snprintf(path, sizeof path, "bench/peers/%s", name);
    if (!(newest && !script) && !bench_find_file(path, program, sizeof program)) {
        *peer = (bench_peer){0};
        snprintf(peer->skipped, sizeof peer->skipped,
                 script ? "%s is not beside this program (it needs %s)"
                        : "%s was not built: not installed (%s)",
                 path, package);
        return;
    }
    const char *const arguments[] = {script ? python : program, script ? program : argument,
                                     script ? argument : NULL, NULL};
    bench_peer_run(peer, arguments);
    peer->outdated = peer->ran && !newest && strstr(package, "torch");
}

bool bench_peer_find_python(char *buffer, size_t size) {
    bool newest = find_rival("python", buffer, size);
    if (!newest)
        snprintf(buffer, size, "/usr/bin/python3");
    return newest;
}

const char *bench_peer_line(const bench_peer *peer, char *buffer, size_t size) {
    char library[256];
    if (peer->ran)
        snprintf(buffer, size, "%s%s", bench_peer_text(peer, "library", library, sizeof library),
                 peer->outdated ? " of this system, which is no rival: bench/peers/newest.sh "
                                  "installs the newest"
                                : "");
    else
        snprintf(buffer, size, "SKIPPED: %s", peer->skipped);
    return buffer;
}

double bench_peer_number(const bench_peer *peer, const char *name) {
    const char *value = find_value(peer, name);
    if (!peer->ran || !value)
        return NAN;
    char *end = NULL;
    double number = strtod(value, &end);
    return end == value ? NAN : number;
}

const char *bench_peer_text(const bench_peer *peer, const char *name, char *buffer, size_t size) {
    const char *value = find_value(peer, name);
    bool text = value && *value == '"';
    snprintf(buffer, size, "%.*s", text ? (int)strcspn(value + 1, "\"") : 0, text ? value + 1 : "");
    return buffer;
}

/// A program that bench/peers/newest.sh has installed: in $ND_RIVALS, else where it puts them by
/// default.
static bool find_rival(const char *name, char *buffer, size_t size) {
    const char *folder = getenv("ND_RIVALS");
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (folder && *folder)
        length = snprintf(buffer, size, "%s/bin/%s", folder, name);
    else if (cache && *cache)
        length = snprintf(buffer, size, "%s/ndarc-rivals/bin/%s", cache, name);
    else if (home)
        length = snprintf(buffer, size, "%s/.cache/ndarc-rivals/bin/%s", home, name);
    return length > 0 && (size_t)length < size && access(buffer, X_OK) == 0;
}

static bool start(const char *const *arguments, int output, pid_t *ret_process) {
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return false;
    bool started = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO) == 0 &&
                   posix_spawnp(ret_process, arguments[0], &actions, NULL,
                                (char **)(void *)arguments, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    return started;
}

/// Reads to the end of the stream, keeping what fits.
static void read_all(int from, char *buffer, size_t size) {
    size_t used = 0;
    char rest[512];
    for (;;) {
        bool full = used + 1 >= size;
        ssize_t count =
            read(from, full ? rest : buffer + used, full ? sizeof rest : size - 1 - used);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            break;
        used += full ? 0 : (size_t)count;
    }
    buffer[used] = '\0';
}

/// First character of the value under a key; NULL when the key is not there.
static const char *find_value(const bench_peer *peer, const char *name) {
    char key[96];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *found = strstr(peer->output, key);
    if (!found)
        return NULL;
    found += strlen(key);
    return found + strspn(found, " ");
}
