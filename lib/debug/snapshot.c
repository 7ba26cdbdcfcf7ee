// Snapshots of what is alive, their difference, and blocks that must leave nothing behind.
//
// A snapshot keeps addresses, never references: it keeps nothing alive. An object is the same one
// in both snapshots when address, type and creation site are; one that died and whose address went
// to another of the same type and line counts as one that stayed, so sums are exact and "came" and
// "went" are at least what is said.
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/debug/census.h"
#include "lib/debug/text.h"
#include "lib/manager/manager.h"
#include <inttypes.h>
#include <nd/debug.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const nd_object *object;
    const char *what; ///< memory of the snapshot
    const char *file; ///< of its site, or NULL; memory of the snapshot
    uint32_t line;
    uint64_t bytes;
} entry;

struct nd_snapshot {
    entry *entries; ///< by address
    size_t count;
    char *text;
    char manager[ND__MANAGER_NAME_SIZE];
};

// --------------------------------------------------------------------------------------- snapshots

static int by_address(const void *left, const void *right) {
    uintptr_t a = (uintptr_t)((const entry *)left)->object;
    uintptr_t b = (uintptr_t)((const entry *)right)->object;
    return a < b ? -1 : a > b;
}

nd_snapshot *nd_snapshot_new(const nd_manager *manager) {
    ND__UNCANCELLED;
    census graph;
    nd_snapshot *snapshot = nd__alloc_zeroed(sizeof *snapshot);
    if (!snapshot || !nd__census_take(&graph, manager))
        goto no_memory;
    snapshot->entries = nd__alloc((graph.count + 1) * sizeof *snapshot->entries);
    if (!snapshot->entries) {
        nd__census_free(&graph);
        goto no_memory;
    }
    for (uint32_t i = 0; i < graph.count; i++) {
        const census_object *object = &graph.objects[i];
        // One that moved meanwhile may have been met twice.
        if (nd__census_find(&graph, object->object) == i)
            snapshot->entries[snapshot->count++] =
                (entry){object->object, object->what, object->file, object->line, object->bytes};
    }
    qsort(snapshot->entries, snapshot->count, sizeof *snapshot->entries, by_address);
    snprintf(snapshot->manager, sizeof snapshot->manager, "%s", graph.managers.items[0]->name);
    snapshot->text = graph.text; // what the entries' texts lie in
    graph.text = NULL;
    nd__census_free(&graph);
    return snapshot;
no_memory:
    nd__alloc_free(snapshot);
    nd__error(ND_ERROR_OUT_OF_MEMORY, "snapshot_new: no memory to list the objects");
    return NULL;
}

void nd_snapshot_free(nd_snapshot *snapshot) {
    if (!snapshot)
        return;
    nd__alloc_free(snapshot->entries);
    nd__alloc_free(snapshot->text);
    nd__alloc_free(snapshot);
}

// -------------------------------------------------------------------------------------- difference

/// What changed of one type and creation site.
typedef struct row {
    const char *what, *file; ///< memory of a snapshot; `file` NULL: no site
    uint32_t line;
    uint64_t came_objects, came_bytes, went_objects, went_bytes;
} row;

typedef struct rows {
    row *items;
    size_t count;
} rows;

static int compare_sites(const char *file, uint32_t line, const char *other_file,
                         uint32_t other_line) {
    if (line != other_line)
        return line < other_line ? -1 : 1;
    return strcmp(file ? file : "", other_file ? other_file : "");
}

static int compare_groups(const row *a, const row *b) {
    int order = compare_sites(a->file, a->line, b->file, b->line);
    return order ? order : strcmp(a->what, b->what);
}

static int by_group(const void *left, const void *right) {
    return compare_groups(left, right);
}

/// Largest growth first, what grew alike by line.
static int by_growth(const void *left, const void *right) {
    const row *a = left, *b = right;
    int64_t bytes =
        (int64_t)(b->came_bytes - b->went_bytes) - (int64_t)(a->came_bytes - a->went_bytes);
    int64_t objects =
        (int64_t)(b->came_objects - b->went_objects) - (int64_t)(a->came_objects - a->went_objects);
    if (bytes != 0)
        return bytes < 0 ? -1 : 1;
    if (objects != 0)
        return objects < 0 ? -1 : 1;
    return compare_groups(a, b);
}

static row came(const entry *object) {
    return (row){object->what, object->file, object->line, 1, object->bytes, 0, 0};
}

