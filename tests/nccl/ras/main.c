/* A rank of a job whose NCCL has no GPU, and whose RAS server answers.
 *
 *     RANK=0 ras LIBRARY SIZE      prints the job's id first
 *     RANK=1 ras LIBRARY SIZE ID
 *
 * The rank prints "ready" when it has joined the communicator. Then it reads commands, one a line, and
 * answers "done": "mark" writes into each word of the communicator that is 0 the number of the word;
 * "unmark" takes that back; "count WORD VALUE" writes a word, which may be one of the counts of
 * collectives. It exits at the end of its standard input. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library.h"

struct id {
    unsigned char bytes[128];
};

static void print_id(const struct id *id) {
    for (size_t i = 0; i < sizeof id->bytes; i++) printf("%02x", id->bytes[i]);
    printf("\n");
    fflush(stdout);
}

static void parse_id(struct id *id, const char *text) {
    for (size_t i = 0; i < sizeof id->bytes; i++) {
        if (sscanf(text + 2 * i, "%2hhx", &id->bytes[i]) != 1) exit(2);
    }
}

int main(int count, char **words) {
    if (count < 3 || !getenv("RANK")) return 2;
    open_library(words[1]);
    int rank = atoi(getenv("RANK")), size = atoi(words[2]);
    struct id id;
    if (rank == 0) {
        int (*get_id)(struct id *) = exported("ncclGetUniqueId");
        if (get_id(&id) != 0) return 3;
        print_id(&id);
    } else {
        if (count < 4) return 2;
        parse_id(&id, words[3]);
    }
    int (*join)(void **, int, struct id, int) = exported("ncclCommInitRank");
    uint64_t *communicator = NULL;
    if (join((void **)&communicator, size, id, rank) != 0 || !communicator) return 4;
    size_t length = malloc_usable_size(communicator) / sizeof *communicator;
    printf("ready\n");
    fflush(stdout);
    char line[256], command[16];
    while (fgets(line, sizeof line, stdin)) {
        unsigned long word = 0, value = 0;
        sscanf(line, "%15s %lu %lu", command, &word, &value);
        for (size_t i = 1; i < length; i++) {
            if (!strcmp(command, "mark") && communicator[i] == 0) communicator[i] = i << 32 | i;
            if (!strcmp(command, "unmark") && communicator[i] == (i << 32 | i)) communicator[i] = 0;
        }
        if (!strcmp(command, "count") && word < length) communicator[word] = value;
        printf("done\n");
        fflush(stdout);
    }
    /* Without the functions that run at the exit, which would end the GPUs. */
    _exit(0);
}
