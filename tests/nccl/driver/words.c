#include "words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int split(char *line, char **words, int most) {
    int count = 0;
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
        if (count == most) misread(word);
        words[count++] = word;
    }
    return count;
}

int64_t number(const char *word) {
    char *end;
    errno = 0;
    /* A GUID uses all 64 bits, so it is read as an unsigned number. */
    int64_t value = word[0] == '-' ? strtoll(word, &end, 0) : (int64_t)strtoull(word, &end, 0);
    if (errno || end == word || *end) misread(word);
    return value;
}

char *bytes(const char *word, size_t *size) {
    *size = 0;
    if (strcmp(word, "-") == 0) return NULL;
    /* The first letter tells an empty text from none. */
    if (*word++ != 'x') misread(word);
    char *result = calloc(strlen(word) / 2 + 1, 1);
    if (!result) abort();
    for (; *word; word += 2) {
        unsigned byte;
        if (sscanf(word, "%2x", &byte) != 1 || !word[1]) misread(word);
        result[(*size)++] = (char)byte;
    }
    return result;
}

char *text(const char *word) {
    size_t size;
    return bytes(word, &size);
}

void misread(const char *word) {
    dprintf(STDERR_FILENO, "a case is not understood at %s\n", word);
    _exit(2);
}
