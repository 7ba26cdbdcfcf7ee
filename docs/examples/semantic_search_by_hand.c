// semantic_search, with counts by hand: finds lines of files by what they mean.
#define _POSIX_C_SOURCE 200809L // getline, under -std=c17 too
#include "minilm/minilm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWERS = 5, LONGEST = 4096 };

typedef struct lines {
    struct line {
        char text[LONGEST];
        const char *file;
        int number;
    } * all;
    size_t count;
} lines;

/// Adds the lines of a file that are not blank. False, with the error printed.
static bool read_lines(lines *to, const char *path) {
    FILE *file = fopen(path, "r");
    if (!file)
        return perror(path), false;
    struct line next = {.file = path};
    char *text = NULL; // of any length; a line is shown, and looked at, as far as it fits
    for (size_t room = 0; getline(&text, &room, file) >= 0;) {
        next.number++;
        snprintf(next.text, LONGEST, "%.*s", (int)strcspn(text, "\r\n"), text);
        if (!next.text[strspn(next.text, " \t")])
            continue;
        struct line *all = realloc(to->all, (to->count + 1) * sizeof *all);
        if (!all)
            break;
        to->all = all;
        to->all[to->count++] = next;
    }
    bool whole = feof(file) && !ferror(file);
    free(text);
    fclose(file);
    return whole || (perror(path), false);
}

/// The directions of all lines: [lines, width].
static nd_tensor *embed_lines(const nd_object *model, const lines *from) {
    const char **texts = malloc((from->count + 1) * sizeof *texts);
    for (size_t i = 0; texts && i < from->count; i++)
        texts[i] = from->all[i].text;
    nd_tensor *index = texts ? minilm_embed(model, from->count, texts) : NULL;
    free(texts);
    return index;
}

/// Prints the lines that mean most nearly what the query means.
static bool answer(const nd_object *model, const nd_tensor *index, const lines *from,
                   const char *query) {
    nd_tensor *best = NULL, *which = NULL, *wanted = minilm_embed(model, 1, &query);
    nd_tensor *cosines = nd_linear(wanted, index, NULL); // [1, lines]: all have length 1
    int64_t count = from->count < ANSWERS ? (int64_t)from->count : ANSWERS;
    nd_status status = nd_topk(cosines, count, 1, true, &best, &which);
    nd_release(wanted);
    nd_release(cosines);
    if (status != ND_OK)
        return fprintf(stderr, "semantic_search: %s\n", nd_error_get_message()), false;
    const float *scores = nd_get_data(best);
    const int64_t *at = nd_get_data(which);
    for (int64_t i = 0; i < count; i++) {
        const struct line *found = &from->all[at[i]];
        printf("%.2f %s:%d: %s\n", (double)scores[i], found->file, found->number, found->text);
    }
    nd_release(best);
    nd_release(which);
    return true;
}

int main(int argc, char **argv) {
    const char *folder = NULL, *query = NULL, *from = getenv("BUILD_WORKING_DIRECTORY");
    lines all = {0};
    bool fine = !from || chdir(from) == 0; // where `bazel run` was called
    for (int i = 1; i < argc && fine; i++) {
        if (i + 1 < argc && strcmp(argv[i], "--model") == 0)
            folder = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--query") == 0)
            query = argv[++i];
        else
            fine = read_lines(&all, argv[i]);
    }
    nd_object *model = fine ? minilm_open(folder) : NULL;
    nd_tensor *index = model ? embed_lines(model, &all) : NULL;
    if (fine && !index)
        fprintf(stderr, "semantic_search: %s\n", minilm_get_problem());
    fine = index && (!query || answer(model, index, &all, query));
    for (char asked[LONGEST]; fine && !query && fgets(asked, sizeof asked, stdin);)
        fine = answer(model, index, &all, asked);
    nd_release(index);
    nd_release(model);
    free(all.all);
    return fine ? 0 : 1;
}
