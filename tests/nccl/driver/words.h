/* The words of a line of a case. */
#ifndef WORDS_H
#define WORDS_H

#include <stddef.h>
#include <stdint.h>

/* Splits a line at its spaces, in place. Returns the number of words. */
int split(char *line, char **words, int most);

/* Reads a number, which is decimal or starts with 0x. */
int64_t number(const char *word);

/* Returns the bytes of a word in hexadecimal, followed by a NUL; NULL for "-". */
char *bytes(const char *word, size_t *size);
char *text(const char *word);

/* Ends the process, because this program does not understand the case. */
_Noreturn void misread(const char *word);

#endif
