// Memory that the ranks of one machine have in common.
//
// Who waits spins for a few microseconds, which is what another core needs, and then sleeps, so that
// a core that it shares with a rank it waits for, or with this rank's computation, is free; the
// last to come wakes the others. It wakes by itself now and then, to look at its deadline.
#include "lib/distributed/node.h"
#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/pause.h"
#include "lib/distributed/transport.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int64_t nd__node_share = INT64_C(1) << 20;
int64_t nd__node_copied = INT64_C(256) << 10;

enum { PAGE = 4096, TEXT = 64 };
/// Of slots: a piece has the one, the next piece the other.
enum { SETS = 2 };
/// Of all slots of a communicator together, where many ranks would have more.
static const int64_t most_bytes = INT64_C(256) << 20;
static const uint64_t spin_ns = 20000, sleep_ns = 1000000, long_sleep_ns = 10000000;

/// How far a rank is; two cache lines, which processors fetch together.
typedef struct line {
    alignas(128) _Atomic uint32_t at;    ///< meetings it has come to
    _Atomic uint32_t sleepers;           ///< that wait for `at` to change
    uint64_t values[2][ND__NODE_VALUES]; ///< of the agreement at an even meeting, an odd one
} line;

struct nd_node {
    int rank, ranks;
    int file;            ///< of rank 0, until it is sealed; else -1
    uint32_t generation; ///< of processes, in which it is mapped
    uint32_t met;        ///< meetings so far
    int64_t gone;        ///< pieces that calls before have had, on all ranks the same
    int64_t share;       ///< bytes
    size_t bytes;        ///< of the mapping
    line *lines;         ///< the mapping: of each rank one; the slots behind
    char *slots;
};

// -------------------------------------------------------------------------------------------------
// begin and end

static bool is_off(void) {
    const char *chosen = secure_getenv("ND_SHARED_MEMORY");
    return chosen && strcmp(chosen, "off") == 0;
}

static int64_t header_bytes(int ranks) {
    int64_t bytes = (int64_t)sizeof(line) * ranks;
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/// Of a share, so that the slots of all ranks have most_bytes at most.
static int64_t share_bytes(int ranks) {
    int64_t most = most_bytes / SETS / ranks / ranks;
    int64_t bytes = nd__node_share < most ? nd__node_share : most;
    return bytes / 8 * 8;
}

/// A file that is longer than the process may make one ends it.
static bool may_be_so_long(int64_t bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= (rlim_t)bytes);
}

/// The name of the memory, as the system shows it.
static const char *name_of(char *text, uint64_t name, bool shown) {
    snprintf(text, TEXT, "%snd-%016llx%s", shown ? "/memfd:" : "", (unsigned long long)name,
             shown ? " (deleted)" : "");
    return text;
}

/// Takes the file: it is closed where there is no node of it.
static nd_node *map(int file, int64_t bytes, int rank, int ranks) {
    nd_node *node = nd__alloc_zeroed(sizeof *node);
    void *memory =
        node ? mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    if (memory == MAP_FAILED) {
        nd__alloc_free(node);
        close(file);
        return NULL;
    }
    madvise(memory, (size_t)bytes, MADV_DONTFORK);
    *node = (nd_node){.rank = rank,
                      .ranks = ranks,
                      .file = file,
                      .generation = nd__fork_generation,
                      .share = (bytes - header_bytes(ranks)) / SETS / ranks / ranks,
                      .bytes = (size_t)bytes,
                      .lines = memory,
                      .slots = (char *)memory + header_bytes(ranks)};
    return node;
}

nd_node *nd__node_make(int ranks, nd_node_key *ret_key) {
    char text[TEXT];
    nd_node_key key = {.process = getpid(), .file = -1};
    key.bytes = header_bytes(ranks) + share_bytes(ranks) * SETS * ranks * ranks;
    nd_node *node = NULL;
    if (!is_off() && share_bytes(ranks) > 0 && may_be_so_long(key.bytes) &&
        getrandom(&key.name, sizeof key.name, GRND_NONBLOCK) == (ssize_t)sizeof key.name)
        key.file = memfd_create(name_of(text, key.name, false), MFD_CLOEXEC);
    if (key.file >= 0 && ftruncate(key.file, key.bytes) == 0) {
        node = map(key.file, key.bytes, 0, ranks);
    } else if (key.file >= 0) {
        close(key.file);
    }
    if (!node)
        key.file = -1;
    *ret_key = key;
    return node;
}