static row went(const entry *object) {
    return (row){object->what, object->file, object->line, 0, 0, 1, object->bytes};
}

static bool is_same(const entry *a, const entry *b) {
    return compare_sites(a->file, a->line, b->file, b->line) == 0 && strcmp(a->what, b->what) == 0;
}

/// One row per object that came or went, then those of a group added up.
static bool find_rows(const nd_snapshot *before, const nd_snapshot *after, rows *result) {
    row *items = nd__alloc((before->count + after->count + 1) * sizeof *items);
    if (!items)
        return false;
    size_t count = 0, a = 0, b = 0;
    while (a < before->count || b < after->count) {
        const entry *old = a < before->count ? &before->entries[a] : NULL;
        const entry *new = b < after->count ? &after->entries[b] : NULL;
        int order = !new ? -1 : !old ? 1 : by_address(old, new);
        if (order == 0 && is_same(old, new)) {
            // A closed object stays, without its bytes.
            if (old->bytes > new->bytes)
                items[count++] =
                    (row){old->what, old->file, old->line, 0, 0, 0, old->bytes - new->bytes};
            else if (new->bytes > old->bytes)
                items[count++] =
                    (row){new->what, new->file, new->line, 0, new->bytes - old->bytes, 0, 0};
            a++;
            b++;
            continue;
        }
        if (order <= 0) {
            items[count++] = went(old);
            a++;
        } else {
            items[count++] = came(new);
            b++;
        }
    }
    qsort(items, count, sizeof *items, by_group);
    size_t groups = 0;
    for (size_t i = 0; i < count; i++) {
        if (groups && compare_groups(&items[groups - 1], &items[i]) == 0) {
            row *group = &items[groups - 1];
            group->came_objects += items[i].came_objects;
            group->came_bytes += items[i].came_bytes;
            group->went_objects += items[i].went_objects;
            group->went_bytes += items[i].went_bytes;
        } else {
            items[groups++] = items[i];
        }
    }
    qsort(items, groups, sizeof *items, by_growth);
    *result = (rows){items, groups};
    return true;
}

static nd_difference sum(const rows *rows) {
    nd_difference result = ND_DIFFERENCE_INIT;
    for (size_t i = 0; i < rows->count; i++) {
        result.came_objects += rows->items[i].came_objects;
        result.came_bytes += rows->items[i].came_bytes;
        result.went_objects += rows->items[i].went_objects;
        result.went_bytes += rows->items[i].went_bytes;
    }
    return result;
}

static void write_rows(FILE *stream, const char *manager, const rows *rows, uint64_t limit) {
    nd_difference total = sum(rows);
    fprintf(stream,
            "below manager %s: +%" PRIu64 " objects, +%" PRIu64 " bytes; -%" PRIu64
            " objects, -%" PRIu64 " bytes\n",
            nd__text_plain((char[ND__TEXT_PLAIN]){0}, manager), total.came_objects,
            total.came_bytes, total.went_objects, total.went_bytes);
    for (size_t i = 0; i < rows->count; i++) {
        if (limit && i == limit) {
            fprintf(stream, "  ... %zu more rows\n", rows->count - i);
            return;
        }
        const row *row = &rows->items[i];
        fprintf(stream, "  +%" PRIu64 " -%" PRIu64 " x %s, +%" PRIu64 " -%" PRIu64 " bytes",
                row->came_objects, row->went_objects, row->what, row->came_bytes, row->went_bytes);
        if (row->file)
            fprintf(stream, ", made at %s:%" PRIu32, row->file, row->line);
        fputc('\n', stream);
    }
}

static void write_sum(const rows *rows, nd_difference *ret_difference) {
    nd_difference difference = sum(rows);
    nd__versioned_write(ret_difference, &difference, sizeof difference);
}

nd_status nd_snapshot_difference(const nd_snapshot *before, const nd_snapshot *after, FILE *stream,
                                 uint64_t limit, nd_difference *ret_difference) {
    ND__UNCANCELLED;
    if (!before || !after)
        return nd__error_null("snapshot_difference", before ? "after" : "before");
    nd_status status = ND_OK;
    if (ret_difference)
        status = nd__versioned_check("snapshot_difference", "ND_DIFFERENCE_INIT", ret_difference);
    if (status != ND_OK)
        return status;
    rows rows;
    nd__text out = {0};
    if (!find_rows(before, after, &rows))
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "snapshot_difference: no memory to compare");
    if (stream && nd__text_begin(&out))
        write_rows(out.stream, after->manager, &rows, limit);
    if (stream)
        status = nd__text_end(&out, "snapshot_difference", stream);
    if (status == ND_OK && ret_difference)
        write_sum(&rows, ret_difference);
    nd__alloc_free(rows.items);
    return status;
}

