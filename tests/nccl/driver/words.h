/* The words that a line of a case consists of. */
#ifndef WORDS_H
#define WORDS_H

#include <stddef.h>
#include <stdint.h>

/* Splits a line at its spaces, in place; gives the number of words. */
int split(char *line, char **words, int most);

/* A number, decimal or with 0x. */
int64_t number(const char *word);

/* What a word in hexadecimal stands for, with a NUL behind it; NULL for "-". */
char *bytes(const char *word, size_t *size);
char *text(const char *word);

/* Ends the process: the case is not one that this program understands. */
_Noreturn void misread(const char *word);

#endif