nd_node *nd__node_join(const nd_node_key *key, int rank, int ranks) {
    char path[TEXT], text[TEXT], found[TEXT] = "";
    if (key->file < 0 || is_off())
        return NULL;
    // A process of that number may be another one here, whose file is left alone.
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)key->process, key->file);
    if (readlink(path, found, sizeof found - 1) < 0 ||
        strcmp(found, name_of(text, key->name, true)) != 0)
        return NULL;
    int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat state;
    bool whole = file >= 0 && fstat(file, &state) == 0 && state.st_size == key->bytes;
    if (!whole) {
        if (file >= 0)
            close(file);
        return NULL;
    }
    nd_node *node = map(file, key->bytes, rank, ranks);
    if (node)
        nd__node_seal(node);
    return node;
}

void nd__node_seal(nd_node *node) {
    if (node->file >= 0)
        close(node->file);
    node->file = -1;
}

void nd__node_free(nd_node *node) {
    if (!node)
        return;
    if (node->generation == nd__fork_generation) {
        nd__node_seal(node);
        munmap(node->lines, node->bytes);
    }
    nd__alloc_free(node);
}

// -------------------------------------------------------------------------------------------------
// meetings

static bool has_come(const line *line, uint32_t meeting) {
    return (int32_t)(nd__atomic_load(&line->at, acquire) - meeting) >= 0;
}

/// Sleeps until `at` changes, or for so long. Not a private futex: other processes wake it.
static void sleep_on(line *line, uint32_t meeting, uint64_t ns) {
    struct timespec time = {0, (long)ns};
    nd__atomic_fetch_add(&line->sleepers, 1, seq_cst);
    uint32_t at = nd__atomic_load(&line->at, seq_cst);
    if ((int32_t)(at - meeting) < 0)
        syscall(SYS_futex, &line->at, FUTEX_WAIT, at, &time, NULL, 0);
    nd__atomic_fetch_sub(&line->sleepers, 1, relaxed);
}

static bool spin(const line *line, uint32_t meeting) {
    uint64_t begin = nd__clock_now_ns();
    do
        for (int i = 0; i < 32; i++) {
            if (has_come(line, meeting))
                return true;
            nd__pause_relax();
        }
    while (nd__clock_now_ns() - begin < spin_ns);
    return false;
}

/// `begun`: when this rank came; 0 until somebody asks.
static nd_status wait_for(const nd_transport_call *call, const nd_node_idle *idle, line *line,
                          uint32_t meeting, uint64_t *begun) {
    if (spin(line, meeting))
        return ND_OK;
    *begun = *begun ? *begun : nd__clock_now_ns();
    nd_status status = ND_OK;
    while (status == ND_OK && !has_come(line, meeting)) {
        uint64_t waited = nd__clock_now_ns() - *begun;
        if ((double)waited * 1e-9 > call->seconds)
            return nd__error(ND_ERROR_IO, ND__TRANSPORT_SILENCE, call->operation, call->seconds);
        sleep_on(line, meeting, waited < 100 * sleep_ns ? sleep_ns : long_sleep_ns);
        if (!has_come(line, meeting))
            status = idle->run(idle->context, call);
    }
    return status;
}

