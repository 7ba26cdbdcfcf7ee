// tokens VOCABULARY: the numbers of the tokens of each line of standard input, in a line.
#define _POSIX_C_SOURCE 200809L // getline, under -std=c17 too
#include "wordpiece.h"

#include <stdio.h>
#include <stdlib.h>

enum { LIMIT = 256 };

int main(int argc, char **argv) {
    wordpiece *pieces = argc > 1 ? wordpiece_open(argv[1]) : NULL;
    if (!pieces) {
        perror(argc > 1 ? argv[1] : "tokens: which vocabulary?");
        return 1;
    }
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    while ((length = getline(&line, &room, stdin)) >= 0) {
        int32_t ids[LIMIT];
        size_t bytes = (size_t)length - (length > 0 && line[length - 1] == '\n');
        size_t count = wordpiece_encode(pieces, line, bytes, LIMIT, ids);
        for (size_t i = 0; i < count; i++)
            printf(i + 1 < count ? "%d " : "%d\n", (int)ids[i]);
        if (count == 0)
            return 1;
    }
    free(line);
    wordpiece_close(pieces);
    return 0;
}