// ----------------------------------------------------------------------------------------- balance

struct nd_balance {
    nd_manager *manager; ///< owned
    nd_snapshot *before;
    const char *file;
    int line;
};

nd_balance *nd_balance_begin(const nd_manager *manager, const char *file, int line) {
    ND__UNCANCELLED;
    nd_balance *balance = nd__alloc_zeroed(sizeof *balance);
    if (!balance) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "expect_balanced: no memory to list the objects");
        return NULL;
    }
    balance->before = nd_snapshot_new(manager);
    if (!balance->before) {
        nd__alloc_free(balance);
        return NULL;
    }
    balance->manager =
        nd_retain((nd_manager *)(uintptr_t)(manager ? manager : nd_manager_get_root()));
    balance->file = file ? file : "";
    balance->line = line;
    return balance;
}

/// What a block left behind: the growth of the groups that grew, and the first of them. (The same
/// sums could come out of a block that released something else.)
typedef struct growth {
    uint64_t objects, bytes;
    const row *largest;
} growth;

static growth find_growth(const rows *rows) {
    growth result = {0};
    for (size_t i = 0; i < rows->count; i++) {
        const row *row = &rows->items[i];
        if (row->came_objects <= row->went_objects && row->came_bytes <= row->went_bytes)
            continue;
        if (row->came_objects > row->went_objects)
            result.objects += row->came_objects - row->went_objects;
        if (row->came_bytes > row->went_bytes)
            result.bytes += row->came_bytes - row->went_bytes;
        if (!result.largest)
            result.largest = row;
    }
    return result;
}

/// The error, and the listing when there is a stream.
static nd_status report_growth(const nd_balance *balance, const char *manager, const rows *rows,
                               growth growth, FILE *stream) {
    nd__text out = {0};
    nd_status status = ND_OK;
    if (stream) {
        if (nd__text_begin(&out)) {
            fprintf(out.stream, "ndarc: the block at %s:%d left something behind: ", balance->file,
                    balance->line);
            write_rows(out.stream, manager, rows, 20);
        }
        status = nd__text_end(&out, "expect_balanced", stream);
    }
    if (status != ND_OK)
        return status;
    char site[256] = "";
    if (growth.largest->file)
        snprintf(site, sizeof site, " made at %s:%" PRIu32, growth.largest->file,
                 growth.largest->line);
    return nd__error(ND_ERROR_STATE,
                     "expect_balanced: the block at %s:%d left %" PRIu64 " object%s and %" PRIu64
                     " bytes behind below manager %s, such as a %s%s",
                     balance->file, balance->line, growth.objects, growth.objects == 1 ? "" : "s",
                     growth.bytes, manager, growth.largest->what, site);
}

nd_status nd_balance_end(nd_balance *balance, FILE *stream, nd_difference *ret_difference) {
    ND__UNCANCELLED;
    if (!balance)
        return nd__error_null("expect_balanced", "balance");
    nd_status status = ND_OK;
    if (ret_difference)
        status = nd__versioned_check("expect_balanced", "ND_DIFFERENCE_INIT", ret_difference);
    if (status != ND_OK)
        return status;
    rows rows = {0};
    nd_snapshot *after = nd_snapshot_new(balance->manager);
    bool compared = after && find_rows(balance->before, after, &rows);
    if (compared) {
        growth growth = find_growth(&rows);
        if (growth.largest)
            status = report_growth(balance, after->manager, &rows, growth, stream);
    } else {
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "expect_balanced: no memory to compare");
    }
    if (compared && ret_difference)
        write_sum(&rows, ret_difference);
    nd__alloc_free(rows.items);
    nd_snapshot_free(after);
    nd_snapshot_free(balance->before);
    nd_object_release(balance->manager);
    nd__alloc_free(balance);
    return status;
}

nd_balance_block nd__balance_block_begin(const nd_manager *manager, const char *file, int line) {
    return (nd_balance_block){.once = true, .balance = nd_balance_begin(manager, file, line)};
}

void nd__balance_block_end(nd_balance_block *block) {
    if (block->balance)
        nd_balance_end(block->balance, stderr, NULL);
}