/// All ranks come here.
static nd_status meet(nd_node *node, const nd_transport_call *call, const nd_node_idle *idle) {
    line *mine = &node->lines[node->rank];
    uint32_t meeting = ++node->met;
    nd__atomic_store(&mine->at, meeting, seq_cst);
    if (nd__atomic_load(&mine->sleepers, seq_cst) != 0)
        syscall(SYS_futex, &mine->at, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    uint64_t begun = 0;
    nd_status status = ND_OK;
    for (int i = 1; status == ND_OK && i < node->ranks; i++)
        status =
            wait_for(call, idle, &node->lines[(node->rank + i) % node->ranks], meeting, &begun);
    return status;
}

nd_status nd__node_agree(nd_node *node, const nd_transport_call *call, const nd_node_idle *idle,
                         uint64_t *values) {
    uint32_t parity = (node->met + 1) % 2;
    // No memcpy: of so few bytes the compiler makes moves that the thread sanitizer does not see.
    for (int i = 0; i < ND__NODE_VALUES; i++)
        node->lines[node->rank].values[parity][i] = values[i];
    nd_status status = meet(node, call, idle);
    for (int rank = 0; status == ND_OK && rank < node->ranks; rank++)
        for (int i = 0; i < ND__NODE_VALUES; i++)
            if (node->lines[rank].values[parity][i] > values[i])
                values[i] = node->lines[rank].values[parity][i];
    return status;
}

// -------------------------------------------------------------------------------------------------
// reductions

int64_t nd__node_piece(const nd_node *node, int64_t size) {
    return node->share / size * node->ranks;
}

/// Where a rank's slot has its share of another one, or its sum, of a piece by its number in this
/// call. Calls go on where the one before ended: what others may still read of its last piece is in
/// the other set.
static char *slot(const nd_node *node, int64_t number, int rank, int share) {
    int64_t set = (node->gone + number) % SETS;
    return node->slots + ((set * node->ranks + rank) * node->ranks + share) * node->share;
}

/// How many elements the piece has.
static int64_t piece(const nd_node *node, int64_t size, int64_t left) {
    int64_t most = nd__node_piece(node, size);
    return left < most ? left : most;
}

/// Bytes of a share of a piece, and where it begins there.
static size_t share_of(const nd_node *node, int64_t count, int64_t size, int rank,
                       int64_t *ret_offset) {
    nd_ring_share share = nd__ring_share(count, rank, node->ranks);
    *ret_offset = share.first * size;
    return (size_t)(share.count * size);
}

/// Puts down the others' shares of a piece. What this rank adds up goes from `from` to `data`.
static void put_shares(nd_node *node, int64_t number, const char *from, char *data, int64_t count,
                       int64_t size) {
    for (int rank = 0; rank < node->ranks; rank++) {
        int64_t offset;
        size_t bytes = share_of(node, count, size, rank, &offset);
        if (rank != node->rank)
            memcpy(slot(node, number, node->rank, rank), from + offset, bytes);
        else if (from != data)
            memcpy(data + offset, from + offset, bytes);
    }
}

void nd__node_stage(nd_node *node, const void *from, void *data, int64_t count, int64_t size) {
    int64_t first = piece(node, size, count);
    put_shares(node, 0, from, data, first, size);
    if (from != data)
        memcpy((char *)data + first * size, (const char *)from + first * size,
               (size_t)((count - first) * size));
}

/// The others' shares of this rank's part of a piece onto its own.
static nd_status add_up(nd_node *node, int64_t number, const nd_sums *sums, char *data,
                        int64_t count) {
    nd_ring_share own = nd__ring_share(count, node->rank, node->ranks);
    char *sum = data + own.first * sums->size;
    nd_status status = ND_OK;
    for (int i = 1; status == ND_OK && own.count > 0 && i < node->ranks; i++)
        status = sums->combine(sums->context,
                               slot(node, number, (node->rank + i) % node->ranks, node->rank), sum,
                               own.count);
    if (status == ND_OK)
        sums->settle(sums->context, sum, own.count);
    memcpy(slot(node, number, node->rank, node->rank), sum, (size_t)(own.count * sums->size));
    return status;
}

static void take_sums(nd_node *node, int64_t number, int64_t size, char *data, int64_t count) {
    for (int i = 1; i < node->ranks; i++) {
        int rank = (node->rank + i) % node->ranks;
        int64_t offset;
        size_t bytes = share_of(node, count, size, rank, &offset);
        memcpy(data + offset, slot(node, number, rank, rank), bytes);
    }
}

/// Between two meetings: the shares of the next piece, the sum of one, the sums of the one before.
nd_status nd__node_reduce(nd_node *node, const nd_transport_call *call, const nd_node_idle *idle,
                          const nd_sums *sums, void *data, int64_t count, bool staged) {
    int64_t most = nd__node_piece(node, sums->size), size = sums->size;
    int64_t pieces = (count + most - 1) / most;
    if (!staged)
        nd__node_stage(node, data, data, count, size);
    nd_status status = staged ? ND_OK : meet(node, call, idle);
    for (int64_t number = 0; status == ND_OK && number <= pieces; number++) {
        char *now = (char *)data + number * most * size, *next = now + most * size;
        if (number + 1 < pieces)
            put_shares(node, number + 1, next, next, piece(node, size, count - (number + 1) * most),
                       size);
        if (number < pieces)
            status = add_up(node, number, sums, now, piece(node, size, count - number * most));
        if (number > 0)
            take_sums(node, number - 1, size, now - most * size,
                      piece(node, size, count - (number - 1) * most));
        if (status == ND_OK && number < pieces)
            status = meet(node, call, idle);
    }
    node->gone += pieces;
    return status;
}

// -------------------------------------------------------------------------------------------------
// shares that are each rank's own, one behind the other

/// A walk through all shares at once, in pieces that have a part of each.
typedef struct shares {
    const int64_t *counts; ///< of elements
    int64_t size;          ///< bytes of one
    int64_t most;          ///< bytes of a part
} shares;

static int64_t count_pieces(const nd_node *node, const shares *of) {
    int64_t most = 0;
    for (int rank = 0; rank < node->ranks; rank++)
        most = of->counts[rank] > most ? of->counts[rank] : most;
    return (most * of->size + of->most - 1) / of->most;
}

/// Bytes of a rank's part of a piece, whose place goes from *ret_part on; 0 behind its last.
static size_t part_of(const shares *of, char *data, int64_t number, int rank, char **ret_part) {
    int64_t at = number * of->most, left = of->counts[rank] * of->size - at;
    for (int i = 0; i < rank; i++)
        data += of->counts[i] * of->size;
    *ret_part = data + at;
    return (size_t)(left <= 0 ? 0 : left < of->most ? left : of->most);
}

static void put_own(nd_node *node, const shares *of, char *data, int64_t number) {
    char *part;
    size_t bytes = part_of(of, data, number, node->rank, &part);
    if (bytes > 0)
        memcpy(slot(node, number, node->rank, node->rank), part, bytes);
}

static void take_others(nd_node *node, const shares *of, char *data, int64_t number) {
    for (int i = 1; i < node->ranks; i++) {
        int rank = (node->rank + i) % node->ranks;
        char *part;
        size_t bytes = part_of(of, data, number, rank, &part);
        if (bytes > 0)
            memcpy(part, slot(node, number, rank, rank), bytes);
    }
}

/// Between two meetings: the next piece is put down, and the one before taken.
nd_status nd__node_gather(nd_node *node, const nd_transport_call *call, const nd_node_idle *idle,
                          void *data, const int64_t *counts, int64_t size) {
    int64_t most = nd__node_copied < node->share ? nd__node_copied : node->share;
    shares of = {counts, size, most};
    int64_t pieces = count_pieces(node, &of);
    nd_status status = ND_OK;
    for (int64_t number = 0; status == ND_OK && number <= pieces; number++) {
        if (number < pieces)
            put_own(node, &of, data, number);
        if (number > 0)
            take_others(node, &of, data, number - 1);
        if (number < pieces)
            status = meet(node, call, idle);
    }
    node->gone += pieces;
    return status;
}

static void put_others(nd_node *node, const shares *of, char *data, int64_t number) {
    for (int rank = 0; rank < node->ranks; rank++) {
        char *part;
        size_t bytes = rank == node->rank ? 0 : part_of(of, data, number, rank, &part);
        if (bytes > 0)
            memcpy(slot(node, number, node->rank, rank), part, bytes);
    }
}

/// The others' parts of what is this rank's onto its own.
static nd_status add_own(nd_node *node, const shares *of, const nd_sums *sums, char *data,
                         int64_t number) {
    char *part;
    int64_t count = (int64_t)part_of(of, data, number, node->rank, &part) / of->size;
    nd_status status = ND_OK;
    for (int i = 1; status == ND_OK && count > 0 && i < node->ranks; i++)
        status = sums->combine(sums->context,
                               slot(node, number, (node->rank + i) % node->ranks, node->rank), part,
                               count);
    if (status == ND_OK && count > 0)
        sums->settle(sums->context, part, count);
    return status;
}

nd_status nd__node_scatter(nd_node *node, const nd_transport_call *call, const nd_node_idle *idle,
                           const nd_sums *sums, void *data, const int64_t *counts) {
    shares of = {counts, sums->size, node->share / sums->size * sums->size};
    int64_t pieces = count_pieces(node, &of);
    nd_status status = ND_OK;
    for (int64_t number = 0; status == ND_OK && number <= pieces; number++) {
        if (number < pieces)
            put_others(node, &of, data, number);
        if (number > 0)
            status = add_own(node, &of, sums, data, number - 1);
        if (status == ND_OK && number < pieces)
            status = meet(node, call, idle);
    }
    node->gone += pieces;
    return status;
}
