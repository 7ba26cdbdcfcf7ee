// embeddings FOLDER FILE.npy: writes the embeddings of the lines of standard input.
#define _POSIX_C_SOURCE 200809L // getline, under -std=c17 too
#include "docs/examples/minilm/minilm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// Reads lines until the end, which is also a lack of memory. Each is owned.
static char **read_lines(size_t *ret_count) {
    char **lines = NULL, *line = NULL;
    size_t count = 0, room = 0;
    while (getline(&line, &room, stdin) >= 0) {
        line[strcspn(line, "\n")] = 0;
        char **more = realloc(lines, (count + 1) * sizeof *lines);
        if (!more)
            break;
        lines = more;
        lines[count++] = line;
        line = NULL;
        room = 0;
    }
    free(line);
    *ret_count = count;
    return lines;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "embeddings FOLDER FILE.npy\n");
        return 2;
    }
    size_t count;
    char **lines = read_lines(&count);
    nd_auto nd_object *model = minilm_open(argv[1]);
    nd_auto nd_tensor *embeddings =
        model ? minilm_embed(model, count, (const char *const *)lines) : NULL;
    if (!embeddings)
        fprintf(stderr, "%s\n", minilm_get_problem());
    bool saved = embeddings && nd_save_npy(argv[2], embeddings) == ND_OK;
    for (size_t i = 0; i < count; i++)
        free(lines[i]);
    free(lines);
    return saved ? 0 : 1;
}
